"""Tokenizing into a folder that holds something: finished subsets, other settings, other runs, files of one's own."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from chunk_helpers import rows_of, write_subsets

from nanoset_ref.chunks import mix
from nanoset_ref.chunks import subset_tokenization as module
from nanoset_ref.chunks.chunk_manifest import ChunkManifest, ManifestError
from nanoset_ref.chunks.subset_tokenization import TokenizeConfig, tokenize
from nanoset_ref.tokens import TokenFileWriter


def test_a_finished_subset_is_skipped_and_an_unfinished_one_starts_over(
    tokenizer, tmp_path, monkeypatch
):
    root = write_subsets(tmp_path / "in")
    config = TokenizeConfig(
        tokenizer=tokenizer, concat_tokens=4, eos_text="</s>", tail="carry"
    )
    whole = tokenize(root, tmp_path / "whole", config)
    real, calls = module.tokenize_documents, []

    def interrupted(*args, **options):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(module, "tokenize_documents", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tokenize(root, tmp_path / "out", config)
    mine = tmp_path / "out/web/a/training_notes_input_ids.txt"
    mine.write_text("mine")
    assert (
        not (tmp_path / "out/web/a/train.jsonl").exists()
        and not ChunkManifest.read(tmp_path / "out/web/a").complete
    )
    stamp = (tmp_path / "out/b/train.jsonl").stat().st_mtime_ns
    assert tokenize(root, tmp_path / "out", config) == whole
    assert (
        len(calls) == 3 and (tmp_path / "out/b/train.jsonl").stat().st_mtime_ns == stamp
    )
    assert rows_of(tmp_path / "out/web/a") == rows_of(tmp_path / "whole/web/a")
    assert mine.read_text() == "mine"


def test_a_subset_that_another_run_fills_is_left_alone(
    tokenizer, tmp_path, monkeypatch
):
    root = write_subsets(tmp_path / "in")
    call = root, tmp_path / "out"
    other = TokenizeConfig(tokenizer=tokenizer, concat_tokens=5, eos_text="</s>")
    config = dataclasses.replace(other, concat_tokens=4)
    whole = tokenize(root, tmp_path / "whole", config)
    real = module.tokenize_documents

    def meets_another(*args, **options):
        monkeypatch.setattr(module, "tokenize_documents", real)
        for settings in (config, other):
            with pytest.raises(
                ManifestError,
                match="another run is filling .*out/b, or has just filled it: run this again",
            ):
                tokenize(*call, settings)
        return real(*args, **options)

    monkeypatch.setattr(module, "tokenize_documents", meets_another)
    assert tokenize(*call, config) == whole


def test_other_settings_or_other_files_are_not_mixed_in_one_folder(tokenizer, tmp_path):
    root = write_subsets(tmp_path / "in")
    config = {"tokenizer": tokenizer, "eos_text": "</s>"}
    tokenize(
        root, tmp_path / "out", TokenizeConfig(concat_tokens=4, format="both", **config)
    )
    renamed = str(shutil.copytree(tokenizer, tmp_path / "tokenizer"))
    with pytest.raises(
        ManifestError, match=r"\(tokenizer, concat_tokens, format differ\)"
    ):
        tokenize(
            root,
            tmp_path / "out",
            TokenizeConfig(concat_tokens=5, **config | {"tokenizer": renamed}),
        )
    tokenize(
        root,
        tmp_path / "out",
        TokenizeConfig(concat_tokens=5, **config),
        overwrite=True,
    )
    assert sorted(path.name for path in (tmp_path / "out/b").iterdir()) == [
        ".manifest.lock",
        "manifest.json",
        "train.jsonl",
    ]
    path = root / "b/x.jsonl"
    before = path.read_text()
    for changed in (
        before + '{"text": "more"}\n',
        before.replace('": "', '":" '),
    ):  # the second is of equal size
        path.write_text(changed)
        with pytest.raises(ManifestError, match="files differ"):
            tokenize(root, tmp_path / "out", TokenizeConfig(concat_tokens=5, **config))


def test_a_tokenizer_of_the_same_name_that_encodes_otherwise_is_not_mixed_in(
    tokenizer, tmp_path
):
    root = write_subsets(tmp_path / "in")
    folder = shutil.copytree(tokenizer, tmp_path / "tokenizer")
    config = TokenizeConfig(tokenizer=str(folder), concat_tokens=4, eos_text="</s>")
    tokenize(root, tmp_path / "out", config, subfolders="b")
    path = folder / "tokenizer.json"
    definition = json.loads(path.read_text())
    vocabulary = definition["model"]["vocab"]
    e, n = vocabulary["e"], vocabulary["n"]
    vocabulary["e"], vocabulary["n"] = n, e
    path.write_text(json.dumps(definition))
    with pytest.raises(ManifestError, match=r"\(encodes_as differ\)"):
        tokenize(root, tmp_path / "out", config)
    found = tokenize(root, tmp_path / "out", config, subfolders="web/a")
    with pytest.raises(ManifestError, match="do not go together.*tokenizer_identity"):
        mix(tmp_path / "out", tmp_path / "mixed", "b,web/a", 1, 0)
    # a manifest of before this field cannot tell: its subset is complete, and goes with others
    old = json.loads((tmp_path / "out/b/manifest.json").read_text())
    del old["settings"]["encodes_as"], old["facts"]["tokenizer_identity"]
    (tmp_path / "out/b/manifest.json").write_text(json.dumps(old))
    assert tokenize(root, tmp_path / "out", config)["b"].settings == old["settings"]
    mixed = mix(tmp_path / "out", tmp_path / "mixed", "b,web/a", 1, 0)
    assert mixed.facts == found["web/a"].facts


def test_a_changed_padding_id_is_another_setting(tokenizer, tmp_path):
    root = write_subsets(tmp_path / "in")
    folder = shutil.copytree(tokenizer, tmp_path / "tokenizer")
    config = TokenizeConfig(
        tokenizer=str(folder), concat_tokens=9, eos_text="</s>", best_fit=True
    )
    tokenize(root, tmp_path / "out", config)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token": "<s>"}))
    with pytest.raises(ManifestError, match=r"\(encodes_as differ\)"):
        tokenize(root, tmp_path / "out", config)


@pytest.mark.parametrize("beside", ["nothing of ours", "complete rows"])
def test_a_token_file_of_ones_own_with_a_name_of_ours_is_not_removed(
    tokenizer, tmp_path, beside
):
    root = write_subsets(tmp_path / "in")
    options = {"tokenizer": tokenizer, "eos_text": "</s>"}
    if beside == "complete rows":
        tokenize(root, tmp_path / "out", TokenizeConfig(concat_tokens=4, **options))
    folder = tmp_path / "out/b"
    folder.mkdir(parents=True, exist_ok=True)
    with TokenFileWriter(folder / "train_input_ids.npy", dtype="uint16") as writer:
        writer.write_document([1, 2, 3])
    before = {path: path.read_bytes() for path in folder.iterdir()}
    config = TokenizeConfig(concat_tokens=5, **options)
    with pytest.raises(
        ManifestError,
        match="no manifest says|_input_ids.* was not written by this command",
    ):
        tokenize(root, tmp_path / "out", config, subfolders="b", overwrite=True)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    "line",
    [
        '{"text": "my own corpus"}',
        "[1, 2]",
        "mine",
        '{"token_ids": [1, 2, 3], "source": "of the Amber script"}',
    ],
)
def test_a_file_of_ones_own_with_the_name_of_rows_is_not_replaced(
    tokenizer, tmp_path, line
):
    root = write_subsets(tmp_path / "in")
    config = TokenizeConfig(concat_tokens=4, tokenizer=tokenizer, eos_text="</s>")
    mine = tmp_path / "out/b/train.jsonl"
    mine.parent.mkdir(parents=True)
    mine.write_text(line)
    for overwrite in (False, True):
        with pytest.raises(
            ManifestError, match="train.jsonl exists, and no manifest says"
        ):
            tokenize(root, tmp_path / "out", config, overwrite=overwrite)
        assert mine.read_text() == line


def test_a_run_killed_while_it_removes_old_files_is_called_again(
    tokenizer, tmp_path, monkeypatch
):
    """Whichever of them are left, the next run knows them for its own."""
    root = write_subsets(tmp_path / "in")
    options = {"tokenizer": tokenizer, "eos_text": "</s>", "format": "both"}
    old, new = (TokenizeConfig(concat_tokens=length, **options) for length in (4, 5))
    unlink = Path.unlink
    removals = 0
    while True:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        tokenize(root, tmp_path / "out", old)
        left = iter(range(removals))

        def killed(path, missing_ok=False, left=left):
            if path.name.startswith("train") and next(left, None) is None:
                raise SystemExit
            unlink(path, missing_ok=missing_ok)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", killed)
            try:
                tokenize(root, tmp_path / "out", new, overwrite=True)
                break
            except SystemExit:
                removals += 1
        made = tokenize(root, tmp_path / "out", new, overwrite=True)
        assert all(manifest.complete for manifest in made.values())
    assert removals >= 8  # four files of each subset
