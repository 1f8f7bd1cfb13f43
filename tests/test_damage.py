"""No damaged file crashes a reader, hangs it, fills the memory, leads it out of its folder or changes tokens in silence
where checksums promise that it cannot.

`make test` tries a few damages of every kind of file. The long form tries as many as NANOSET_DAMAGE says, NANOSET_SEED
chooses others, and -rP prints the counts:

    NANOSET_DAMAGE=100000 NANOSET_SEED=1 python -m pytest -n0 -rP tests/test_damage.py

A worker is forked from a nursery, with 1 GiB of memory, and 5 seconds of processor time a file. It writes a line for
each to a log, so the one at which it died is known; another worker goes on after it.
"""

import contextlib
import gzip
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import zstandard
from file_kinds import KINDS, LOADERS
from inputs import write_inputs
from kills import Nursery

from nanoset_ref.streaming import CompressedDictionary

COUNT, SEED = (
    int(os.environ.get("NANOSET_DAMAGE", 600)),
    os.environ.get("NANOSET_SEED", "0"),
)
GIB, SECONDS = 1 << 30, 5
CLEAN = ValueError, TypeError, IndexError, OSError

# ---- how a file is damaged

NUMBERS = [
    0,
    1,
    -1,
    2,
    255,
    2**16,
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**62,
    2**63,
    2**64,
    10**30,
    1e308,
    float("nan"),
]
OTHERS = [
    None,
    True,
    "",
    "x",
    "3",
    "../x",
    "/dev/zero",
    "é" * 9999,
    [],
    {},
    [[[]]],
    {"x": [1]},
    [1] * 999,
]
IN_PLACE = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "link": partial(os.symlink, "/dev/zero"),
}
WAYS = [
    "flip",
    "tree",
] * 5 + "cut splice splice word swap deep bomb pipe folder link nothing".split()


