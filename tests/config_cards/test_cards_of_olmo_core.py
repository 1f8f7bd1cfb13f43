"""Cards from configs of OLMo-core: chunks, packed rows, named mixes, and what changes rows in training."""

import json
from pathlib import Path

import numpy as np
import pytest
from loader_configs import OLMO, card
from token_files import write_range

from nanoset_ref import Card, Nanoset
from nanoset_ref.cli import main
from nanoset_ref.tokens import TokenFileWriter


def test_olmo_core_reads_chunks_of_the_files_it_names(tmp_path):
    paths = [
        str(write_range(tmp_path / f"{k}.npy", size)) for k, size in enumerate((70, 41))
    ]
    config = json.loads(json.dumps(OLMO))
    config["dataset"]["paths"] = paths
    found = card(tmp_path, "olmo-core", json.dumps(config))
    assert found.facts["dtype"] == "uint16" and found.last_step == 6, (
        "90 tokens of 16 a step"
    )
    order = "olmo_core:chunk_size=2,batch_size=4"
    rows = Nanoset(
        paths, None, 3, 24, 5, order=order, disjoint=True, token_dtype="uint16"
    )
    read = [(row.source, row.sample) for row in found.where(2)]
    assert read == [rows.order[k] for k in range(4, 8)]
    config["dataset"]["_CLASS_"] = "olmo_core.data.numpy_dataset.NumpyVSLDatasetConfig"
    with pytest.raises(ValueError, match="not NumpyVSLDatasetConfig"):
        card(tmp_path, "olmo-core", json.dumps(config))


