"""Validation of chunks: each kind of error with its lines, and files that are not as their manifest says."""

import json

import numpy as np
import pytest
from chunk_helpers import FACTS, say, write_chunks

from nanoset_ref.chunks import validate
from nanoset_ref.chunks.row_format import format_row


def test_golden_failing_lines(golden, tmp_path):
    path = tmp_path / "x.jsonl"
    for case in json.loads((golden / "amber/amber.json").read_text())["validate"]:
        lines = [
            json.dumps({"token_ids": list(range(it))}) if isinstance(it, int) else it
            for it in case["lines"]
        ]
        path.write_text("".join(line + "\n" for line in lines))
        [report] = validate([path])
        assert report.bad_lines == case["failed_sorted"]
        assert f"Lines: {report.lines}" == case["total"]


def test_every_kind_of_error_is_named_with_its_lines_and_samples_are_counted_per_source(
    tmp_path,
):
    path = tmp_path / "x.jsonl"
    rows = [
        ([1, 2], "a"),
        ([1], "a"),
        ([8, 9], "a"),
        ([1, 2], "b"),
        ([1, 2], None),
        ([1], "a"),
    ]
    lines = [json.dumps({"token_ids": ids, "source": source}) for ids, source in rows]
    path.write_text("\n".join([*lines, "{bad", "[]"]))
    [report] = validate([path], num_tokens=2, vocab_size=9, sources=["a"])
    assert not report.ok and report.bad_lines == [2, 3, 4, 5, 6, 7, 8]
    assert report.errors == {
        "1 token_ids, expected 2": [2, 6],
        "an id is not below 9": [3],
        "source 'b', expected one of ['a']": [4],
        "source None, expected one of ['a']": [5],
        "not JSON: unexpected character, expected a string key": [7],
        'not an object with a list of ids "token_ids"': [8],
    }
    assert str(report).startswith(
        f"{path}: 8 lines, 7 bad\n  1 token_ids, expected 2: line 2, 6\n"
    )
    [report] = validate([path], num_tokens=2)
    assert report.sources == {"a": 2, "b": 1, None: 1}
    assert str(report).endswith("\n  a: 2\n  b: 1\n  (no source): 1")


def test_expectations_come_from_the_manifest_above_the_first_file(tmp_path):
    write_chunks(tmp_path / "mixed", [2], facts=FACTS | {"vocab_size": 9})
    (tmp_path / "x.jsonl").write_bytes(format_row(np.zeros(2049, dtype=np.uint16), "a"))
    first, second = validate(
        [tmp_path / "mixed/train/train_0.jsonl", tmp_path / "x.jsonl"]
    )
    assert first.errors == {"an id is not below 9": [2]}
    assert second.errors == {"2049 token_ids, expected 5": [1]}
    assert validate([tmp_path / "x.jsonl"])[0].ok
    with pytest.raises(ValueError, match="has no .jsonl file"):
        validate(
            [
                tmp_path / "mixed/train",
                (tmp_path / "empty").mkdir() or tmp_path / "empty",
            ]
        )
    with pytest.raises(FileNotFoundError):
        validate([tmp_path / "missing.jsonl"])


def test_files_that_are_not_as_the_manifest_says_and_unfinished_folders_are_found(
    tmp_path,
):
    write_chunks(tmp_path, [2, 2])
    first, second = sorted((tmp_path / "train").iterdir())
    content = first.read_bytes()
    assert all(report.ok for report in validate([tmp_path]))
    for other in (
        second.read_bytes(),
        content[: len(content) // 2 + 1],
    ):  # as many lines; fewer
        first.write_bytes(other)
        changed, unchanged = validate([tmp_path])
        assert (
            "changed: its checksum differs from the manifest's" in changed.errors
            and unchanged.ok
        )
    first.unlink()
    for folder in (tmp_path, tmp_path / "train"):
        there, gone = validate([folder])
        assert (there.path.name, there.ok) == (second.name, True)
        assert (gone.path, gone.errors) == (
            first,
            {"missing, though the manifest lists it": []},
        )
    assert [report.ok for report in validate([second])] == [True]
    say(tmp_path)
    there, folder = validate([tmp_path / "train"])
    assert there.ok
    assert (folder.path, list(folder.errors)) == (
        tmp_path,
        ["not finished: run again the command that makes it"],
    )
