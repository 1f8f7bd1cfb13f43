"""plain.py alone gives what the real Nanotron, Megatron-Core, datatrove and the others returned."""

import ast
import doctest
import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest

from nanoset_ref import plain


def sha256(arrays, dtype=None):
    return hashlib.sha256(
        b"".join(np.asarray(array, dtype=dtype).tobytes() for array in arrays)
    ).hexdigest()


def jsons(golden, name):
    return json.loads((golden / name).read_text())


def npz(golden, name):
    return np.load(golden / name, allow_pickle=False)


def pairs_in(arrays, prefix):
    """A recorded pair of indexes, int64 [n, 2]."""
    return np.column_stack(
        [arrays[f"{prefix}dataset_index"], arrays[f"{prefix}dataset_sample_index"]]
    )


def test_every_worked_example():
    results = doctest.testmod(plain)
    assert results.failed == 0
    functions = [
        value
        for value in vars(plain).values()
        if getattr(value, "__module__", "") == plain.__name__
    ]
    assert results.attempted > len(functions) > 20


def test_it_needs_numpy_and_the_standard_library_alone():
    tree = ast.parse(Path(plain.__file__).read_text())
    names = [
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    ]
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))
    assert set(names) == {"bisect", "heapq", "itertools", "math", "numpy"}


# ---- Nanotron


@np.errstate(invalid="ignore")
def test_nanotron_order(golden):
    index, arrays = (
        jsons(golden, "nanoset_index.json"),
        npz(golden, "nanoset_index.npz"),
    )
    cases = [case for case in index["cases"] if "error" not in case]
    assert len(cases) == 39
    for case in cases:
        weights = case["weights"] and [float(weight) for weight in case["weights"]]
        epoch = plain.nanotron_order(case["dataset_lengths"], weights, case["seed"])
        repeated = [plain.nanotron_at(k, epoch) for k in range(case["len"])]
        assert repeated == list(
            map(tuple, pairs_in(arrays, f"{case['id']}_").tolist())
        ), case["id"]
    for case in index["helper_only_cases"]:
        blend = plain.greedy_blend(np.array(case["raw_weights"]), case["n_samples"])
        blend[:, 1] %= np.array(case["dataset_lengths"])[blend[:, 0]]
        assert np.array_equal(blend, pairs_in(arrays, f"{case['id']}_helper_"))


def test_nanotron_batches(golden, tmp_path):
    loaders = 0
    for config in jsons(golden, "nanoset_batches.json")["configs"]:
        files, length = [], config["len"]
        for number, file in enumerate(config["files"]):
            ids = (np.arange(file["num_tokens"]) * 2654435761 + file["salt"]) % config[
                "vocab"
            ]
            path = tmp_path / f"{number}_input_ids.npy"
            plain.write_tokens(path, np.array_split(ids, 5), config["token_dtype"])
            assert hashlib.sha256(path.read_bytes()).hexdigest() == file["file_sha256"]
            files.append(plain.read_tokens(path, config["token_dtype"]))
        lengths = [
            plain.count_samples(len(tokens), config["sequence_length"])
            for tokens in files
        ]
        assert lengths == config["dataset_lengths"]
        epoch = plain.nanotron_order(lengths, config["weights"], config["seed"])
        pairs = [plain.nanotron_at(k, epoch) for k in range(length)]
        rows = plain.read_rows(files, pairs, config["sequence_length"])
        assert sha256([rows]) == config["all_samples_sha256"]
        for loader in config["loaders"]:
            size, batch = loader["dp_size"], loader["micro_batch_size"]
            consumed = (
                loader["consumed_train_samples"] // size * size
            )  # upstream rounds down
            left = plain.positions_left(length, consumed, size, batch)
            batches = plain.micro_batches_of_rank(left, loader["dp_rank"], size, batch)
            flat = [k for positions in batches for k in positions]
            assert flat == loader["sample_indices"][: len(flat)]
            assert len(batches) == loader["num_batches"]
            fields = [plain.collate(rows[positions]) for positions in batches]
            ids = [field[key] for field in fields for key in ("input_ids", "label_ids")]
            assert sha256(ids) == loader["all_batches_sha256"]
            loaders += 1
    assert loaders == 26


