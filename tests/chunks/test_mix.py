"""Mixing subsets and splitting them into chunks."""

import json
import os
import random
import resource
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref import plain
from nanoset_ref.chunks.chunk_conversion import chunk_files, chunk_tokens
from nanoset_ref.chunks.chunk_manifest import (
    ChunkManifest,
    FileEntry,
    ManifestError,
    RowFacts,
)
from nanoset_ref.chunks.mixing import mix


def write_subset(root, name, samples, newline_at_end=True):
    """<root>/<name>/train.jsonl with the samples [0, 0], [1, 1], ...; returns its lines."""
    (root / name).mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"token_ids": [i, i], "source": name}) for i in range(samples)]
    (root / name / "train.jsonl").write_text("\n".join(lines) + "\n" * newline_at_end)
    return lines


def read_mix(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text().splitlines()
        for path in folder.rglob("*.jsonl")
    }


def test_golden_mixes(golden, tmp_path):
    runs = json.loads((golden / "amber/amber.json").read_text())["mix_runs"]
    assert len(runs) == 3
    for run in runs:
        root, out = tmp_path / run["name"] / "in", tmp_path / run["name"] / "out"
        for flat, subset in run["subfolder_source"].items():
            shutil.copytree(golden / "amber" / run["source_run"] / subset, root / flat)
        arguments = (
            root,
            out,
            run["subfolders"],
            run["num_split"],
            run["num_valid_samples_per_subfolder"],
        )
        if "error" in run:
            with pytest.raises(
                ValueError,
                match="has 62 samples, fewer than the 1000000 for validation",
            ):
                mix(*arguments, random_seed=run["random_seed"])
            assert not out.exists()
            continue
        manifest = mix(*arguments, random_seed=run["random_seed"])
        expected = golden / "amber" / run["name"]
        assert sorted(read_mix(out)) == sorted(manifest.files) == sorted(run["outputs"])
        for name, entry in run["outputs"].items():
            assert (out / name).read_bytes() == (expected / name).read_bytes()
            assert manifest.files[name].lines == entry["lines"]


SIZES, FEW = st.lists(st.integers(1, 30), min_size=1, max_size=3), st.integers(0, 3)
FLAGS = st.fixed_dictionaries(
    dict.fromkeys(["shuffle", "keep_leftover"], st.booleans()) | {"random_seed": FEW}
)


@settings(deadline=None, max_examples=40)
@given(SIZES, st.integers(1, 5), FEW, FLAGS)
def test_samples_are_dealt_out_as_the_plain_loop_does(
    tmp_path_factory, sizes, num_chunks, num_valid, flags
):
    root = tmp_path_factory.mktemp("mix")
    lines = {
        f"web/s{i}": write_subset(root / "in", f"web/s{i}", size, i != 1)
        for i, size in enumerate(sizes)
    }
    arguments = (root / "in", root / "out", list(lines), num_chunks, num_valid)
    if min(sizes) < num_valid or max(sizes) - num_valid < num_chunks:
        with pytest.raises(ValueError, match="fewer"):
            mix(*arguments, **flags)
        assert not (root / "out").exists()
        return
    manifest = mix(*arguments, **flags)
    content, rng = read_mix(root / "out"), random.Random(flags["random_seed"])
    assert {name: len(found) for name, found in content.items()} == {
        name: entry.lines for name, entry in manifest.files.items()
    }
    chunks = [content.pop(f"train/train_{i}.jsonl") for i in range(num_chunks)]
    expected = [[] for _ in chunks]
    for entry in manifest.conservation:
        subset = lines.pop(entry.subset)
        valid, dealt = plain.distribute(subset, num_chunks, num_valid, rng)
        leftover = subset[num_valid + sum(map(len, dealt)) :]
        assert content.pop(f"valid/{entry.subset}.jsonl") == valid
        assert content.pop(f"leftover/{entry.subset}.jsonl", leftover) == leftover
        expected = [chunk + part for chunk, part in zip(expected, dealt, strict=True)]
        accounted = (len(subset), len(valid), sum(map(len, dealt)), len(leftover))
        assert (entry.samples, entry.valid, entry.train, entry.leftover) == accounted
    assert content == lines == {}
    assert flags["keep_leftover"] == (root / "out/leftover").exists()
    assert (
        chunks == expected
        if not flags["shuffle"]
        else list(map(sorted, chunks)) == list(map(sorted, expected))
    )