def write_bombs(folder):
    """A small file of each kind that is decompressed, which grows beyond all limits."""
    (folder / "bomb.gz").write_bytes(gzip.compress(bytes(GIB // 64)) * 99)
    (folder / "bomb.zst").write_bytes(zstandard.compress(bytes(GIB // 64)) * 99)
    values = CompressedDictionary("xz")
    values.max_value_bytes = GIB
    values[0] = [[]] * (1 << 23)
    values.dump(folder / "bomb.cd")


def places(node):
    """Where in a tree of JSON something stands."""
    for key in (
        node
        if isinstance(node, dict)
        else range(len(node))
        if isinstance(node, list)
        else ()
    ):
        yield node, key
        yield from places(node[key])


def damaged_tree(chance, content):
    """JSON with one value replaced, put in twice or left out."""
    root = [json.loads(content)]
    node, key = chance.choice(list(places(root)))
    node[key] = chance.choice([*NUMBERS, *OTHERS, [node[key]] * 2])
    if chance.randrange(5) == 0 and node is not root:
        del node[key]
    return json.dumps(root[0]).encode()


def damaged(chance, what, content, other):
    """The content after a damage; `other` is that of another file of its kind."""
    start, at = (chance.randrange(len(content) + 1) for _ in range(2))
    few, number = chance.choice([1, 4, 8, 64]), chance.choice(NUMBERS[:13]) % 2**64
    changed = bytearray(content)
    if what == "flip":
        for _ in range(chance.choice([1, 1, 1, 2, 9]) if content else 0):
            changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    elif what == "cut":
        del changed[at:]
    elif what == "splice":
        changed[at : at + chance.choice([0, few])] = chance.choice(
            [bytes(few), chance.randbytes(few), content[start:]]
        )
    elif what == "word":
        at -= at % 4
        changed[at : at + 8] = number.to_bytes(8, "little")[: len(changed) - at]
    elif what == "deep":
        return chance.choice([b"[", b'{"a":', b"- "]) * chance.choice(
            [50, 2000, 100_000]
        )
    elif what == "tree":
        with contextlib.suppress(ValueError):
            return damaged_tree(chance, content)
    else:
        return other
    return bytes(changed)


# ---- the worker


def judged(name, folder, target, truth):
    _, read, unchecked, _ = KINDS[name]
    try:
        content = repr(read(folder))
    except CLEAN as error:
        named = name.endswith("'s state") or re.search(
            f"{folder.name}|{target.name}", str(error)
        )
        return (
            "refused" if named else f"! names no file: {type(error).__name__}: {error}"
        )
    except Exception as error:
        return f"! {type(error).__name__}: {error}"
    if content == truth:
        return "right"
    return (
        "other, unchecked"
        if re.search(unchecked, target.name)
        else "! other content in silence"
    )


def contents(folder, pattern=""):
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        path: path.read_bytes()
        for path in paths
        if re.search(pattern, path.relative_to(folder).as_posix())
    }


def restore(files):
    """Write files anew: a process that still maps the old ones keeps them."""
    for path, content in files.items():
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.write_bytes(content)


def damage(chance, target, content, other, second):
    """Put a damaged file in the place of `target`; returns how it was damaged."""
    what, bomb = chance.choice(WAYS), other / f"bomb{target.suffix}"
    if what in IN_PLACE:
        target.unlink()
        IN_PLACE[what](target)
        return what
    if what == "nothing":
        return what
    if what == "bomb" and bomb.exists():
        second = bomb
    target.write_bytes(
        damaged(chance, what, content, second.read_bytes() if second.exists() else b"")
    )
    return what


def work(words):
    """Judge examples first:last of a kind."""
    name, *paths, first, last = words
    folder, other, log = map(Path, paths)
    warnings.simplefilter("ignore")
    files, truth = contents(folder, KINDS[name][0]), repr(KINDS[name][1](folder))
    virtual = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    )
    resource.setrlimit(resource.RLIMIT_AS, (virtual + GIB, virtual + GIB))
    known = (
        str(folder),
        str(other),
        sys.prefix,
        sys.base_prefix,
        str(Path(__file__).parents[1]),
        "/proc",
        "/sys",
        *filter(
            None, sys.path
        ),  # kernels are compiled after some calls, which imports numba
    )
    opened = []
    sys.addaudithook(
        lambda event, details: event == "open" and opened.append(str(details[0]))
    )
    with open(log, "ab", 0) as file:
        for number in range(int(first), int(last)):
            chance = random.Random(f"{name} {SEED} {number}")
            target = chance.choice(list(files))
            restore(files)
            what = damage(
                chance, target, files[target], other, other / target.relative_to(folder)
            )
            opened.clear()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(60)  # for one that waits, also on a busy machine
            verdict = judged(name, folder, target, truth)
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            if what == "nothing" and verdict != "right":
                verdict = f"! a whole file is {verdict}"
            # a damaged config may name a path that is not there, or a device, which is refused once opened
            read = [os.path.abspath(path) for path in opened if os.path.isfile(path)]
            if left := [path for path in read if not path.startswith(known)]:
                verdict = f"! leaves its folder: {left[0]}"
            file.write(
                f"{number}\t{what} {target.suffix}\t{' '.join(verdict.split())[:200]}\n".encode()
            )
    restore(files)


# ---- the test


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """The folder that is damaged, one with other files of the same names, and where the log is."""
    folder = tmp_path_factory.mktemp("damage")
    for version, name in enumerate(["inputs0", "inputs1"]):
        write_inputs(folder / name, version)
        for state, make in LOADERS.items():
            loader = make(folder / name)
            next(iter(loader))
            (folder / name / f"{state}.json").write_text(
                json.dumps(loader.state_dict())
            )
    write_bombs(folder / "inputs1")
    return folder / "inputs0", folder / "inputs1", folder / "log"


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


@pytest.mark.only_on("linux")  # looks into /proc
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_read_right_or_refused(nursery, inputs, name):
    count = int(COUNT * KINDS[name][3] / sum(share for *_, share in KINDS.values()))
    whole, (folder, _, log) = contents(inputs[0]), inputs
    log.write_text(
        ""
    )  # to have a line for each damaged file: its number, what was done, and the verdict
    while (done := len(log.read_text().splitlines())) < count:
        end = nursery.run(
            ["test_damage:work", name, *inputs, done, count],
            folder,
            "none",
            seconds=7200,
        )
        restore(whole)
        if end.code:
            hangs = end.code in (-signal.SIGALRM, -signal.SIGPROF)
            verdict = (
                "hangs" if hangs else f"ends with {end.code}: {end.errors[-200:]!r}"
            )
            with log.open("a") as file:
                file.write(f"{len(log.read_text().splitlines())}\t?\t! {verdict}\n")
    found = [line.split("\t") for line in log.read_text().splitlines()]
    outcomes = Counter(
        "bad" if verdict[0] == "!" else verdict for _, _, verdict in found
    )
    sys.stdout.write(f"{name}: {len(found)} damaged files, {dict(outcomes)}\n")
    problems = {}
    for number, what, verdict in found:
        if verdict[0] == "!":
            kind = what.split()[-1] + re.sub("(: [^:]*).*", r"\1", verdict)
            problems.setdefault(kind, []).append(f"{number} {what}: {verdict}")
    assert not problems, "\n".join(
        f"{len(them)} x {kind}, first {them[0]}" for kind, them in problems.items()
    )
