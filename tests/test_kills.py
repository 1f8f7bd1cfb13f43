"""Law 6 of docs/laws.md for every command that writes: killed at any change, out of disk space or interrupted,
it leaves the old files or the complete new ones, and the next call completes it.

`make test` tries a few changes of each command; NANOSET_KILLS=all tries every one (every fifth, where a command has
several processes or trains) and prints the counts (pytest -rP).
"""

import functools
import http.server
import os
import random
import re
import shutil
import sys
import threading
from collections import Counter
from types import SimpleNamespace

import pytest
from inputs import write_inputs
from kills import Nursery

ALL = os.environ.get("NANOSET_KILLS") == "all"
TEXT = " --input {inputs}/{x}/text/p/x.jsonl --append-eod --backend hf --output-prefix {out}/t"
PREPROCESS = "preprocess --tokenizer-name-or-path {tokenizer}" + TEXT
TOKENIZE = (
    "chunks tokenize --input_root {inputs}/{x}/text --out_root {out} --eos_text </s> --concat_tokens 9 --tail carry "
    "--format both --backend hf --tokenizer {tokenizer}"
)
CONVERT = "chunks convert {inputs}/{x}/rows/p --vocab_size 300 --output_prefix {out}/t"
PAIR, LLAMA = (
    "{inputs}/{x}/t",
    "--tokenizer-type Llama2Tokenizer --tokenizer-model {tokenizer}",
)
COMMANDS = {  # {x} is "b" where a command writes what is there before, "a" where it replaces that
    "preprocess": PREPROCESS,
    "preprocess, workers": f"{PREPROCESS} --num-workers 2",
    "preprocess, ranks": PREPROCESS,
    "megatron.preprocess": f"nanoset_ref.megatron.preprocess:main {LLAMA}{TEXT}",
    "merge, pairs": f"merge {PAIR}.bin {PAIR}.bin {{out}}/t.bin",
    "merge": "merge {inputs}/{x}/t.ds {inputs}/{x}/t.bin {out}/t_input_ids.npy",
    "chunks tokenize": TOKENIZE,
    "chunks tokenize, ranks": TOKENIZE,
    "chunks mix": "chunks mix --input_root {inputs}/{x}/rows --out_root {out} --subfolders p,q --num_chunks 3 "
    "--num_valid_samples_per_subfolder 2 --shuffle",
    "chunks convert": CONVERT,
    "chunks convert, pair": f"{CONVERT} --format megatron",
    "inspect --png": "inspect {inputs}/a/t.npy --png {out}/lengths.png",
    "index": "index --data-path {inputs}/a/t=1 {inputs}/b/t=2 --split 80,20,0 --sequence-length 8 "
    "--split-num-samples 30 9 0 --path-to-cache {out}",
    "chunks download": "chunks download --urls {inputs}/urls.txt --out_root {out}",
    "corpus": "kills:function nanoset_ref.chunks.corpus:prepare_and_print {out}",
    "combine_on_disk": "kills:function nanoset_ref.streaming:CompressedDictionary.combine_on_disk "
    "--destination {out}/all.cd {inputs}/a/xz.cd {inputs}/b/gzip.cd",
    "train": "train --config {inputs}/a/run.yaml --log-samples",
}
for new in ("npy", "bin", "ds"):
    for old in sorted({"npy", "bin", "ds"} - {new}):
        COMMANDS[f"convert .{old} to .{new}"] = (
            f"convert {PAIR}.{old} {{out}}/t_input_ids.{new}"
        )
    COMMANDS[f"split .{new}"] = (
        f"split {PAIR}.npy {{out}}/t_ids.{new} {{out}}/v_ids.{new} --held-out 5"
    )
REPLACING = [name for name, line in COMMANDS.items() if "{x}" in line]

