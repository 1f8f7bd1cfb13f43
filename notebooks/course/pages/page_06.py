"""Notebook 06: its opening, what its folds and figures show, and the rules of its exercises."""

import json
import logging
import math
import os
import shutil
import subprocess
import sys
import textwrap
import time
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

from ruamel.yaml import YAML

from course import show
from course.registry import answer, figure, rule
from figures import resume as plots
from figures.draw import COLOURS, IDLE, SOURCES
from figures.moving import Box, Moving, State
from nanoset_ref.train import (
    Checkpoints,
    ConfigError,
    ParallelLayout,
    StagedLoader,
    find_problem,
    load_config,
    read_metrics,
    read_state,
    start_world,
)


def stage(name, first_step, dataset_path, workers=0):
    """One stage of data, as a config has it."""
    dataset = {"dataset_path": dataset_path, "order": "stateless"}
    data = {"dataset": dataset, "num_loading_workers": workers, "seed": 1234}
    return {"name": name, "start_training_step": first_step, "data": data}


def write_config(name, stages, **changes):
    """Write the config of a run called `name`, with changes of whole sections; the path of its file."""
    example = (
        files("nanoset_ref").joinpath("train/examples/tokens.yaml").read_text(encoding="utf-8")
    )
    tree = YAML(typ="safe").load(example.replace("datasets/", "data/")) | {"data_stages": stages}
    tree["tokens"] = {"sequence_length": 64, "train_steps": 45, "micro_batch_size": 4}
    tree["tokens"]["batch_accumulation_per_replica"] = 1
    gpt2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
    tree["model"] = {
        "model_config": gpt2 | {"vocab_size": 4096, "bos_token_id": 0, "eos_token_id": 0}
    }
    tree["parallelism"] = {"dp": 2}
    tree["checkpoints"] = {"checkpoints_path": f"data/06_{name}", "checkpoint_interval": 6}
    for section, values in changes.items():
        tree[section] = tree[section] | values
    path = Path(f"data/06_{name}.yaml")
    YAML(typ="safe").dump(tree, path)
    return path.as_posix()


def continued(stages, state):
    """A loader that goes on from a state, with other stages."""
    config = load_config(write_config("longer", stages, tokens={"train_steps": 50}))
    loader = StagedLoader(config, ParallelLayout(dp_rank=0, dp_size=2))
    loader.load_state_dict(state)
    return loader


def refusal(stages, state):
    """Why stages cannot follow a state; None if they can."""
    try:
        continued(stages, state)
    except ValueError as error:
        return str(error).rsplit(": ", 1)[-1]
    return None


def contents(path):
    """By name, the first byte and the end of each tensor in a file; a safetensors header is JSON."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: header[name]["data_offsets"] for name in header if name != "__metadata__"}


def command(config_path, processes=2):
    """The command that trains: `torchrun` with so many processes, or without torchrun for one."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    start = torchrun if processes > 1 else []
    return [
        sys.executable,
        *start,
        "-m",
        "nanoset_ref.train",
        "--config",
        str(config_path),
        "--log-samples",
    ]


