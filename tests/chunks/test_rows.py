"""Rows of chunks as lines of JSON: written, read, and refused in a line."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoset_ref.chunks.row_format import format_row, read_row, row_files


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_lines_are_those_of_json_dumps(dtype):
    for ids, rest in (
        ([0, 1, 10], {}),
        ([65535, 99], {}),
        ([7], {}),
        ([1, 2, 0], {"document_lengths": [1, 1]}),
    ):
        expected = json.dumps({"token_ids": ids, "source": 'a/"ü"', **rest}) + "\n"
        assert (
            format_row(np.array(ids, dtype=dtype), 'a/"ü"', *rest.values())
            == expected.encode()
        )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"token_ids": [1, 2], "source": "a"}', ([1, 2], "a", None)),
        (b'{"token_ids": [0], "source": "a]", "more": [1, 2]}', ([0], "a]", None)),
        (b'{"token_ids":[1,2],"source":null}', ([1, 2], None, None)),
        (b'{"more": [1], "source": "[b", "token_ids": [3]}\r', ([3], "[b", None)),
        (b' {"token_ids" : [ 7 ] }', ([7], None, None)),
        (b'{"token_ids": [2147483647]}', ([2147483647], None, None)),
        (
            b'{"token_ids": [1, 2, 3, 0], "source": "a", "document_lengths": [1, 2]}',
            ([1, 2, 3, 0], "a", [1, 2]),
        ),
    ],
)
def test_a_row_is_read_however_it_is_written(line, expected):
    ids, *rest = read_row(line, len(expected[0]), None)
    assert (ids.tolist(), *rest) == expected


BAD_IDS = [
    *b'1, 2,|,1|01|1 2|-1|1.0|1e2|true, 1|"1"|2147483648|[1]|1], [2|1,, 2|null'.split(
        b"|"
    ),
    b"9" * 18,
    b"9" * 30,
]
BAD = [b'{"token_ids": [%b]}' % ids for ids in BAD_IDS]
BAD += b'|  |{bad|[1]|[|{}|"token_ids"|{"token_ids": 1}|{"token_ids": []}|{"token_ids": [1, 2]'.split(
    b"|"
)
BAD += b'{"token_ids": [1, |{"token_ids": [1]}x|{"token_ids": [1], "token_ids": [2, 3]}'.split(
    b"|"
)
BAD += b'{"token_ids": [1], "source": 5}|{"token_ids": {"token_ids": [1]}}'.split(b"|")
BAD += [b'{"token_ids": [1], "source": "\xff"}', b"[" * 10**5]
# two labels that NumPy would keep as one
BAD += [rb'{"token_ids": [1], "source": "a\u0000"}']
BAD += [
    b'{"token_ids": [1, 2], "document_lengths": %b}' % it
    for it in (b"[]", b"[1, 2]", b"[0]", b"[true]", b"3", b"[1.0]")
]


@pytest.mark.parametrize("line", BAD)
def test_invalid_rows_are_refused_in_one_line(line):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        read_row(line, None, None)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1), st.booleans())
def test_written_rows_are_read_back(ids, compact):
    line = json.dumps(
        {"token_ids": ids, "source": "s"},
        separators=(",", ":") if compact else (", ", ": "),
    ).encode()
    assert read_row(line, len(ids), None)[0].tolist() == ids
    for wrong in ((len(ids) + 1, None), (None, max(ids) or 1)):
        if wrong != (None, 1):
            with pytest.raises(ValueError, match=r"expected|not below"):
                read_row(line, *wrong)


def test_files_whose_names_have_one_number_have_one_order(tmp_path, monkeypatch):
    """Not that of the folder, which depends on how it was copied."""
    names = [tmp_path / name for name in ("train_1.jsonl", "train_01.jsonl")]
    for path in names:
        path.touch()
    for listed in (names, names[::-1]):
        monkeypatch.setattr(Path, "rglob", lambda *_, listed=listed: listed)
        assert row_files(tmp_path) == names[::-1]