def test_each_chunk_has_an_order_of_its_own_that_depends_on_the_seed(tmp_path):
    write_subset(tmp_path / "in", "a", 128)
    made = []
    for seed in (None, 0, 0, 1):
        out = tmp_path / f"out{len(made)}"
        mix(
            tmp_path / "in",
            out,
            "a",
            2,
            0,
            shuffle=seed is not None,
            random_seed=seed or 0,
        )
        made.append(read_mix(out))
    plain, seed0, again, seed1 = made
    assert seed0 == again
    assert (
        len({tuple(found["train/train_0.jsonl"]) for found in (plain, seed0, seed1)})
        == 3
    )
    moved = [
        list(map(plain[name].index, seed0[name]))
        for name in ("train/train_0.jsonl", "train/train_1.jsonl")
    ]
    assert moved[0] != moved[1]


def test_more_chunks_than_the_process_may_hold_files_open(tmp_path):
    lines = write_subset(tmp_path / "in", "a", 200)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = os.open(tmp_path, os.O_RDONLY)  # other tests may have left files open
    os.close(highest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 80, limits[1]))
    try:
        mix(tmp_path / "in", tmp_path / "out", "a", 200, 0, shuffle=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    made = read_mix(tmp_path / "out")
    assert [made[f"train/train_{i}.jsonl"] for i in range(200)] == [
        [line] for line in lines
    ]


def test_an_interrupted_mix_goes_on_with_the_chunk_that_is_missing(
    tmp_path, monkeypatch
):
    write_subset(tmp_path / "in", "a", 40)
    mix(tmp_path / "in", tmp_path / "whole", "a", 8, 4, shuffle=True)
    written, real = [], FileEntry.of

    def interrupted(path, lines):
        written.append(path.name)
        if len(written) == 4:
            raise KeyboardInterrupt
        return real(path, lines)

    monkeypatch.setattr(FileEntry, "of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mix(tmp_path / "in", tmp_path / "out", "a", 8, 4, shuffle=True)
    assert not ChunkManifest.read(tmp_path / "out").complete
    kept = (tmp_path / "out/train/train_0.jsonl").stat().st_mtime_ns
    manifest = mix(tmp_path / "in", tmp_path / "out", "a", 8, 4, shuffle=True)
    assert (tmp_path / "out/train/train_0.jsonl").stat().st_mtime_ns == kept
    assert read_mix(tmp_path / "out") == read_mix(tmp_path / "whole")
    assert (
        manifest
        == ChunkManifest.read(tmp_path / "whole")
        == ChunkManifest.read(tmp_path / "out")
    )


def test_a_foreign_file_among_those_of_subsets_is_not_removed(tmp_path):
    write_subset(tmp_path / "in", "a\nb", 40)
    arguments = (tmp_path / "in", tmp_path / "out", ["a\nb"], 8, 4)
    mix(*arguments)
    mine = tmp_path / "out/valid/mine.jsonl"
    mine.write_text("precious")
    with pytest.raises(
        ManifestError, match="mine.jsonl was not written by this command"
    ):
        mix(*arguments, random_seed=3, overwrite=True)
    assert mine.read_text() == "precious"
    mine.unlink()
    assert mix(*arguments, random_seed=3, overwrite=True).complete


@pytest.mark.parametrize("folder", ["", "in"])
def test_a_mix_above_its_input_is_resumed_and_repeated(tmp_path, monkeypatch, folder):
    """Its own manifest is above the subsets, too."""
    write_subset(tmp_path / "in", "a", 40)
    arguments = (tmp_path / "in", tmp_path / folder, "a", 8, 4)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FileEntry, "of", Mock(side_effect=KeyboardInterrupt))
        mix(*arguments)
    whole = mix(*arguments)
    assert whole.complete and mix(*arguments) == whole


@pytest.mark.parametrize("state", ["no manifest", "foreign manifest", "killed run"])
def test_files_of_others_are_not_removed(tmp_path, state):
    write_subset(tmp_path / "in", "a", 40)
    out = tmp_path / "out"
    mine = out / "valid/questions.jsonl"
    mine.parent.mkdir(parents=True)
    mine.write_text('{"question": "by hand"}\n')
    if state == "foreign manifest":
        mine.write_text("")  # the manifest alone is in the way
        (out / "manifest.json").write_text('{"by": "another program"}')
    if state == "killed run":
        settings = {"command": "mix", "num_chunks": 3}
        ChunkManifest(format="nanoset_ref.chunks/2", settings=settings).write(out)
    before = {path: path.read_bytes() for path in out.rglob("*.json*")}
    arguments = (tmp_path / "in", out, "a", 8, 4)
    message = "was not written by this command and will not be deleted"
    if state != "killed run":
        message = "no manifest says that this command made it: .* or move it first"
    for overwrite in (False, True):
        with pytest.raises(ManifestError, match=message):
            mix(*arguments, overwrite=overwrite)
    assert {path: path.read_bytes() for path in out.rglob("*.json*")} == before


def test_rows_of_the_original_script_are_not_removed(tmp_path):
    """They have our names and our form, but no manifest of ours: nobody knows whose they are."""
    write_subset(tmp_path / "in", "a", 40)
    mix(tmp_path / "in", tmp_path / "out", "a", 4, 2)
    (tmp_path / "out/manifest.json").unlink()
    before = read_mix(tmp_path / "out")
    for overwrite in (False, True):
        with pytest.raises(
            ManifestError, match="train exists, and no manifest says that"
        ):
            mix(tmp_path / "in", tmp_path / "out", "a", 2, 0, overwrite=overwrite)
        assert read_mix(tmp_path / "out") == before


@pytest.mark.parametrize("record", [True, False])
def test_only_token_files_that_were_made_from_a_chunk_go_with_it(tmp_path, record):
    write_subset(tmp_path / "in", "a", 40)
    mix(tmp_path / "in", tmp_path / "out", "a", 4, 0)
    [chunk, *_] = chunk_files(tmp_path / "out")
    converted = Path(chunk_tokens(chunk, 300).path)
    if record:
        mix(tmp_path / "in", tmp_path / "out", "a", 2, 0, overwrite=True)
        assert not converted.exists()
        return
    converted.with_suffix(".made_of").unlink()
    with pytest.raises(
        ManifestError, match="_input_ids.* was not written by this command"
    ):
        mix(tmp_path / "in", tmp_path / "out", "a", 2, 0, overwrite=True)
    assert converted.exists()


@pytest.mark.parametrize("lines", ["mine\n", "[1]\n" * 5, ""])
def test_a_foreign_chunk_is_not_taken_for_one_of_an_interrupted_mix(
    tmp_path, monkeypatch, lines
):
    write_subset(tmp_path / "in", "a", 40)
    arguments = (tmp_path / "in", tmp_path / "out", "a", 8, 4)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FileEntry, "of", Mock(side_effect=KeyboardInterrupt))
        mix(*arguments)
    foreign = tmp_path / "out/train/train_2.jsonl"
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text(lines)
    with pytest.raises(
        ManifestError, match="train_2.jsonl does not have the lines that this"
    ):
        mix(*arguments)
    assert foreign.read_text() == lines
    foreign.unlink()
    assert mix(*arguments).files["train/train_2.jsonl"].lines == 4


