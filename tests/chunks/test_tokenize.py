"""Tokenizing subsets into rows and token files."""

import json
import os

import numpy as np
import pytest
from chunk_helpers import TEXTS, rows_of, stream_of, write_subsets
from tokenizers import Tokenizer, processors

from nanoset_ref import build_nanoset_dataloader, plain
from nanoset_ref.chunks import chunks_to_tokens, mix, validate
from nanoset_ref.chunks import subset_tokenization as module
from nanoset_ref.chunks.chunk_manifest import ChunkManifest
from nanoset_ref.chunks.subset_tokenization import (
    TokenizeConfig,
    find_subsets,
    tokenize,
)
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.preprocess.json_lines import InputError
from nanoset_ref.tokens import TokenFile, as_text, describe


def test_golden_conversions(golden, tokenizer, tmp_path):
    runs = json.loads((golden / "amber/amber.json").read_text())["convert_runs"]
    assert len(runs) == 6
    for run in runs:
        args = dict(run["args"])
        workers = args.pop("num_workers")
        if "error" in run:
            config = TokenizeConfig(tokenizer=tokenizer, **args)
            with pytest.raises(
                ValueError,
                match="num_workers must be at least 1"
                if not workers
                else "give eos_text",
            ):
                tokenize(
                    golden / "amber/input", tmp_path / "no", config, num_workers=workers
                )
            assert not (tmp_path / "no").exists()
            continue
        config = TokenizeConfig(tokenizer=tokenizer, worker_packing=workers, **args)
        found = tokenize(golden / "amber/input", tmp_path / run["name"], config)
        assert list(found) == run["subfolders"]
        for subset, expected in run["outputs"].items():
            output = tmp_path / run["name"] / subset / "train.jsonl"
            assert (
                output.read_bytes()
                == (
                    golden / "amber" / run["name"] / subset / "train.jsonl"
                ).read_bytes()
            )
            assert found[subset].files["train.jsonl"].lines == expected["lines"]


def test_two_workers_make_the_rows_of_one_from_the_subsets_that_are_named(
    golden, tokenizer, tmp_path
):
    config = TokenizeConfig(tokenizer=tokenizer, concat_tokens=65, eos_text="</s>")
    subset = "redpajama_v1/arxiv"
    assert list(
        tokenize(
            golden / "amber/input", tmp_path, config, num_workers=2, subfolders=subset
        )
    ) == [subset]
    expected = golden / "amber/tokenized" / subset / "train.jsonl"
    assert (tmp_path / subset / "train.jsonl").read_bytes() == expected.read_bytes()
    with pytest.raises(InputError, match="no subset 'c'"):
        tokenize(golden / "amber/input", tmp_path, config, subfolders=f"{subset},c")


def test_every_token_is_accounted_for_with_every_treatment_of_the_tail(
    tokenizer, tmp_path
):
    root = write_subsets(tmp_path / "in")
    b, a = (
        stream_of(tokenizer, TEXTS[name]) for name in ("b", "web/a")
    )  # subsets are taken in sorted order
    rows_of_b, tail_of_b = plain.concatenate([b], 7)
    rows_of_both, tail_of_both = plain.concatenate([b, a], 7)
    for tail in ("drop", "pad", "carry"):
        config = TokenizeConfig(
            tokenizer=tokenizer, concat_tokens=7, eos_text="</s>", tail=tail
        )
        found = tokenize(root, tmp_path / tail, config)
        rows = {
            name: [row["token_ids"] for row in rows_of(tmp_path / tail / name)]
            for name in TEXTS
        }
        in_b, in_a = (found[name].conservation[0] for name in ("b", "web/a"))
        assert (in_b.documents, in_b.separator_tokens, in_b.document_tokens) == (
            2,
            2,
            len(b) - 2,
        )
        assert {row["source"] for row in rows_of(tmp_path / tail / "web/a")} == {
            "web/a"
        }
        if tail == "carry":
            assert rows["b"] + rows["web/a"] == rows_of_both
            assert (
                in_b.carried_out_tokens == in_a.carried_in_tokens == len(tail_of_b) > 0
            )
            assert in_a.carried_out_tokens == len(tail_of_both)
            assert found["web/a"].carried_tail == tail_of_both
            continue
        padding = [2] * (7 - len(tail_of_b)) if tail == "pad" else []
        assert rows["b"] == [*rows_of_b, *[tail_of_b + padding for _ in padding[:1]]]
        assert in_b.tail_tokens == (0 if padding else len(tail_of_b))
        assert in_b.padding_tokens == len(padding)