VARYING = re.compile(  # figures of a run; times, sizes and checksums of files that are compared themselves
    rb'"tokens_per_second": \d+, "data_wait": [\d.]+|"checksum": "[0-9a-f]{32}"|'
    rb'\[\s*(\d+,\s*)?"xxh3_128:[0-9a-f]{32}"(,\s*\d+)?'
)
LAST = r"(_ids[.]npy|[.]ds|[.]idx|[0-9a-f]{32}[.]json|state[.]json|manifest[.]json)$"  # the part that makes a set valid
PART = r"(_ids[.](json|\w+[.]np[yz])|[.](bin|seal|safetensors)|[.]ds[.]\w+|[0-9a-f]{32}[.]\w+[.]npy|metrics[.]jsonl)$"


def contents(folder):
    """{path: content} of all files and folders (whose paths end with a slash), without what differs from run to run."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = VARYING.sub(b"", path.read_bytes()) if path.is_file() else b""
        name = path.relative_to(folder).as_posix() + "/" * path.is_dir()
        found[name] = (
            bytes(len(content)) if path.suffix == ".safetensors" else content
        )  # tensors come in any order
    return found


def visible_sets(files):
    """{the last part of a set, or a lone file: {each part: content}}; what is unfinished, and says so, left out."""
    shown = {
        name: content
        for name, content in files.items()
        if not re.search(r"(^|/)[.]|/$", name)
    }
    stems = {
        re.sub(r"(state|manifest)?[.]\w+$", "", name): name
        for name in shown
        if re.search(LAST, name)
    }
    sets = {
        last: {name: shown[name] for name in shown if name.startswith(stem)}
        for stem, last in stems.items()
    }
    begun = tuple(
        re.sub("[^/]*$", "", last)
        for last in sets
        if re.search(rb'"complete": *false', shown[last])
    )
    lone = {
        name
        for name in shown
        if not re.search(PART, name) and not name.startswith(tuple(stems))
    }
    sets |= {name: {name: shown[name]} for name in lone}
    return {
        last: parts
        for last, parts in sets.items()
        if not last.startswith(begun or "//")
    }


@pytest.fixture(scope="module")
def bench(tmp_path_factory, golden):
    """The folder in which every command writes, one with what was there before, and how a command is run."""
    folder = tmp_path_factory.mktemp("kills")
    paths = {
        "inputs": folder / "inputs",
        "out": folder / "out",
        "tokenizer": golden / "tokenizer",
    }
    for version, name in enumerate("ab"):
        write_inputs(folder / "inputs" / name, version, folder / "out")
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=folder / "inputs"
    )
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        Nursery() as nursery,
    ):
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        urls = [
            f"http://127.0.0.1:{server.server_port}/{name}/text/p/x.jsonl\n"
            for name in "ab"
        ]
        (folder / "inputs/urls.txt").write_text("".join(urls))

        def run(name, x, overwrite=False, **stop):
            words = (
                COMMANDS[name].format(x=x, **paths).split()
                + ["--overwrite"] * overwrite
            )
            return nursery.run(
                words, folder / "out", ranks=2 * name.endswith("ranks"), **stop
            )

        for name in ("chunks convert", "combine_on_disk", "index", "inspect --png"):
            (folder / "out").mkdir(exist_ok=True)
            run(name, "a", how="warm")
        yield SimpleNamespace(run=run, out=folder / "out", old=folder / "old")
        server.shutdown()


def stops(name, changes):
    """(how, at which change, of which rank) to stop a command."""
    every = [("kill", 0), ("int", 0), ("full", 0)] + [("group", 0)] * name.endswith(
        "workers"
    )
    every += [("kill", 1), ("launcher", 0), ("launcher", 1)] * name.endswith("ranks")
    all_stops = [
        (how, at + 1, rank) for how, rank in every for at in range(changes[rank])
    ]
    slow = bool(re.search("ranks|workers|train", name))
    if ALL:
        return all_stops[:: 5 if slow else 1]
    chosen = random.Random(name)
    two_sets = re.match("split|chunks convert", name)
    last = 9 if two_sets else 5  # changes in which files appear
    late = [
        stop
        for stop in all_stops
        if stop[0] == "kill" and changes[stop[2]] - last < stop[1] < changes[stop[2]]
    ]
    if two_sets:
        return [*late, chosen.choice(all_stops)]
    return [chosen.choice(late or all_stops), chosen.choice(all_stops)][
        : 1 if slow else 2
    ]


def stop_and_repeat(bench, name, old, new, how, at, rank):
    """Stop a command that turns `old` into `new`, and call it again; what is wrong then."""
    shutil.rmtree(bench.out)
    shutil.copytree(bench.old, bench.out)
    stopped = bench.run(name, "a", bool(old), how=how, at=at, rank=rank)
    if stopped.hangs or stopped.orphans or "Traceback" in stopped.errors:
        yield f"hangs, leaves processes, or a traceback: {stopped}"
    left = contents(bench.out)
    before, after, found = map(visible_sets, (old, new, left))
    if any(
        parts not in (before.get(last), after.get(last))
        for last, parts in found.items()
    ):
        yield f"a part is neither old nor new among {sorted(found)}"
    if name.startswith("split") and not any(
        found.items() <= whole.items() for whole in (before, after)
    ):
        yield f"one part is old and the other new: {sorted(found)}"
    if (
        how == "full"
        and old
        and not re.match("chunks (tok|mix)", name)
        and found not in (before, after)
    ):
        yield f"what was there is lost, {sorted(found)} is left"
    hidden = [
        path
        for path in left
        if re.search(r"(^|/)[.](?!.*part$)", path) and path not in new
    ]
    if how in ("full", "int") and hidden:
        yield f"{hidden} is left"
    kept = any(
        parts == before.get(last) != after.get(last) for last, parts in found.items()
    )
    again = bench.run(name, "a", kept)
    if again.code and not (found == after and "exists" in again.errors):
        yield f"the next call is refused: {again.errors}"
    elif not again.code and contents(bench.out) != new:
        yield "the next call leaves something else"


@pytest.mark.only_on(
    "linux"
)  # processes that outlive their parent are looked for in groups
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("name", "replaces"),
    [*((name, False) for name in COMMANDS), *((name, True) for name in REPLACING)],
)
def test_stopped_anywhere_a_command_leaves_the_old_or_the_new(bench, name, replaces):
    for folder in (bench.old, bench.out):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    if replaces:
        assert bench.run(name, "b").code == 0
        shutil.copytree(bench.out, bench.old, dirs_exist_ok=True)
    old = contents(bench.old)
    whole = bench.run(name, "a", replaces)
    assert whole.code == 0, whole.errors
    new, tried, problems = contents(bench.out), Counter(), Counter()
    for how, at, rank in stops(name, whole.changes):
        tried[how] += 1
        for problem in stop_and_repeat(bench, name, old, new, how, at, rank):
            problems[f"{how} at {at} of rank {rank}: {problem}"] += 1
    sys.stdout.write(f"{dict(tried)}, {len(problems)} problems\n")
    assert not problems, "\n".join(problems)


REPLACED = re.compile(
    r"[^/]*(_ids[.]npy|[.]bin|[.]ds)"  # what --overwrite replaces, named on the command line
    r"|[0-9a-f]{32}[.].*"  # an index has the hash of its content for a name
    r"|step-\d{8}/.*"  # of a checkpoint that is not complete
    r"|all[.]cd"  # written as open("all.cd", "w") would
)


@pytest.mark.parametrize("name", [it for it in COMMANDS if not re.search(", [rw]", it)])
def test_a_file_of_another_program_is_replaced_only_where_it_was_named(bench, name):
    def fresh():
        shutil.rmtree(bench.out, ignore_errors=True)
        bench.out.mkdir()

    fresh()
    assert bench.run(name, "a").code == 0
    replaced = []
    for path in [path for path in contents(bench.out) if not path.endswith("/")]:
        fresh()
        foreign = bench.out / path
        foreign.parent.mkdir(parents=True, exist_ok=True)
        foreign.write_bytes(b"mine\n")
        stopped = bench.run(name, "a", overwrite=name in REPLACING)
        assert "Traceback" not in stopped.errors
        if not foreign.is_file() or foreign.read_bytes() != b"mine\n":
            replaced.append(path)
    assert [path for path in replaced if not REPLACED.fullmatch(path)] == []
