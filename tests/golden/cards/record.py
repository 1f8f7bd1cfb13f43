"""Write the shipped cards of public runs from what their authors have published.

    python tests/golden/cards/record.py CLONES

CLONES holds clones of EleutherAI/pythia (a19eecb), allenai/OLMo (59a53e3f), allenai/OLMo-core (fa6c5014c),
KellerJordan/modded-nanogpt (f411b3d3) and huggingface/smollm (a041759), each in a folder OWNER+NAME/repo. The
commits are read with git, whatever is checked out.
"""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from nanoset_ref.orders import build_order
from nanoset_ref.provenance.card import Card
from nanoset_ref.provenance.card_facts import SHIPPED
from nanoset_ref.provenance.card_of_run import probes_of

COMMITS = {
    "EleutherAI/pythia": "a19eecb807ec2c79a39ebf18108816e6ffffc1d5",
    "allenai/OLMo": "59a53e3f68e546330ca5a99ec626e58f9ab96494",
    "allenai/OLMo-core": "fa6c5014c9f6e9ee789da2d9c20d5126fee8df0d",
    "KellerJordan/modded-nanogpt": "f411b3d346aa52d3504324ca93c230fd84c6c07f",
    "huggingface/smollm": "a041759883ec7152d18fb985ea49be641a0bceef",
}
SAMPLES = 146_432_000  # of Pythia: 143,000 steps of 1,024 rows
STREAM = 162_165_686  # samples of the Pile in one epoch
NEOX = (
    "https://github.com/EleutherAI/gpt-neox/blob/ea7aefd8/megatron/data/gpt2_dataset.py"
)
RAW = "https://raw.githubusercontent.com"
MIXES = "src/olmo_core/data/mixes"
SIZES = (
    "the sizes of the files: `card complete` fetches them; --card-output adds probes"
)
UNCONFIRMED = "no file was fetched for this card: nothing here was held against the data themselves"


def content(repository: str, path: str) -> bytes:
    folder = Path(sys.argv[1]) / repository.replace("/", "+") / "repo"
    place = f"{COMMITS[repository]}:{path}"
    command = ["git", "-C", str(folder), "show", place]
    return subprocess.run(command, check=True, capture_output=True).stdout


def text(repository: str, path: str) -> str:
    return content(repository, path).decode()


def link(repository: str, path: str) -> str:
    return f"https://github.com/{repository}/blob/{COMMITS[repository]}/{path}"


YAML = {"after": "\ndata:\n", "pattern": r"(?m)^ +- (\S+\.npy)$", "address": "{}"}
FOLDERS = {"after": "", "pattern": None, "address": None}


def mix(tokenizer: str) -> dict[str, Any]:
    """The lists of OLMo-core: label, then a path with {TOKENIZER} in it."""
    return {
        "after": "",
        "pattern": r"(?m)^[^#,\n]+,(\S+)$",
        "address": "https://olmo-data.org/{}",
        "tokenizer": tokenizer,
    }


def listed(
    repository: str, path: str, files: int, names: dict[str, Any]
) -> dict[str, Any]:
    sha256 = hashlib.sha256(content(repository, path)).hexdigest()
    return names | {
        "url": f"{RAW}/{repository}/{COMMITS[repository]}/{path}",
        "sha256": sha256,
        "files": files,
    }


def stage(
    steps: int, batch_size: int, ranks: tuple[str, int, int] | None = None
) -> dict[str, Any]:
    layout, dp_size, micro_batch_size = ranks or (None, None, None)
    return {
        "name": "run",
        "first_step": 1,
        "steps": steps,
        "order": 0,
        "first_position": 0,
        "batch_size": batch_size,
        "layout": layout,
        "dp_size": dp_size,
        "micro_batch_size": micro_batch_size,
    }


def write(name: str, date: str, window: tuple[int, int], **facts: Any) -> None:
    facts["tokenizer"] = {"name": facts["tokenizer"], "hash": None}
    facts["loader"] = dict(zip(("name", "version"), facts["loader"], strict=True))
    row_length, stride = window
    card = {"card": 1, "name": name, "date": date} | facts
    card["window"] = {"row_length": row_length, "stride": stride}
    Card(card)
    save(card)