def packed_run(golden, tmp_path, number):
    """The files of a recorded run that OLMo-core packed, its card, and its rows step by step."""
    folder = golden / "olmo_core_packed"
    case = json.loads((folder / "packed.json").read_text())[number]
    paths = [str(tmp_path / f"{file}.npy") for file in range(len(case["files"]))]
    with np.load(folder / "packed.npz") as members:
        rows = members[f"{number}/rows"]
        for file, path in enumerate(paths):
            members[f"{number}/file{file}"].tofile(path)
    read = [rows[place] for epoch in case["read"] for place in epoch]
    length = case["sequence_length"]
    config = {
        "dataset": {
            "_CLASS_": "olmo_core.data.numpy_dataset.NumpyPackedFSLDatasetConfig",
            "paths": paths,
            "sequence_length": length,
            "long_doc_strategy": case["strategy"],
            "source_group_size": case["group_size"],
            "source_permutation_seed": case["permutation_seed"],
            "tokenizer": {"vocab_size": 65000, "eos_token_id": 0, "pad_token_id": 0},
        },
        "data_loader": {
            "global_batch_size": case["batch"] * length,
            "seed": case["seed"],
        },
        "trainer": {
            "max_duration": {"value": len(read) // case["batch"], "unit": "steps"}
        },
    }
    found = card(tmp_path, "olmo-core", json.dumps(config), name="config.json")
    return found, paths, np.array(read).reshape(-1, case["batch"], length)


def test_rows_that_olmo_core_packs_are_read_from_its_files(golden, tmp_path, capsys):
    found, paths, read = packed_run(golden, tmp_path, 3)  # the case without ties
    for rows, theirs in zip(found.replay(1, paths), read, strict=True):
        assert np.array_equal(rows, theirs)
    with pytest.raises(
        ValueError, match=r"packed from whole documents: give the files \(--data\)"
    ):
        found.where(1)
    path = tmp_path / "card.json"
    path.write_text(json.dumps(found.facts))
    run = ["--run", str(path), "--data", *paths]
    main(["where", "3", "--json", *run])
    for row, theirs in zip(json.loads(capsys.readouterr().out), read[2], strict=True):
        pieces = []
        for part in row["parts"]:
            with open(paths[part["source"]], "rb") as file:
                pieces.append(file.read()[part["first_byte"] : part["end_byte"]])
            assert part["candidates"] == 1
            main(
                [
                    "when",
                    *run,
                    "--source",
                    str(part["source"]),
                    "--document",
                    str(part["document"]),
                ]
            )
            assert (
                f"step 3, rank 0 micro-batch 0 row {row['slot']['row']}"
                in capsys.readouterr().out
            )
        ids = np.frombuffer(b"".join(pieces), np.uint16)
        assert np.array_equal(np.trim_zeros(ids, "b"), np.trim_zeros(theirs, "b"))
    main(["audit", *run])


def test_an_empty_document_is_refused_by_its_file_and_number(golden, tmp_path):
    found, paths, _ = packed_run(golden, tmp_path, 3)
    ids = np.fromfile(paths[1], np.uint16) + 1
    Path(paths[1]).unlink()
    with TokenFileWriter(paths[1], dtype="uint16", eos_token_id=0) as writer:
        writer.write(ids, [3, 0, len(ids) - 3])
    message = f"{paths[1]}: document 1 has no tokens.*write the file without it"
    with pytest.raises(ValueError, match=message):
        found.replay(1, paths)


@pytest.mark.parametrize("number", [0, 1, 2, 4])
def test_rows_whose_documents_are_uncertain_say_so(golden, tmp_path, capsys, number):
    found, paths, read = packed_run(golden, tmp_path, number)
    path = tmp_path / "card.json"
    path.write_text(json.dumps(found.facts))
    certain = 0
    for step, (rows, theirs) in enumerate(
        zip(found.replay(1, paths), read, strict=True), 1
    ):
        main(["where", "--json", str(step), "--run", str(path), "--data", *paths])
        found_rows = json.loads(capsys.readouterr().out)
        for row, ids, expected in zip(found_rows, rows, theirs, strict=True):
            if all(part["candidates"] == 1 for part in row["parts"]):
                assert np.array_equal(ids, expected)
                certain += 1
    assert certain
    main(["where", "1", "--run", str(path), "--data", *paths])
    assert (
        "documents of this length: which one depends on NumPy's version"
        in capsys.readouterr().out
    )


def test_the_mix_of_olmo_core_is_named_by_its_list(tmp_path):
    config = json.loads(json.dumps(OLMO))
    config["dataset"] |= {
        "mix": "OLMoE-mix-0824",
        "mix_base_dir": "https://olmo-data.org/",
    }
    config["trainer"]["max_duration"] = {"value": 1, "unit": "epochs"}
    with pytest.raises(
        ValueError, match="steps .*; files .*--given steps=... files=..."
    ):
        card(tmp_path, "olmo-core", json.dumps(config))
    found = card(tmp_path, "olmo-core", json.dumps(config), steps=10, files=1122)
    shipped = Card.load("olmo-2-32b").facts["listed"]
    for field in ("files", "pattern", "address", "tokenizer"):
        assert found.facts["listed"][field] == shipped[field]


@pytest.mark.parametrize(
    ("mix", "tokenizer", "folder"),
    [
        ("OLMo-mix-0625-official", "dolma2-tokenizer", "allenai/dolma3-tokenizer"),
        ("OLMo-longmino-mix-0925", "dolma2-tokenizer", "allenai/dolma3-tokenizer"),
        (
            "OLMo-midtraining-mix-0625-100B",
            "gpt-neox-olmo-dolma-v1_5",
            "allenai/gpt-neox-olmo-dolma-v1_5",
        ),
        ("OLMo-mix-0625", "dolma2-tokenizer", "allenai/dolma2-tokenizer"),
        ("OLMo-mix-0625", "dolma2-tokenizer-sigdig", "dolma2-tokenizer-sigdig"),
        ("dolma17", "gpt-neox-olmo-dolma-v1_5", "gpt-neox-olmo-dolma-v1_5"),
    ],
)
def test_the_lists_of_olmo_core_name_folders_of_tokenizers_in_their_own_way(
    tmp_path, mix, tokenizer, folder
):
    config = json.loads(json.dumps(OLMO))
    config["dataset"] |= {"mix": mix, "mix_base_dir": "https://olmo-data.org"}
    config["dataset"]["tokenizer"]["identifier"] = f"allenai/{tokenizer}"
    found = card(tmp_path, "olmo-core", json.dumps(config), files=1)
    assert found.facts["listed"]["tokenizer"] == folder


def olmo_of_one_file(**trainer):
    dataset = OLMO["dataset"] | {"paths": ["a.npy"]}
    return OLMO | {"dataset": dataset, "trainer": OLMO["trainer"] | trainer}


def test_olmo_core_options_that_change_rows_during_training_are_refused_or_named(
    tmp_path,
):
    scheduler = {
        "_CLASS_": "olmo_core.train.callbacks.batch_size_scheduler"
        ".BatchSizeSchedulerCallback",
        "batch_sizes": [16, 32],
    }
    other = {"_CLASS_": "olmo_core.train.callbacks.wandb.WandBCallback"}
    config = olmo_of_one_file(callbacks={"wandb": other, "batch": scheduler})
    with pytest.raises(
        ValueError, match="BatchSizeSchedulerCallback changes which .*by hand"
    ):
        card(tmp_path, "olmo-core", json.dumps(config))
    scheduler["enabled"] = False
    assert card(tmp_path, "olmo-core", json.dumps(config)).last_step == 6
    config = olmo_of_one_file(hard_stop={"value": 2, "unit": "steps"})
    config["dataset"]["instance_filter_config"] = {"repetition_max_count": 32}
    found = card(tmp_path, "olmo-core", json.dumps(config))
    assert found.last_step == 2
    assert (
        "which rows have no loss (instance_filter_config: repeated n-grams)"
        in (found.facts["unknown"])
    )
