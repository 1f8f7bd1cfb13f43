"""The corpora that loaders are judged with: in each format, in shards, with numbers that a dtype can hold."""

import re
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nanoset_ref.laws import Case, check, judge, write_corpus
from nanoset_ref.laws.corpora import WRITERS
from nanoset_ref.laws.trial import CaseRefused
from nanoset_ref.tokens import open_tokens


def in_file_order(data: Any, *, batch_size: int, **settings: Any) -> list[Any]:
    tokens = open_tokens(data.path).tokens
    rows = tokens[: len(tokens) // 8 * 8].reshape(-1, 8)
    starts = range(0, len(rows), batch_size)
    return [np.array(rows[start : start + batch_size]) for start in starts]


@pytest.mark.parametrize("form", ["npy", "bin", "ds"])
def test_rows_whose_tokens_do_not_fit_uint16(form: str) -> None:
    """A pair and a .ds file take int32; raw ids have no dtype to tell, so the case is refused."""
    largest, larger = (Case(rows=rows, batch_size=5) for rows in (8190, 8300))
    assert judge(in_file_order, "once", largest, format=form, claims="once") is None
    if form != "npy":
        assert judge(in_file_order, "once", larger, format=form, claims="once") is None
        return
    with pytest.raises(CaseRefused, match="has numbers for 8,190 rows, got 8,300"):
        judge(in_file_order, "once", larger, format=form, claims="once")
    growth = check(in_file_order, format=form, claims="growth", examples=1)
    assert "has numbers for 8,190 rows, got 65,536" in growth.line("growth")


@pytest.mark.parametrize("form", ["npy", "bin", "ds", "jsonl", "parquet", "tar"])
def test_a_corpus_is_written_in_each_format(form: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, form, [3, 2], [0.5, 0.5])
    assert len(corpus.paths) == 2
    if form in ("bin", "ds"):
        tokens = open_tokens(corpus.paths[1])
        assert tokens.num_tokens == 16
    assert {*WRITERS} >= {"mds", "litdata", form}


@pytest.mark.parametrize(
    ("form", "module", "package"),
    [("mds", "streaming", "mosaicml-streaming"), ("litdata", "litdata", "litdata")],
)
def test_a_format_names_the_package_that_writes_it(
    form: str,
    module: str,
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"{form} needs .*: pip install {package}"):
        write_corpus(tmp_path, form, [3])


def test_a_format_that_is_unknown_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format must be rows or one of npy"):
        write_corpus(tmp_path, "xyz", [3])


def test_a_corpus_has_a_plain_name(tmp_path: Path) -> None:
    """Some libraries take a path for a pattern, in which brackets and blanks mean something."""

    def make(data: Any, **place: Any) -> Any:
        assert re.fullmatch(r"[\w./-]+", data.path), data.path
        return [
            np.arange(8 * (row + 1), 8 * (row + 2)) for row in range(sum(data.rows))
        ]

    report = check(
        make, claims="once", format="npy", max_ranks=1, max_batch_size=1, budget=600
    )
    assert report.broken == []


def test_a_corpus_of_shards_has_a_file_for_each() -> None:
    def make(data: Any, *, rank: int, world_size: int, **place: Any) -> Any:
        assert len(data.paths) == len(data.rows) == min(3, sum(data.rows))
        for path in data.paths[rank::world_size]:
            with tarfile.open(path) as archive:
                for member in archive:
                    yield archive.extractfile(member).read().decode()  # type: ignore[union-attr]

    options = {"format": "tar", "files": 3, "max_batch_size": 1}
    report = check(make, claims="once data", examples=9, budget=600, **options)
    assert (report.broken, report.unjudged) == ([], [])