def test_best_fit_fills_rows_with_whole_documents_from_tokenize_to_batches(
    tokenizer, tmp_path
):
    root = write_subsets(tmp_path / "in")
    config = TokenizeConfig(
        tokenizer=tokenizer, concat_tokens=10, eos_text="</s>", best_fit=True
    )
    found = tokenize(root, tmp_path / "out", config)
    wanted = {}
    for name, texts in TEXTS.items():
        documents = [stream_of(tokenizer, [text]) for text in texts]
        packed = [
            [documents[document][begin:end] for document, begin, end in row]
            for row in plain.best_fit(list(map(len, documents)), 10)
        ]
        rows = rows_of(tmp_path / "out" / name)
        assert [row["document_lengths"] for row in rows] == [
            list(map(len, row)) for row in packed
        ]
        assert [row["token_ids"] for row in rows] == [
            (sum(row, []) + 10 * [2])[:10] for row in packed
        ]
        [account] = found[name].conservation
        assert account.padding_tokens == 10 * len(rows) - sum(map(len, documents)) > 0
        assert (account.cut_tokens, account.tail_tokens, account.samples) == (
            0,
            0,
            len(rows),
        )
        wanted |= {
            tuple(row["token_ids"]): (name, row["document_lengths"]) for row in rows
        }

    mix(tmp_path / "out", tmp_path / "mixed", list(TEXTS), 1, 0, shuffle=True)
    assert all(report.ok for report in validate(tmp_path / "mixed"))
    assert chunks_to_tokens(tmp_path / "mixed", tmp_path / "x_input_ids.npy") == len(
        wanted
    )
    dataset = Nanoset(tmp_path / "x_input_ids.npy", None, 9, None)
    [batch] = build_nanoset_dataloader(dataset, micro_batch_size=len(dataset))
    pieces = sum(len(lengths) for _, lengths in wanted.values())
    for k, (ids, starts) in enumerate(
        zip(
            dataset.read(np.arange(len(dataset))),
            dataset.starts(np.arange(len(dataset))),
            strict=True,
        )
    ):
        name, lengths = wanted.pop(tuple(ids.tolist()))
        edges = [*np.cumsum([0, *lengths[:-1]]), *range(sum(lengths), 10)]
        assert np.flatnonzero(starts).tolist() == edges
        assert batch["label_mask"][k].tolist() == (~starts[1:]).tolist()
        labels = [dataset.files[0].label_of(span.document) for span in dataset.spans(k)]
        assert labels == [name] * len(lengths)  # padding belongs to no document
    assert not wanted
    found = describe(dataset.files[0])
    assert (found["num_documents"], found["shortest"]) == (pieces, 1)
    texts = [text for subset in TEXTS.values() for text in subset]
    padding = 10 * len(dataset) - len(stream_of(tokenizer, texts))
    assert found["padding_tokens"] == padding
    assert f"{pieces} documents and {padding} tokens of padding" in as_text(found)


def test_a_worker_of_the_original_script_may_fill_no_row(tokenizer, tmp_path):
    config = TokenizeConfig(tokenizer=tokenizer, eos_text="</s>", worker_packing=1)
    [account] = tokenize(
        write_subsets(tmp_path / "in"), tmp_path / "out", config, subfolders="b"
    )["b"].conservation
    assert rows_of(tmp_path / "out/b") == []
    assert account.tail_tokens == len(stream_of(tokenizer, TEXTS["b"]))


@pytest.mark.parametrize("format", ["tokens", "both"])
def test_the_direct_road_leaves_a_token_file_that_a_nanoset_reads(
    tokenizer, tmp_path, format
):
    root = write_subsets(tmp_path / "in")
    config = TokenizeConfig(
        tokenizer=tokenizer, concat_tokens=4, eos_text="</s>", format=format
    )
    found = tokenize(root, tmp_path / "out", config)
    paths = [tmp_path / "out" / name / "train_input_ids.npy" for name in TEXTS]
    for name, path in zip(TEXTS, paths, strict=True):
        file = TokenFile(path)
        assert file.tokens.tolist() == stream_of(tokenizer, TEXTS[name])
        assert (
            file.manifest.num_documents == len(TEXTS[name])
            and file.manifest.appended_eod
        )
        rows = (
            [row["token_ids"] for row in rows_of(path.parent)]
            if format == "both"
            else []
        )
        assert sum(rows, []) == file.tokens.tolist()[: 4 * len(rows)]
        assert found[name].conservation[0].written_tokens == (
            4 * len(rows) or file.num_tokens
        )
        assert (path.parent / "train.jsonl").exists() == (format == "both")
    assert Nanoset(paths, [3, 1], 4, 20)[0]["input_ids"].shape == (5,)


@pytest.mark.parametrize("line", [1, 3])
def test_a_document_that_cannot_be_read_stops_or_is_counted_and_hides_no_column(
    tokenizer, tmp_path, line
):
    root = write_subsets(tmp_path / "in", {"a": ["one two", "three"]}, column="content")
    path = root / "a/x.jsonl"
    path.write_text(
        "{bad\n" + path.read_text() if line == 1 else path.read_text() + "{bad\n"
    )
    options = {"tokenizer": tokenizer, "eos_text": "</s>", "concat_tokens": 4}
    with pytest.raises(InputError, match=f"x.jsonl:{line}: not JSON"):
        tokenize(root, tmp_path / "out", TokenizeConfig(**options))
    assert not list((tmp_path / "out").rglob("train*"))
    found = tokenize(
        root, tmp_path / "out", TokenizeConfig(on_error="skip", **options)
    )["a"]
    [account] = found.conservation
    assert (account.documents, account.skipped_documents) == (2, 1)


