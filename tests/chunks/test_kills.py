"""Commands that are killed at random moments: what is there is right, and the next call completes it."""

import json
import random
import subprocess
import sys
import time

import pytest

# Imports once, then forks a child per command and kills it after the given number of seconds (never, if null).
NURSERY = """
import json, os, signal, sys, time
import transformers
from nanoset_ref.chunks.__main__ import main
transformers.AutoTokenizer, transformers.PreTrainedTokenizerFast
for line in sys.stdin:
    arguments, seconds = json.loads(line)
    start, child = time.monotonic(), os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(main(arguments))
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    print(json.dumps([status, time.monotonic() - start]), flush=True)
"""


@pytest.fixture
def run():
    command = [sys.executable, "-c", NURSERY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as nursery:

        def run(arguments, seconds=None):
            """Exit status (9: killed) and seconds taken."""
            print(json.dumps([list(map(str, arguments)), seconds]), file=nursery.stdin, flush=True)
            return json.loads(nursery.stdout.readline())

        yield run
        nursery.stdin.close()


def visible(folder):
    """The content of all files that are not hidden, as {path: bytes}; manifests that are not complete left out."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            content = path.read_bytes()
            if path.name != "manifest.json" or json.loads(content)["complete"]:
                found[path.relative_to(folder).as_posix()] = content
    return found


def write_subsets(golden, root):
    files = sorted((golden / "amber/input/redpajama_v1").rglob("*.jsonl"))
    for name in ("a", "b/c"):
        (root / name).mkdir(parents=True)
        (root / name / "x.jsonl").write_text("".join(file.read_text() for file in files) * 8)


def test_killed_at_random_moments_no_wrong_file_is_left(golden, tmp_path, run):
    generator = random.Random(time.time_ns())
    write_subsets(golden, tmp_path / "in")
    tokenizer = ["--tokenizer", golden / "tokenizer", "--backend", "hf", "--eos_text", "</s>"]
    steps = {
        "tokens": f"tokenize --input_root {tmp_path}/in --concat_tokens 9 --format both --tail carry "
        "--out_root".split(),
        "mixed": f"mix --input_root {tmp_path}/tokens --subfolders a,b/c --num_chunks 40 --shuffle "
        "--num_valid_samples_per_subfolder 9 --out_root".split(),
        "pair": f"convert {tmp_path}/mixed/train --format megatron --overwrite --output_prefix".split(),
    }
    for name, arguments in steps.items():
        whole, killed = tmp_path / name, tmp_path / f"killed_{name}"
        rest = tokenizer if name == "tokens" else []
        outputs = [folder if name != "pair" else folder / "x" for folder in (whole, killed)]
        status, seconds = run([*arguments, outputs[0], *rest])
        assert status == 0
        expected, kills = visible(whole), 0
        for latest in (0.1, 0.5, 1, 1, 1):  # the first one cannot miss
            kills += run([*arguments, outputs[1], *rest], generator.uniform(0, latest * seconds))[0] != 0
            for path, content in visible(killed).items():
                assert content == expected[path], f"{path} is wrong"
        assert kills > 0
        assert run([*arguments, outputs[1], *rest])[0] == 0
        assert visible(killed) == expected
        assert list(killed.rglob(".*")) == []
