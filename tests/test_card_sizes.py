"""Servers that are asked for the sizes of a card's files: what is asked again, and what is not."""

import io
import urllib.request
from http.client import HTTPMessage, IncompleteRead, RemoteDisconnected
from urllib.error import HTTPError, URLError

import pytest

from nanoset_ref.provenance import card_sizes

ADDRESS = "https://nowhere.invalid/a.npy"


def busy(code):
    return HTTPError(ADDRESS, code, "no", HTTPMessage(), io.BytesIO())


@pytest.fixture
def ask(monkeypatch):
    """Ask for a size, whose server answers with these errors first; the pauses, and the size."""

    def ask(*errors):
        left = list(errors)

        def urlopen(request, timeout):
            assert (request.full_url, request.method) == (ADDRESS, "HEAD")
            if left:
                raise left.pop(0)
            headers = HTTPMessage()
            headers["Content-Length"] = "42"
            return urllib.request.addinfourl(io.BytesIO(), headers, ADDRESS, 200)

        pauses = []
        monkeypatch.setattr(urllib.request, "urlopen", urlopen)
        monkeypatch.setattr(card_sizes.time, "sleep", pauses.append)
        try:
            return pauses, card_sizes._size_of(ADDRESS)
        except OSError as error:
            return pauses, str(error)

    return ask


def test_what_may_pass_is_asked_again_and_costs_no_size(ask):
    assert ask() == ([], 42)
    assert ask(busy(503), TimeoutError("timed out"), busy(429)) == ([1, 3, 9], 42)
    broken = RemoteDisconnected("closed"), IncompleteRead(b""), URLError("no such host")
    assert ask(*broken) == ([1, 3, 9], 42)


def test_what_stays_so_is_an_error_at_once_and_all_else_after_four_requests(ask):
    for error in (busy(404), busy(403), busy(501)):
        pauses, message = ask(error)
        assert pauses == [] and message.startswith(f"{ADDRESS}: ")
    errors = [busy(code) for code in (500, 502, 503, 504)]
    pauses, message = ask(*errors)
    assert pauses == [1, 3, 9] and message == f"{ADDRESS}: HTTP Error 504: no"
    assert all(error.closed for error in errors)