def test_files_with_other_column_names_lie_side_by_side_and_no_document_is_lost(
    tokenizer, tmp_path
):
    root = write_subsets(tmp_path / "in", {"a": ["one two"] * 100}, column="content")
    (root / "a/y.jsonl").write_text('{"text": "three"}\n' * 5)
    options = {
        "tokenizer": tokenizer,
        "eos_text": "</s>",
        "concat_tokens": 4,
        "on_error": "skip",
    }
    [account] = tokenize(root, tmp_path / "out", TokenizeConfig(**options))[
        "a"
    ].conservation
    assert (account.documents, account.skipped_documents) == (105, 0)
    [account] = tokenize(
        root, tmp_path / "named", TokenizeConfig(column="content", **options)
    )["a"].conservation
    assert (account.documents, account.skipped_documents) == (100, 5)


@pytest.mark.parametrize(("mode", "ends"), [("keep", 4), ("split", 3)])
def test_special_tokens_of_documents_are_kept_and_counted_or_split(
    tokenizer, tmp_path, mode, ends
):
    root = write_subsets(tmp_path / "in", {"a": ["one </s> two", "</s>"[1:], "three"]})
    config = TokenizeConfig(
        tokenizer=tokenizer, eos_text="</s>", format="tokens", special_tokens=mode
    )
    [account] = tokenize(root, tmp_path / "out", config)["a"].conservation
    assert (TokenFile(tmp_path / "out/a/train_input_ids.npy").tokens == 2).sum() == ends
    assert (account.special_documents, account.special_tokens) == (
        (1, 1) if mode == "keep" else (0, 0)
    )
    with pytest.raises(
        InputError, match=r"a/x.jsonl:1: the document holds the special token '</s>'"
    ):
        tokenize(
            root,
            tmp_path / "no",
            TokenizeConfig(
                tokenizer=tokenizer, eos_text="</s>", special_tokens="refuse"
            ),
        )


def test_subsets_are_the_folders_with_text_files(tmp_path):
    names = "a/x.jsonl a/y.json a/b/z.parquet c/README.md .git/q.jsonl d/_hidden.jsonl out/e/x.jsonl root.json"
    for name in names.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "made").mkdir()
    ChunkManifest(format="nanoset_ref.chunks/2", settings={}).write(tmp_path / "made")
    (tmp_path / "made/train.jsonl").touch()
    found = find_subsets(tmp_path, tmp_path / "out")
    assert {name: [file.name for file in files] for name, files in found.items()} == {
        "a": ["x.jsonl", "y.json"],
        "a/b": ["z.parquet"],
    }
    with pytest.raises(InputError, match="has a file that ends in"):
        find_subsets(tmp_path / "c", tmp_path / "out")
    with pytest.raises(InputError, match="give another out_root"):
        find_subsets(tmp_path / "a", tmp_path / "c/../a")


@pytest.mark.parametrize("name", [b"a/x\xff.jsonl", b"a\xff/x.jsonl"])
def test_a_name_that_is_not_utf_8_is_refused_before_the_work(
    name, tmp_path, monkeypatch
):
    path = tmp_path / os.fsdecode(name)  # some filesystems do not take it
    monkeypatch.setattr(module, "text_files", lambda _: [path])
    with pytest.raises(InputError, match=f"{path} has a name .* UTF-8.*; rename it"):
        find_subsets(tmp_path, tmp_path / "out")


def test_a_tokenizer_that_adds_bos_by_itself_separates_documents(golden, tmp_path):
    loaded = Tokenizer.from_file(str(golden / "tokenizer/tokenizer.json"))
    loaded.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    loaded.save(str(tmp_path / "tokenizer.json"))
    texts = ["one two", "three"]
    root = write_subsets(tmp_path / "in", {"a": texts})
    for eos_text, eos in (("", []), ("</s>", [2])):
        config = TokenizeConfig(
            tokenizer=str(tmp_path / "tokenizer.json"),
            concat_tokens=2,
            eos_text=eos_text,
        )
        out = tmp_path / f"out{len(eos)}"
        tokenize(root, out, config)
        found = [token for row in rows_of(out / "a") for token in row["token_ids"]]
        assert (
            found
            == stream_of(str(golden / "tokenizer"), texts, eos=eos, bos=(1,))[
                : len(found)
            ]
        )


def test_configurations_are_checked_at_once():
    for options, message in (
        ({"concat_tokens": 1}, "concat_tokens must be at least 2"),
        ({"tail": "lose"}, "^tail must be one of .'drop', .*, got 'lose'"),
        ({"format": "csv"}, "^format must be one of .'jsonl', .*, got 'csv'"),
        ({"backend": "sp"}, "^backend must be one of .'auto', .*, got 'sp'"),
        ({"worker_packing": 2, "tail": "pad"}, "worker_packing goes with"),
        *(
            ({"best_fit": True, **other}, "best_fit goes without")
            for other in (
                {"no_wrap": True},
                {"tail": "carry"},
                {"worker_packing": 2},
                {"format": "tokens"},
            )
        ),
    ):
        with pytest.raises(ValueError, match=message):
            TokenizeConfig(tokenizer="t", **options)