def started(config_path, processes=2):
    """The same command as a running process, on CPUs and without its output."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(
        command(config_path, processes), env=environment, stdout=nowhere, stderr=nowhere
    )


def train(config_path, processes=2):
    """Train to the end, and stop the page if that fails."""
    returned = started(config_path, processes).wait()
    if returned:
        raise RuntimeError(f"the run of {config_path} ended with exit status {returned}")


def lines_of(name):
    """The metrics of a run, a line per step, without its speed, which differs from run to run."""
    path = Path(f"data/06_{name}/metrics.jsonl")
    found = read_metrics(path) if path.exists() else []
    return [
        {key: line[key] for key in line if key not in ("tokens_per_second", "data_wait")}
        for line in found
    ]


def kill_after(steps, name):
    """Start a run, kill it when so many steps are logged; its lines and its newest checkpoint."""
    process = started(f"data/06_{name}.yaml")
    while len(lines_of(name)) < steps:
        if process.poll() is not None:
            raise RuntimeError("the run ended before it was killed")
        time.sleep(0.02)
    process.kill()
    process.wait()
    return lines_of(name), max(Path(f"data/06_{name}").glob("step-*"))


def opening():
    BLUE, ORANGE, GREEN = (SOURCES[source][0] for source in ("stories", "arithmetic", "programs"))
    first = [
        (0, "start", IDLE, 4),
        (4, "steps 1-15", BLUE, 15),
        (19, "16-18", ORANGE, 3),
        (22, "", "", 2),
    ]
    rank = [*first, (26, "start", IDLE, 4), (30, "19-30", ORANGE, 12), (42, "31-45", GREEN, 15)]
    worker = [(19, "", ORANGE, 5), (30, "", ORANGE, 12)]
    saved = [
        (step + (1 if step < 20 else 9), str(step), IDLE, 3)
        for step in (6, 12, 18, 24, 30, 36, 42, 45)
    ]
    processes = {
        "torchrun": [(0, "the command", IDLE, 24), (26, "the same command", IDLE, 31)],
        "rank 0": rank,
        "loader of rank 0": worker,
        "rank 1": rank,
        "loader of rank 1": worker,
        "checkpoint of step": saved,
    }
    show(
        plots.lanes(
            processes, {24: "SIGKILL"}, "The second start continues from the checkpoint of step 18"
        ),
        "A sketch of this notebook's run, drawn from its plan: widths are steps, and a start is as wide as four. "
        "Colors: the three stages of its data. Dashed: steps that are lost and done again. **Loader of a rank**: the "
        "worker that stage 2 asks for; in the other stages the rank reads for itself.",
        "Six rows of bars: torchrun, two ranks, a loading process for each, and checkpoints. All processes "
        "end at a line called SIGKILL after step 20; the second start continues with step 19, so steps 19 and "
        "20 are dashed as lost. Checkpoints are those of steps 6, 12, 18, 24, 30, 36, 42 and 45. The loading"
        " processes exist in stage 2 only.",
    )


@answer("06.1", "both", words=("the error says where",))
def answer_1(STAGES):
    typo, twice = json.loads(json.dumps(STAGES)), json.loads(json.dumps(STAGES))
    typo[1]["data"]["num_loading_workes"] = 2
    twice[2]["start_training_step"] = 16
    for stages in (typo, twice):
        try:
            load_config(write_config("wrong", stages))
        except ConfigError as error:
            print(textwrap.fill(str(error), 98, subsequent_indent=" " * 4))


@answer("06.2", 31, words=("never seen a program",))
def answer_2(whole):
    loss = [line["loss"] for line in whole]
    assert abs(loss[0] - math.log(4096)) < 0.2, (
        "a fresh model knows nothing: every id is equally likely"
    )
    jumps = {step: loss[step - 1] - loss[step - 2] for step in (16, 31)}
    print("the larger jump:", max(jumps, key=jumps.get))


@answer("06.3", "prefetched", words=("the same dropout",))
def answer_3(before, whole, newest):
    train("data/06_killed.yaml")
    after = lines_of("killed")
    assert [line["step"] for line in after] == list(range(1, 46))
    assert before == whole[: len(before)] and after == whole

    resumed = [line for line in after if line["step"] > read_state(newest)["step"]]
    starts = {"first start": before[:20], "second start": resumed}
    starts = {name: [(line["step"], line["loss"]) for line in run] for name, run in starts.items()}
    losses = [line["loss"] for line in whole]
    farthest = max(abs(loss - losses[step - 1]) for run in starts.values() for step, loss in run)
    print(len(after), "steps; the largest difference of a loss is", farthest)
    stages = {"stories": 1, "stories and arithmetic": 16, "mostly programs": 31}
    show(
        plots.same_losses(losses, starts, stages, killed=20),
        "Wide and gray: the run that was never killed; both starts of the killed run lie on it, the first solid, the "
        "second dashed. Behind them: the stages. (45 steps of "
        "8 rows teach a model next to nothing, and the data change twice: look only at whether the lines coincide.)",
        "One line of loss over 45 steps, wide and gray for the run that was never killed. The first start covers it up "
        "to step 20, the second from step 19 on; a ring marks step 20, which was done twice.",
    )


@figure("06.1")
def figure_1(STAGES, config):
    firsts = [part["start_training_step"] for part in STAGES]
    colours = [SOURCES[source][0] for source in SOURCES]
    last, step_size = config.tokens.train_steps, config.global_batch_size

    def bars(begin, end, kept):
        """Boxes of the steps begin ... end: for each stage, and for those that are lost."""
        edges = sorted({begin, end + 1, kept + 1, *firsts})
        edges = [edge for edge in edges if begin <= edge <= end + 1]
        # two steps are too narrow for "19-20", and get a box each
        edges = sorted(
            {*edges, *(left + 1 for left, right in pairwise(edges) if right == left + 2)}
        )
        boxes = []
        for first, after in pairwise(edges):
            stage = sum(first >= start for start in firsts) - 1
            text = str(first) if after == first + 1 else f"{first}-{after - 1}"
            lost = first > kept
            boxes.append(
                Box(
                    first - 1,
                    text,
                    "" if lost else colours[stage],
                    after - first,
                    "lost" if lost else "",
                )
            )
        return boxes

    def state(every, killed):
        kept = killed - killed % every
        saved = [*range(every, killed + 1, every), *range(kept + every, last, every), last]
        rows = {
            "first start": bars(1, killed, kept),
            "second start": bars(kept + 1, last, last),
            "checkpoints": [Box(step - 1, step, IDLE, 1) for step in saved],
        }
        again = (
            f"{killed - kept} steps, {step_size * (killed - kept)} samples"
            if killed > kept
            else "nothing"
        )
        return State(
            f"Killed after step {killed}, it continues at step {kept + 1}: {again} again", rows
        )

    show(
        Moving(
            {"checkpoint every": [3, 6, 15], "killed after": list(range(1, last))},
            state,
            (6, 23),
            length=last,
        ),
        "Steps from left to right, colored by the stage of the data. Dashed: done in the first start and lost.",
        "Three rows. The first start does steps 1 to 23, of which 19 to 23 are dashed. The second start does 19 to "
        "45. Checkpoints stand at 6, 12, 18, 24, 30, 36, 42 and 45.",
    )


@answer("06.4", "a third", words=("two moments for each weight",))
def answer_4(folder):
    kinds = {
        "exp_avg_sq": ("second moments", IDLE),
        "exp_avg": ("first moments", COLOURS[5]),
        "": ("the model", COLOURS[3]),
    }
    rows = {}
    for rank, path in enumerate(sorted(folder.glob("*.safetensors"))):
        sizes = dict.fromkeys(["", "exp_avg", "exp_avg_sq"], 0)
        for name, (start, stop) in contents(path).items():
            sizes[next(kind for kind in kinds if name.endswith(kind))] += stop - start
        lefts = [0, sizes[""], sizes[""] + sizes["exp_avg"]]
        bars = [(left, *kinds[kind], sizes[kind]) for left, kind in zip(lefts, sizes)]
        rows[f"shard-0000{rank + 1}-…, rank {rank}"] = bars
    size_of_state = round((folder / "state.json").stat().st_size / 1024)
    print("the model's share:", round(sizes[""] / sum(sizes.values()), 2))
    rows["state.json"] = [
        (
            0,
            f"the state of the data, sizes and checksums: {size_of_state} KiB",
            "white",
            sum(sizes.values()),
        )
    ]
    show(
        plots.lanes(
            rows, {}, f"{folder.name}/: two thirds of a checkpoint belong to the optimizer", 0.4
        ),
        "The files of one checkpoint; lengths are bytes (of state.json so few that its bar would be "
        "invisible). AdamW keeps two numbers per weight; each rank writes its half.",
        "Three rows, one per file. The two shards, one written by each rank, hold three equal parts: the "
        "model, first moments and second moments. Below them state.json with the state of the data.",
    )


@answer("06.5", 12, words=("Redoing a few steps",))
def answer_5():
    shutil.rmtree("data/06_damaged", ignore_errors=True)
    shutil.copytree("data/06_one", "data/06_damaged")
    world = start_world()  # one process
    run = Checkpoints("data/06_damaged", world)
    shard = next((run.folder / "step-00000018").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1])
    shutil.copytree(run.folder / "step-00000012", run.folder / ".step-00000024.tmp")

    logging.disable(logging.WARNING)  # it warns of what it skips; here we ask
    step, _ = run.newest()
    logging.disable(logging.NOTSET)
    print("step 18:", find_problem(run.folder / "step-00000018"))
    print("newest whole checkpoint: step", step)
    assert step == 12
    run.close()
    world.close()


@answer("06.6", "samples", words=("agree only roughly",))
def answer_6(whole, STAGES):
    smaller = write_config(
        "one", STAGES, parallelism={"dp": 1}, tokens={"batch_accumulation_per_replica": 2}
    )
    train(smaller, processes=1)
    one = lines_of("one")

    def samples(run):
        # per step, the global batch in the order of its positions, whoever read it
        return [sorted(sample for rank in line["samples"] for sample in rank) for line in run]

    difference = max(abs(a["loss"] - b["loss"]) for a, b in zip(one, whole, strict=True))
    assert samples(one) == samples(whole) and 0 < difference < 0.5
    print(
        "ranks in the first and in the last step:",
        len(one[0]["samples"]),
        "and",
        len(one[-1]["samples"]),
    )
    print(
        "same samples in every step:",
        samples(one) == samples(whole),
        "| same losses:",
        difference == 0,
    )


@answer("06.7", 360, words=("position 360",))
def answer_7(STAGES, ARITHMETIC):
    state = read_state(Path("data/06_whole/step-00000045"))["state"]["data"]

    loader = continued([*STAGES, stage("arithmetic", 46, ARITHMETIC)], state)
    step, record = loader.next_step(), loader.records[-1]
    print(
        f"step {step.number} is of stage {step.stage!r}; it begins at position {record.first_position} of its order"
    )
    assert record.first_position == sum(record.first_reads) == 45 * 8
    print("from step 40:", refusal([*STAGES, stage("arithmetic", 40, ARITHMETIC)], state))


@rule(
    "06.1",
    "samples per step are ranks x micro-batch x accumulations; and the stage has 15 steps, not 14",
)
def rule_1(answer, STAGES):
    return (
        answer
        == 15
        * load_config(
            write_config(
                "bigger",
                STAGES,
                parallelism={"dp": 8},
                tokens={"micro_batch_size": 2, "batch_accumulation_per_replica": 3},
            )
        ).global_batch_size
    )


@rule("06.2", "ranks x micro-batch x accumulations is 2,048, so which numbers up to 128 divide it?")
def rule_2(answer):
    return answer == sum(2048 % ranks == 0 for ranks in range(1, 129))


@rule(
    "06.3",
    "the newest checkpoint is at the last multiple of the interval; a kill right after it loses nothing",
)
def rule_3(answer):
    return all(
        answer(step, 6) == step - max([0, *(s for s in range(1, step + 1) if s % 6 == 0)])
        for step in range(1, 46)
    )


@rule("06.4", "the slope is zero where the two terms, C / T and T / (2 M), are equal")
def rule_4(answer):
    return all(
        abs(answer(c, m) / min(range(10, 20_000), key=lambda t: c / t + t / (2 * m)) - 1) < 0.01
        for c, m in [(60, 3 * 3600), (5, 3600), (120, 86_400)]
    )