def test_datatrove_nanoset(golden):
    """Disjoint windows, and documents told apart by their end."""
    arrays = npz(golden, "datatrove/nanotron_nanoset.npz")
    for case in jsons(golden, "datatrove/nanotron_nanoset.json")["cases"]:
        length, eos, id_ = case["sequence_length"], case["eos_token_id"], case["id"]
        folders = []
        for name, files in zip(case["folders"], case["file_orders"], strict=True):
            folder = []
            for file in files:
                path = golden / "datatrove" / name / file
                tokens, ends = (
                    plain.read_tokens(path),
                    plain.read_tokens(f"{path}.index", "<u8"),
                )
                for sample in range(
                    plain.count_samples(len(tokens), length, disjoint=True)
                ):
                    row = plain.read_sample(tokens, sample, length, disjoint=True)
                    starts = np.isin(
                        np.arange(len(row)) + sample * len(row), [0, *ends]
                    )
                    starts[0] = True
                    folder.append(
                        (row, plain.starts_after_eos(row, eos) if eos else starts)
                    )
            folders.append(folder)
        assert [len(folder) for folder in folders] == case["dataset_lengths"]
        epoch = plain.nanotron_order(
            case["dataset_lengths"], case["weights"], case["random_seed"]
        )
        pairs = [plain.nanotron_at(k, epoch) for k in range(case["len"])]
        assert [dataset for dataset, _ in pairs] == arrays[
            f"{id_}/dataset_index"
        ].tolist()
        rows, starts = zip(
            *(folders[dataset][sample] for dataset, sample in pairs), strict=True
        )
        documents = [plain.document_fields(row_starts) for row_starts in starts]
        assert sha256(rows, np.int64) == case["all_samples_sha256"]
        assert (
            sha256([d["position_ids"] for d in documents], np.int64)
            == case["all_positions_sha256"]
        )
        for loader in case["loaders"]:
            if loader["context_parallel_size"] > 1 or not loader["use_doc_masking"]:
                continue
            size, batch = loader["dp_size"], loader["micro_batch_size"]
            left = plain.positions_left(
                case["len"],
                loader["consumed_train_samples"] // size * size,
                size,
                batch,
            )
            positions = plain.micro_batches_of_rank(
                left, loader["dp_rank"], size, batch
            )
            read = [k for micro_batch in positions for k in micro_batch]
            assert (
                sha256([documents[k]["label_mask"] for k in read])
                == loader["sha256"]["label_mask"]
            )
            assert (
                sha256([rows[k][1:] for k in read], np.int64)
                == loader["sha256"]["label_ids"]
            )


# ---- Megatron-Core


def megatron_split(golden, corpus, split, number, num_samples, case):
    """One corpus, one split: its sequences, lengths, epochs and indexes."""
    extra = int(case.get("add_extra_token_to_sequence", True))
    partial = number == 1 and not case.get(
        "drop_last_partial_validation_sequence", True
    )
    sequences = plain.read_megatron(golden / "megatron/corpora" / corpus)
    lengths = [len(sequence) for sequence in sequences]
    first, stop = plain.split_corpus(split or "1,0,0", len(sequences))[
        0 if split is None else number
    ]
    plan = plain.megatron_epochs(
        sum(lengths[first:stop]), num_samples, case["sequence_length"], extra, partial
    )
    indexes = plain.megatron_indexes(
        lengths, (first, stop), plan, case["sequence_length"], case["seed"], extra
    )
    spans = [plain.megatron_spans(k, lengths, indexes, extra) for k in range(plan[1])]
    rows = [plain.read_spans(sequences, parts) for parts in spans]
    width = case["sequence_length"] + extra
    rows = [
        np.append(row, [3] * (width - len(row))).astype(np.int64) for row in rows
    ]  # 3 is the pad id
    return {
        "range": [first, stop],
        "plan": plan,
        "indexes": indexes,
        "spans": spans,
        "rows": rows,
    }


def check_megatron(found, expected):
    assert found["plan"][:2] == (expected["num_epochs"], expected["len"])
    if "separate_final_epoch" in expected:
        assert (found["plan"][2] < found["plan"][1]) == expected["separate_final_epoch"]
    if expected["indices_begin"] is not None:
        assert found["range"] == [expected["indices_begin"], expected["indices_end"]]
    assert sha256(found["rows"]) == expected["all_text_sha256"]
    ids = [[sequence for sequence, _, _ in spans] for spans in found["spans"]]
    assert sha256(ids, np.int64) == expected["all_document_ids_sha256"]