def test_two_mixes_do_not_fill_one_folder_at_once(tmp_path, monkeypatch):
    write_subset(tmp_path / "in", "a", 40)
    whole = mix(tmp_path / "in", tmp_path / "whole", "a", 4, 4)
    real = FileEntry.of

    def meets_another(path, lines):
        monkeypatch.setattr(FileEntry, "of", real)
        for seed in (0, 1):
            with pytest.raises(
                ManifestError,
                match="another run is filling .*out, or has just filled it: run this again",
            ):
                mix(tmp_path / "in", tmp_path / "out", "a", 4, 4, random_seed=seed)
        return real(path, lines)

    monkeypatch.setattr(FileEntry, "of", meets_another)
    assert mix(tmp_path / "in", tmp_path / "out", "a", 4, 4) == whole
    assert read_mix(tmp_path / "out") == read_mix(tmp_path / "whole")


def test_a_complete_mix_is_not_made_again_and_not_overwritten_unasked(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_subset(tmp_path / "in", "a", 40)
    first = mix(tmp_path / "in", tmp_path / "out", "a", 4, 0)
    stamp = (tmp_path / "out/train/train_0.jsonl").stat().st_mtime_ns
    assert (
        mix("in", "out", " in/a/", 4, 0) == first
    )  # with or without the root, as the documentation has it
    assert (tmp_path / "out/train/train_0.jsonl").stat().st_mtime_ns == stamp
    with pytest.raises(ManifestError, match="num_chunks differ"):
        mix(tmp_path / "in", tmp_path / "out", "a", 2, 0)
    mix(tmp_path / "in", tmp_path / "out", "a", 2, 0, overwrite=True)
    assert sorted(read_mix(tmp_path / "out")) == [
        "train/train_0.jsonl",
        "train/train_1.jsonl",
        "valid/a.jsonl",
    ]


def test_a_mix_of_other_rows_of_the_same_size_is_another_one(tmp_path):
    write_subset(tmp_path / "in", "a", 40)
    mix(tmp_path / "in", tmp_path / "out", "a", 4, 0)
    rows = tmp_path / "in/a/train.jsonl"
    rows.write_text(rows.read_text().replace('"a"', '"Z"', 1))
    with pytest.raises(ManifestError, match="subsets differ"):
        mix(tmp_path / "in", tmp_path / "out", "a", 4, 0)
    mix(tmp_path / "in", tmp_path / "out", "a", 4, 0, overwrite=True)
    assert '"Z"' in (tmp_path / "out/train/train_0.jsonl").read_text()


@pytest.mark.parametrize(
    "name",
    [
        "train/thesis.tex",
        "train/deep/train_0.jsonl",
        "valid/notes.txt",
        "train/link.jsonl",
    ],
)
def test_files_of_others_stay_when_chunks_are_overwritten(tmp_path, name):
    write_subset(tmp_path / "in", "a", 40)
    mix(tmp_path / "in", tmp_path / "out", "a", 4, 0)
    foreign = tmp_path / "out" / name
    foreign.parent.mkdir(exist_ok=True)
    foreign.symlink_to(
        tmp_path / "in/a/train.jsonl"
    ) if "link" in name else foreign.write_text("mine")
    before = read_mix(tmp_path / "out"), foreign.read_text()
    with pytest.raises(
        ManifestError,
        match=f"{name} was not written by this command and will not be deleted",
    ):
        mix(tmp_path / "in", tmp_path / "out", "a", 2, 0, overwrite=True)
    assert (read_mix(tmp_path / "out"), foreign.read_text()) == before


def test_wrong_inputs_are_errors_before_anything_is_written(tmp_path):
    for name in ("a", "a.jsonl/b"):
        write_subset(tmp_path / "in", name, 4)
    for name, end in (("blank", "\n"), ("blank of Windows", "\r\n")):
        (tmp_path / "in" / name).mkdir()
        (tmp_path / "in" / name / "train.jsonl").write_text(
            '{"token_ids": [1]}\n\n{"token_ids": [2]}\n', newline=end
        )
    for arguments, error, message in [
        (("a", 0, 0), ValueError, "num_chunks must be at least 1"),
        (("a", 5, 0), ValueError, "make fewer"),
        (("a", 1, 5), ValueError, "fewer than the 5"),
        (("a,a", 1, 0), ValueError, "every subset once"),
        (("a,a.jsonl/b", 1, 0), ValueError, "valid/a.jsonl would be the file of one"),
        (("missing", 1, 0), FileNotFoundError, "no subset 'missing'"),
        (("../other", 1, 0), FileNotFoundError, "no subset"),
        (("blank", 1, 0), ValueError, "train.jsonl:2: a blank line"),
        (("blank of Windows", 1, 0), ValueError, "train.jsonl:2: a blank line"),
        (("a", 1, 0, -1), ValueError, "random_seed must be at least 0, got -1"),
        (("a", 1, 0, 2**32), ValueError, r"random_seed must be below 2\*\*32"),
    ]:
        with pytest.raises(error, match=message):
            mix(
                tmp_path / "in",
                tmp_path / "out",
                *arguments[:3],
                random_seed=sum(arguments[3:]),
            )
        assert not (tmp_path / "out").exists()


def test_unfinished_changed_and_unlike_subsets_are_refused(tmp_path):
    said = ChunkManifest(format="nanoset_ref.chunks/2", settings={})
    facts = RowFacts(concat_tokens=2, tokenizer="t", vocab_size=9, eos_token_id=1)
    for name, change in (("a", {}), ("b", {"concat_tokens": 3})):
        write_subset(tmp_path / "in", name, 4)
        path = tmp_path / "in" / name / "train.jsonl"
        files = {"train.jsonl": FileEntry.of(path, 4)}
        said.finish(path.parent, facts=facts.model_copy(update=change), files=files)
    with pytest.raises(
        ManifestError, match="do not go together.*concat_tokens=2.*concat_tokens=3"
    ):
        mix(tmp_path / "in", tmp_path / "out", "a,b", 2, 0)
    assert mix(tmp_path / "in", tmp_path / "out", "a", 2, 0).facts.vocab_size == 9
    path = tmp_path / "in/a/train.jsonl"
    path.write_text(
        path.read_text().replace("[3, 3]", "[3, 4]")
    )  # as many lines and bytes as before
    with pytest.raises(
        ManifestError,
        match="train.jsonl: changed: its checksum differs from the manifest's",
    ):
        mix(tmp_path / "in", tmp_path / "other", "a", 2, 0)
    said.write(tmp_path / "in/b")
    with pytest.raises(ManifestError, match="not finished"):
        mix(tmp_path / "in", tmp_path / "other", "b", 2, 0)
