"""Validating files of records."""

import json

import pytest

from nanoset_ref.chunks.chunk_manifest import ChunkManifest, FileEntry
from nanoset_ref.chunks.chunk_rows import validate


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines))
    return path


def record(count, source="a", first=0):
    return json.dumps({"token_ids": list(range(first, first + count)), "source": source})


def test_golden_failing_lines(golden, tmp_path):
    for case in json.loads((golden / "amber/amber.json").read_text())["validate"]:
        lines = [
            json.dumps({"token_ids": list(range(line))}) if isinstance(line, int) else line for line in case["lines"]
        ]
        [report] = validate([write(tmp_path / "x.jsonl", lines)])
        assert report.bad_lines == case["failed_sorted"]
        assert f"Lines: {report.lines}" == case["total"]


def test_golden_files_are_valid(golden):
    files = sorted((golden / "amber/mixed_4").rglob("*.jsonl"))
    reports = validate(files, num_tokens=65, sources=["redpajama_v1/arxiv", "redpajama_v1/c4", "starcoderdata/python"])
    assert all(report.ok for report in reports)
    assert sum(report.lines for report in reports) == 4 * 20 + 9


def test_every_kind_of_error_is_named_with_its_lines(tmp_path):
    path = write(
        tmp_path / "x.jsonl",
        [record(3), record(2), "{bad", record(3, "b"), record(2), record(2), record(3, first=7), record(3), "[]"],
    )
    [report] = validate([path], num_tokens=3, vocab_size=9, sources=["a"])
    assert not report.ok
    assert report.errors == {
        "2 token_ids, expected 3": [2, 5, 6],
        "not JSON: unexpected character, expected a string key": [3],
        "source 'b', expected one of ['a']": [4],
        "an id that is not below 9": [7],
        'not an object with a list of ids "token_ids"': [9],
    }
    assert report.sources == {"a": 2}
    assert "2 token_ids, expected 3: line 2, 5, 6" in str(report)
    assert "  a: 2" in str(report)


def test_samples_are_counted_per_source(tmp_path):
    path = write(tmp_path / "x.jsonl", [record(2, "a"), record(2, "b"), record(2, "a"), '{"token_ids": [1, 2]}'])
    [report] = validate([path], num_tokens=2)
    assert report.ok
    assert report.sources == {"a": 2, "b": 1, None: 1}
    assert "(no source): 1" in str(report)


def test_expectations_come_from_the_manifest_above_the_first_file(tmp_path):
    path = write(tmp_path / "mixed/train/train_0.jsonl", [record(3), record(3, first=8)])
    other = write(tmp_path / "elsewhere.jsonl", [record(2049)])
    manifest = ChunkManifest(
        settings={"concat_tokens": 3, "vocab_size": 10},
        complete=True,
        files={"train/train_0.jsonl": FileEntry.of(path, 2)},
    )
    manifest.write(tmp_path / "mixed")
    first, second = validate([path, other])
    assert first.errors == {"an id that is not below 10": [2]}
    assert second.errors == {"2049 token_ids, expected 3": [1]}
    assert validate([other])[0].ok


def test_no_file_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="holds no .jsonl file"):
        validate([tmp_path])
    with pytest.raises(FileNotFoundError):
        validate([tmp_path / "missing.jsonl"])


def finished(root, count=2):
    """A finished folder of `count` files of two rows."""
    paths = [write(root / f"train/train_{i}.jsonl", [record(3), record(3, first=i)]) for i in range(count)]
    files = {f"train/{path.name}": FileEntry.of(path, 2) for path in paths}
    ChunkManifest(settings={"concat_tokens": 3}, complete=True, files=files).write(root)
    return paths


def test_a_file_that_lost_a_line_or_was_changed_keeping_its_lines_is_found_by_its_checksum(tmp_path):
    first, second = finished(tmp_path)
    assert all(report.ok for report in validate([tmp_path]))
    for content in (second.read_bytes(), first.read_bytes().splitlines(keepends=True)[0]):
        first.write_bytes(content)
        changed, unchanged = validate([tmp_path])
        assert changed.errors == {"changed: it has not the checksum that the manifest says": []}
        assert unchanged.ok


def test_a_file_that_is_gone_is_missed_in_its_folder_only(tmp_path):
    first, second = finished(tmp_path)
    first.unlink()
    for folder in (tmp_path, tmp_path / "train"):
        there, gone = validate([folder])
        assert (there.path.name, there.ok) == (second.name, True)
        assert (gone.path, gone.errors) == (first, {"missing, though the manifest lists it": []})
    assert [report.ok for report in validate([second])] == [True]


def test_an_unfinished_folder_is_not_good(tmp_path):
    finished(tmp_path)
    ChunkManifest(settings={"concat_tokens": 3}).write(tmp_path)
    *files, folder = validate([tmp_path / "train"], num_tokens=3)
    assert all(report.ok for report in files)
    assert (folder.path, list(folder.errors)) == (tmp_path, ["not finished: run the command that makes it once more"])