def save(card: dict[str, Any]) -> None:
    lines = json.dumps(card, indent=1, ensure_ascii=False)
    lines = re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", lines)  # pairs on one line
    (SHIPPED / f"{card['name']}.json").write_text(lines + "\n", encoding="utf-8")


def pythia(config: str, deduped: bool) -> None:
    path = f"models/{config}"
    yml = text("EleutherAI/pythia", path)
    (gpus,) = map(int, re.findall(r"trained on (\d+) gpus", yml))
    (tensor,) = map(int, re.findall(r'"model-parallel-size": (\d+)', yml))
    (rows,) = map(int, re.findall(r'"train_micro_batch_size_per_gpu": (\d+)', yml))
    kind = "deduped" if deduped else "standard"
    data = f"https://huggingface.co/datasets/EleutherAI/pile-{kind}-pythia-preshuffled"
    inferred = [
        "a part has 30,000,000,000 bytes: 20 such parts and a last one of 78,336,000 make the file, and the "
        "repository shows 30 GB for each part",
        f"{gpus // tensor} data-parallel ranks: {gpus} GPUs, of which {tensor} share a model",
    ]
    if rows * gpus // tensor != 1024:
        rows = 1024 // (gpus // tensor)
        inferred.append(f"micro-batches of {rows} rows, so that a step has 1,024")
    if config.startswith(("14M", "31M")):
        inferred.append(
            "the standard Pile, as the other models: its config names a folder pile_deduped with the "
            "standard file in it"
        )
    order = {"name": "identity", "seed": 0, "samples": SAMPLES}
    order["probes"] = probes_of(
        build_order("identity", [SAMPLES], None, SAMPLES), SAMPLES
    )
    write(
        Path(config).stem,
        "2023-04",
        (2049, 2049),
        links=[
            link("EleutherAI/pythia", path),
            data,
            "https://arxiv.org/abs/2304.01373",
        ],
        loader=("GPT-NeoX, read again from the preshuffled file", None),
        tokenizer="EleutherAI/gpt-neox-20b",
        dtype="uint16",
        sources=[
            {
                "name": "document.bin",
                "bytes": SAMPLES * 2049 * 2,
                "parts": {
                    "url": f"{data}/resolve/main/document-{{:05}}-of-00020.bin",
                    "bytes": 30_000_000_000,
                },
            }
        ],
        orders=[order],
        stages=[stage(143_000, 1024, ("contiguous", gpus // tensor, rows))],
        known=[
            "143,000 steps of 1,024 rows of 2,049 tokens; step N reads rows 1,024 (N - 1) to 1,024 N - 1",
            "document.bin is the 21 published parts, one after another",
        ],
        inferred=inferred,
        unknown=["checksums of the parts", UNCONFIRMED],
    )


def polypythias(seed: int) -> None:
    path = Path(sys.argv[2]) / f"poly{seed}.json"
    probes = {
        position: [0, sample]
        for position, sample in json.loads(path.read_text()).items()
    }
    data = "https://huggingface.co/datasets/EleutherAI"
    known = [
        "the models of 14M to 410M parameters with this seed: 143,000 steps of 1,024 rows",
        "210,604,984 documents make 162,165,686 samples in one epoch",
        "probes are samples of the stream of shuffled documents: RandomState(seed) shuffles 210,604,984 documents, "
        "then 162,165,686 samples",
    ]
    if seed == 2:
        known.append(
            "the published shuffle index is zero from 12,354,528 to 162,164,735 "
            "(https://github.com/EleutherAI/pythia/issues/190); the right one, as .npy, has sha256 "
            "1e0844e29f86cb1113fbb63d8f304ee1a41734ba89d915c6957eee76b20dcdc9"
        )
    write(
        f"polypythias-seed{seed}",
        "2025-03",
        (2049, 2048),
        links=[f"{data}/pile-preshuffled-seeds", f"{data}/pythia_pile_idxmaps", NEOX],
        loader=("GPT-NeoX", "ea7aefd8"),
        tokenizer="EleutherAI/gpt-neox-20b",
        dtype="uint16",
        sources=[{"name": "pile_20B_tokenizer_text_document.bin", "bytes": None}],
        orders=[
            {
                "name": "megatron",
                "seed": seed,
                "samples": STREAM,
                "options": {"separate_final_epoch": False},
                "probes": probes,
            }
        ],
        stages=[stage(143_000, 1024, ("contiguous", 32, 32))],
        known=known,
        inferred=["32 ranks of 32 rows, as in the configs of Pythia 14M to 410M"],
        unknown=[
            "where a sample lies in the Pile: its documents are in the .idx file",
            UNCONFIRMED,
        ],
    )


def olmo(
    name: str,
    date: str,
    files: dict[str, Any],
    row_length: int,
    dtype: str,
    order: dict[str, Any],
    run: dict[str, Any],
    **facts: Any,
) -> None:
    write(
        name,
        date,
        (row_length, row_length),
        dtype=dtype,
        listed=files,
        sources=[],
        orders=[{"name": "olmo_core", "samples": None, "probes": {}} | order],
        stages=[run],
        **facts,
    )


def olmos() -> None:
    files = "the list of files, their order, the seed, the batch and the length of a row, in the config"
    twice = "five files of DCLM, part-104-00000 to -00004, are listed twice: their rows are read twice in an epoch"
    ranks = "how many ranks read a batch"
    for name, date, config, count, row_length, batch_size, dtype, steps, tokenizer in (
        ("olmo-1b", "2024-02", "official-0724/OLMo-1B", 249, 2048, 2048, "uint16", 739_328,
         "allenai/eleuther-ai-gpt-neox-20b-pii-special"),
        ("olmo-2-7b", "2024-11", "official-1124/OLMo2-7B-stage1", 1122, 4096, 1024, "uint32", 928_646,
         "allenai/dolma2-tokenizer"),
        ("olmo-2-13b", "2024-11", "official-1124/OLMo2-13B-stage1", 1122, 4096, 2048, "uint32", 596_057,
         "allenai/dolma2-tokenizer"),
        ("olmo-2-1b", "2025-04", "official-0425/OLMo2-1B-stage1", 1122, 4096, 512, "uint32", 1_907_359,
         "allenai/dolma2-tokenizer"),
    ):  # fmt: skip
        path = f"configs/{config}.yaml"
        olmo(
            name,
            date,
            listed("allenai/OLMo", path, count, YAML),
            row_length,
            dtype,
            {"seed": 6197, "options": {"batch_size": batch_size}},
            stage(steps, batch_size),
            links=[link("allenai/OLMo", path), "https://olmo-data.org"],
            loader=("ai2-olmo", COMMITS["allenai/OLMo"][:8]),
            tokenizer=tokenizer,
            known=[files, "the seed of the config is 6198; ai2-olmo counts epochs from 0, this order from 1",
                   *([twice] if count == 1122 else [])],
            inferred=["the files under `data: paths:` alone, not those of the evaluations",
                      "each epoch is shuffled anew, behind its last whole batch"],
            unknown=[SIZES, ranks, "whether the run was restarted with another order", UNCONFIRMED],
        )  # fmt: skip
    script = "src/scripts/official/OLMo2/OLMo-2-0325-32B-train.py"
    olmo(
        "olmo-2-32b",
        "2025-03",
        listed("allenai/OLMo-core", f"{MIXES}/OLMoE-mix-0824.txt", 1122, mix("allenai/dolma2-tokenizer")),
        4096,
        "uint32",
        {"seed": 34521, "options": {"chunk_size": 2, "batch_size": 2048}},
        stage(721_901, 2048),
        links=[link("allenai/OLMo-core", script), "https://olmo-data.org"],
        loader=("OLMo-core", COMMITS["allenai/OLMo-core"][:9]),
        tokenizer="allenai/dolma2-tokenizer",
        known=[files, "rows of 4,096 tokens in chunks of two: max_target_sequence_length is 8,192",
               "721,901 steps: the last checkpoint that is listed", twice],
        inferred=["{TOKENIZER} in the list stands for allenai/dolma2-tokenizer"],
        unknown=[SIZES, ranks, UNCONFIRMED],
    )  # fmt: skip


def olmo_3() -> None:
    folder = "src/scripts/official/OLMo3/OLMo-3-1025"
    packing = {
        "group_size": 8,
        "permutation_seed": 123,
        "fragment": False,
        "eos_token_id": 100_257,
        "pad_token_id": 100_277,
    }
    again = (
        "one order: pretrain-2 continues step 596,047 of pretrain-1 with its trainer's state, seed, mix and batch; "
        "pretrain-1 stopped at step 597,046, so the rows of 999 steps were read in both"
    )
    base = "stages 2 and 3 continue step 656,000 of stage 1"
    for name, scripts, list_name, files, length, seed, batch_size, steps, inferred in (
        ("7b-stage1", "pretrain-1 pretrain-2", "mix-0625-official", 1016, 8192, 34521, 512, 1_413_814, [again]),
        ("7b-stage2", "midtrain", "midtraining-mix-0625-100B", 11_933, 8192, 1337, 256, 47_684, []),
        ("7b-stage3", "long-context", "longmino-mix-0625", 998, 65_536, 34521, 64, 11_921,
         ["11,921 steps, as listed: the script has the length of pretrain-1"]),
        ("32b-stage1", "pretrain", "mix-0925-official", 950, 8192, 34521, 1024, 679_000,
         [base, "679,000 steps: the script reads one epoch, and does not say how long it is"]),
        ("32b-stage2-ingredient1", "midtrain-ingredient-1", "midtraining-mix-0925-ingredient1-100B", 12_252,
         8192, 42069, 512, 23_842, [base]),
        ("32b-stage2-ingredient2", "midtrain-ingredient-2", "midtraining-mix-0925-ingredient2-100B", 12_252,
         8192, 42069, 512, 23_842, [base]),
        ("32b-stage3", "long-context", "longmino-mix-0925", 1000, 65_536, 34521, 128, 11_921, [base]),
    ):  # fmt: skip
        size = name.partition("-")[0].upper()
        order = {"seed": seed, "options": {"chunk_size": 1, "batch_size": batch_size}}
        unknown = [SIZES]
        if name.endswith("stage3"):
            order["name"] = "olmo_core_packed"
            order["options"] = {"batch_size": batch_size} | packing
            unknown = [
                "which documents lie in which row: that takes the files themselves, so no probes"
            ]
        if size == "32B":
            unknown.append(
                "which rows have no loss (instance_filter_config: repeated n-grams); the order is unaffected"
            )
        paths = [f"{folder}-{size}-{script}.py" for script in scripts.split()]
        paths.append(f"{folder}-{size}.csv")
        olmo(
            f"olmo-3-{name}",
            "2025-10" if size == "7B" else "2025-11",
            listed("allenai/OLMo-core", f"{MIXES}/OLMo-{list_name}.txt", files, mix("allenai/dolma3-tokenizer")),
            length,
            "uint32",
            order,
            stage(steps, batch_size),
            links=[*(link("allenai/OLMo-core", path) for path in paths), "https://olmo-data.org"],
            loader=("OLMo-core", COMMITS["allenai/OLMo-core"][:9]),
            tokenizer="allenai/dolma2-tokenizer",
            known=["the list of files, their order, the seed, the batch and the length of a row, in the script",
                   f"{steps:,} steps: the last checkpoint that is listed",
                   "{TOKENIZER} in the list stands for allenai/dolma3-tokenizer, as data/mixes/__init__.py says"],
            inferred=inferred,
            unknown=[*unknown, "how many ranks read a batch", UNCONFIRMED],
        )  # fmt: skip


def speedrun() -> None:
    folder = "records/track_1_short/2025-01-16_Sub3Min"
    log = f"{folder}/1d3bd93b-a69e-4118-aeb8-8184239d7566.txt"
    data = "https://huggingface.co/datasets/kjj0/fineweb10B-gpt2"
    (steps,) = map(
        int,
        re.findall(r"num_iterations = (\d+)", text("KellerJordan/modded-nanogpt", log)),
    )
    files = [
        {"name": f"fineweb_train_{k:06}.bin", "bytes": 200_001_024, "first_byte": 1024}
        for k in range(1, 9)
    ]
    card = {
        "links": [link("KellerJordan/modded-nanogpt", log), data],
        "loader": ("modded-nanogpt, distributed_data_generator", "2025-01-16"),
        "tokenizer": "gpt2",
        "dtype": "uint16",
        "sources": files,
        "orders": [
            {
                "name": "llm_c",
                "seed": 0,
                "samples": steps * 8,
                "options": {"micro_batch_size": 1, "dp_size": 8, "shuffle": 0},
                "probes": {},
            }
        ],
        "stages": [stage(steps, 8, ("contiguous", 8, 1))],
        "known": [
            f"{steps:,} steps of 8 rows of 65,536 tokens and one; the log holds the loader's source",
            "each shard is read from its first token, and its last 385,280 tokens never",
        ],
        "inferred": [
            "a shard has 100,000,000 tokens, as data/cached_fineweb10B.py says, behind a header of 1,024 bytes",
            "8 ranks, the 8 GPUs of all records",
        ],
        "unknown": ["checksums of the shards", UNCONFIRMED],
    }
    facts = {**card, "name": "modded-nanogpt-sub3min", "card": 1, "date": "2025-01"}
    facts["window"] = {"row_length": 65_537, "stride": 65_536}
    facts["loader"] = {"name": card["loader"][0], "version": card["loader"][1]}
    facts["tokenizer"] = {"name": "gpt2", "hash": None}
    order = Card(facts).unchecked_order(0)
    facts["orders"][0]["probes"] = probes_of(order, steps * 8)
    save(facts)


def smollm3() -> None:
    path = "text/pretraining/smollm3/stage3_9T_11T.yaml"
    yaml = text("huggingface/smollm", path)
    folders = re.findall(r"^ +- (s3://\S+)", yaml, re.M)
    starts = [int(start) for start in re.findall(r"start_training_step: (\d+)", yaml)]
    (steps,) = map(int, re.findall(r"train_steps: (\d+)", yaml))
    starts = [*starts, steps + 1]
    names = ["stable", "stable stage 2", "decay stage"]
    layout = ("contiguous", 192, 3)
    stages = [
        stage(stop - start, 576, layout)
        | {"name": name, "first_step": start, "order": number}
        for number, (name, start, stop) in enumerate(
            zip(names, starts, starts[1:], strict=False)
        )
    ]
    order = {"name": "unknown", "seed": 6, "samples": None, "probes": {}}
    write(
        "smollm3-3b",
        "2025-07",
        (4097, 4097),
        links=[link("huggingface/smollm", path), "https://huggingface.co/HuggingFaceTB/SmolLM3-3B"],
        loader=("Nanotron, main", "2411b022"),
        tokenizer="meta-llama/Llama-3.2-1B",
        dtype="uint32",
        listed=listed("huggingface/smollm", path, len({*folders}), FOLDERS),
        sources=[],
        orders=[order] * 3,
        stages=stages,
        known=["stages, folders, weights, batch and ranks, in the config of the last stage",
               "`listed` names folders, each of many .ds files"],
        inferred=["steps per stage, from the starts in that config; Nanotron reads it as nanotron_stages does"],
        unknown=["the sizes of the .ds files, so which row a step read",
                 "how often the run was restarted, and from which step", UNCONFIRMED],
    )  # fmt: skip


if __name__ == "__main__":
    for size in "14M 31M 70M 160M 410M 1B 1.4B 2.8B 6.9B 12B".split():
        pythia(f"{size}/pythia-{size.lower()}.yml", False)
        if size not in ("14M", "31M"):
            pythia(f"{size}/pythia-{size.lower()}-deduped.yml", True)
    olmos()
    olmo_3()
    speedrun()
    smollm3()
    if len(sys.argv) > 2:
        for seed in range(1, 10):
            polypythias(seed)
