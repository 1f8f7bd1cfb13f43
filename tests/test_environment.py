"""Whole numbers in environment variables."""

import pytest

from nanoset_ref.io.torchrun import integer_setting, is_main_rank, under_torchrun
from nanoset_ref.preprocess.backends import MAX_THREADS, num_threads


@pytest.mark.parametrize("setting", ["abc", "4,2", "-1", "1.5", "99999999999"])
def test_a_setting_that_is_no_whole_number_is_named(monkeypatch, setting):
    for variable, ask in (
        ("RAYON_NUM_THREADS", num_threads),
        ("RANK", is_main_rank),
        ("WORLD_SIZE", under_torchrun),
    ):
        monkeypatch.setenv(variable, setting)
        with pytest.raises(
            ValueError, match=f"{variable} must be an integer of at least .*{setting}"
        ):
            ask()
        monkeypatch.delenv(variable)


def test_threads_of_rayon(monkeypatch):
    cores = num_threads()
    for setting, threads in (
        ("", cores),
        ("0", cores),
        ("3", 3),
        ("2000000", MAX_THREADS),
    ):
        monkeypatch.setenv("RAYON_NUM_THREADS", setting)
        assert num_threads() == threads


def test_a_setting_has_a_default(monkeypatch):
    monkeypatch.delenv("NUMBER", raising=False)
    assert integer_setting("NUMBER", 7) == 7