def test_megatron_indexes_and_samples(golden):
    arrays = npz(golden, "megatron/gpt_index.npz")
    for case in jsons(golden, "megatron/gpt_index.json")["cases"]:
        for expected in case["splits"]:
            number = ("train", "valid", "test").index(expected["split"])
            found = megatron_split(
                golden,
                case["corpus"],
                case["split"],
                number,
                case["sizes"][number],
                case,
            )
            check_megatron(found, expected)
            names = "document_index", "sample_index", "shuffle_index"
            for name, index in zip(names, found["indexes"], strict=True):
                assert np.array_equal(
                    index, arrays[f"{case['id']}/{expected['split']}/{name}"]
                )


def test_megatron_items(golden):
    arrays = npz(golden, "megatron/gpt_items.npz")
    corpora = jsons(golden, "megatron/corpora.json")["corpora"]
    for case in jsons(golden, "megatron/gpt_items.json")["cases"]:
        number = ("train", "valid", "test").index(case["split_name"])
        rows = megatron_split(
            golden, case["corpus"], case["split"], number, None, case
        )["rows"]
        assert len(rows) == case["len"]
        eod, length = corpora[case["corpus"]]["vocab_size"] - 1, case["sequence_length"]
        for k in case["indices"]:
            row = np.where(rows[k] == 3, 0, rows[k])
            documents, one = (
                plain.document_fields(plain.starts_after_eos(rows[k], end))
                for end in (eod, -1)
            )
            kept = (
                documents["label_mask"] if case["eod_mask_loss"] else one["label_mask"]
            )
            expected = {
                "tokens": row[:-1],
                "labels": row[1:],
                "loss_mask": kept & (rows[k][1:] != 3),
                "position_ids": (documents if case["reset_position_ids"] else one)[
                    "position_ids"
                ][:length],
                "attention_mask": (documents if case["reset_attention_mask"] else one)[
                    "attention_mask"
                ][:-1, :-1],
            }
            for name, value in expected.items():
                assert np.array_equal(
                    value, arrays[f"{case['id']}/{k}/{name}"].reshape(value.shape)
                ), name


def test_megatron_blends(golden):
    arrays = npz(golden, "megatron/blend.npz")
    for case in jsons(golden, "megatron/blend.json")["cases"]:
        if "sizes" in case and "corpora" not in case:
            blend = plain.blend_everything(case["sizes"])
        elif "weights_hex" in case:
            blend = plain.greedy_blend(
                np.array([float.fromhex(text) for text in case["weights_hex"]]),
                case["size"],
            )
        else:
            continue
        assert np.array_equal(blend, pairs_in(arrays, f"{case['id']}/"))


def test_megatron_blended_splits(golden):
    arrays, done = npz(golden, "megatron/blend.npz"), 0
    for case in jsons(golden, "megatron/blend.json")["cases"]:
        for number, expected in enumerate(case.get("splits", ())):
            if expected is None:
                continue
            corpora, weights = case.get("corpora"), case.get("weights")
            if case.get("blend_per_split"):
                corpora, weights = case["blend_per_split"][number]
            size, reserves = case["sizes"][number], [None] * len(corpora)
            if expected["type"] == "GPTDataset":
                check_megatron(
                    megatron_split(golden, *corpora, case["split"], number, size, case),
                    expected,
                )
                continue
            if weights:
                taken, reserves = plain.blend_targets(weights, size)
            parts = [
                megatron_split(golden, corpus, case["split"], number, reserve, case)
                for corpus, reserve in zip(corpora, reserves, strict=True)
            ]
            lengths = [len(part["rows"]) for part in parts]
            if weights:
                blend = plain.greedy_blend(plain.normalize(weights), sum(taken))
            elif size is None:
                blend = plain.blend_everything(lengths)
            else:
                blend = plain.greedy_blend(
                    plain.normalize(lengths), min(size, sum(lengths))
                )
            for part, wanted in zip(parts, expected["mid_level"], strict=True):
                assert len(part["rows"]) == wanted["len"]
                assert (
                    sha256([part["indexes"][2]], np.uint32)
                    == wanted["shuffle_index_sha256"]
                )
            assert np.array_equal(
                blend, pairs_in(arrays, f"{case['id']}/{expected['split']}/")
            )
            rows = [parts[corpus]["rows"][sample] for corpus, sample in blend.tolist()]
            items = [half for row in rows for half in (row[:-1], row[1:])]
            assert sha256(items) == expected["all_tokens_labels_sha256"]
            done += 1
    assert done >= 10


# ---- streams and chunks


def test_streams(golden):
    """Upstream: skip lines for everybody, stripe the others over ranks and workers."""
    for case in jsons(golden, "iterable/iterable.json")["cases"]:
        workers = max(case["num_workers"], 1)
        for rank, expected in enumerate(case["ranks"]):
            for number, epoch in enumerate(expected["epochs"]):
                again = number == 0 or "skip is applied again" in case["note"]
                lines = range(
                    expected["skipped_rows"] or 0 if again else 0, case["num_elements"]
                )
                parts = [
                    plain.stripe(lines, rank, case["world_size"], worker, workers)
                    for worker in range(workers)
                ]
                if case.get("generator"):
                    parts = [
                        [
                            element
                            for line in part
                            for element in (line * 10, line * 10 + 1)
                        ]
                        for part in parts
                    ]
                assert (
                    plain.interleave(parts, case.get("batch_size", 1))
                    == epoch["batches"]
                ), case["id"]
    for case in jsons(golden, "iterable/iterable.json")["generators"]:
        if case["function"] == "filter_generator" and case["offset"] < case["step"]:
            assert (
                plain.stripe(range(case["n"]), 0, 1, case["offset"], case["step"])
                == case["out"]
            )


def read_rows(path):
    return [json.loads(line)["token_ids"] for line in path.read_text().splitlines()]


def test_chunks_are_packed(golden):
    documents_of, done = jsons(golden, "amber/document_token_ids.json"), 0
    for run in jsons(golden, "amber/amber.json")["convert_runs"]:
        for subset in run["subfolders"] if "error" not in run else ():
            args = run["args"]
            bos, eos = [1] if args["bos_text"] else [], [2] if args["eos_text"] else []
            documents = iter([bos + ids + eos for ids in documents_of[subset]])
            files = [
                [next(documents) for _ in path.read_text().splitlines()]
                for path in sorted((golden / "amber/input" / subset).glob("*.jsonl"))
            ]
            workers = []  # each packs every N-th file, and they hand over 512 rows in turn
            for worker in range(min(args["num_workers"], len(files))):
                mine = [
                    document
                    for file in files[worker :: args["num_workers"]]
                    for document in file
                ]
                workers.append(
                    plain.concatenate(mine, args["concat_tokens"], not args["no_wrap"])[
                        0
                    ]
                )
            rows = [row for turn in plain.interleave(workers, 512) for row in turn]
            assert rows == read_rows(
                golden / "amber" / run["name"] / subset / "train.jsonl"
            )
            done += 1
    assert done == 12


def test_chunks_are_dealt_out(golden):
    for run in jsons(golden, "amber/amber.json")["mix_runs"]:
        rng = random.Random(run["random_seed"])
        names, chunks = (
            run["subfolders"].split(","),
            [[] for _ in range(run["num_split"])],
        )
        for name in names:
            rows = read_rows(
                golden
                / "amber"
                / run["source_run"]
                / run["subfolder_source"][name]
                / "train.jsonl"
            )
            if "error" in run:
                with pytest.raises(ValueError, match="Sample larger than population"):
                    plain.distribute(
                        rows,
                        run["num_split"],
                        run["num_valid_samples_per_subfolder"],
                        rng,
                    )
                continue
            valid, dealt = plain.distribute(
                rows, run["num_split"], run["num_valid_samples_per_subfolder"], rng
            )
            assert valid == read_rows(
                golden / "amber" / run["name"] / "valid" / f"{name}.jsonl"
            )
            for chunk, part in zip(chunks, dealt, strict=True):
                chunk += part
        for number, chunk in enumerate(chunks if "error" not in run else ()):
            assert chunk == read_rows(
                golden / "amber" / run["name"] / "train" / f"train_{number}.jsonl"
            )
