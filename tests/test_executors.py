"""The commands on datatrove's executors write the same bytes as on one machine."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from datatrove.executor import SlurmPipelineExecutor

from nanoset_ref import prepare_corpus
from nanoset_ref.cli import Commands, main

DOCS = Path(__file__).parent.parent / "docs"
SOURCES = ("stories", "programs")
# Slurm's part: `sbatch` runs every task of the array at once, `srun` is the task itself
SBATCH = """#!/bin/bash
for script; do :; done
for task in $(seq 0 $(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$script")); do
    SLURM_ARRAY_TASK_ID=$task SLURM_NODELIST=localhost SLURM_NODEID=0 bash "$script" >&2
done
echo 1
"""
SRUN = """#!/bin/sh
while [ "$1" != launch_pickled_pipeline ]; do shift; done
exec "$@"
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    prepare_corpus(folder)
    for name, sources in {
        "whole": SOURCES,
        **{source: (source,) for source in SOURCES},
    }.items():
        assert main(words(folder, folder / name, *sources)) == 0
    return folder


def words(corpus, output, *sources):
    inputs = [str(corpus / f"{source}.jsonl") for source in sources]
    options = {
        "--output-prefix": output,
        "--tokenizer-name-or-path": corpus / "tokenizer",
        "--backend": "hf",
    }
    flat = [str(word) for pair in options.items() for word in pair]
    return ["preprocess", "--input", *inputs, "--column", "text", "--append-eod", *flat]


@pytest.mark.filterwarnings("ignore")  # datatrove's and Ray's own
def test_local_processes_as_the_documentation_starts_them(
    corpus, tmp_path, monkeypatch
):
    (tmp_path / "text").mkdir()
    for number, source in enumerate(SOURCES):
        (tmp_path / "text" / f"{number}.jsonl").symlink_to(corpus / f"{source}.jsonl")
    (tmp_path / "tokenizer").symlink_to(corpus / "tokenizer")
    monkeypatch.chdir(tmp_path)
    exec((DOCS / "executors.md").read_text().split("```python")[1].split("```")[0], {})
    ids = "whole_input_ids.npy"
    assert (tmp_path / "corpus_input_ids.npy").read_bytes() == (
        corpus / ids
    ).read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_the_script_that_is_written_for_slurm_makes_chunks(
    corpus, tmp_path, monkeypatch
):
    (tmp_path / "bin").mkdir()
    for name, script in {
        "sbatch": SBATCH,
        "srun": SRUN,
        "scontrol": "#!/bin/sh\necho localhost\n",
    }.items():
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    folders = (
        str(tmp_path / "bin"),
        str(Path(sys.executable).parent),
        os.environ["PATH"],
    )
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    for source in SOURCES:
        (tmp_path / "text" / source).mkdir(parents=True)
        (tmp_path / "text" / source / "1.jsonl").write_bytes(
            (corpus / f"{source}.jsonl").read_bytes()
        )

    tokenize = [
        "chunks",
        "tokenize",
        "--input-root",
        f"{tmp_path}/text",
        "--tokenizer",
        f"{corpus}/tokenizer",
    ]
    tokenize += [
        "--eos-text",
        "<|endoftext|>",
        "--concat-tokens",
        "65",
        "--backend",
        "hf",
        "--out-root",
    ]
    mix = [
        "chunks",
        "mix",
        "--num-chunks",
        "3",
        "--num-valid-samples-per-subfolder",
        "5",
        "--input-root",
    ]
    subsets = ["--subfolders", ",".join(SOURCES)]
    assert (
        main([*tokenize, f"{tmp_path}/rows"])
        == main([*mix, f"{tmp_path}/rows", *subsets, "--out-root", f"{tmp_path}/a"])
        == 0
    )

    apart = Commands(
        [[*tokenize, f"{tmp_path}/r", "--subfolders", source] for source in SOURCES]
    )
    together = Commands(
        [[*mix, f"{tmp_path}/r", *subsets, "--out-root", f"{tmp_path}/b"]]
    )
    settings = {
        "time": "1:00:00",
        "partition": "cpu",
        "venv_path": str(Path(sys.prefix, "bin", "activate")),
    }
    first = SlurmPipelineExecutor(
        [apart], tasks=2, logging_dir=f"{tmp_path}/logs", **settings
    )
    SlurmPipelineExecutor(
        [together], tasks=1, depends=first, logging_dir=f"{tmp_path}/m", **settings
    ).run()
    assert "--array=0-1" in (tmp_path / "logs" / "launch_script.slurm").read_text()
    written = {
        path.relative_to(tmp_path / "a"): path.read_bytes()
        for path in (tmp_path / "a").rglob("*.jsonl")
    }
    assert len(written) == 3 + 2
    assert {path: (tmp_path / "b" / path).read_bytes() for path in written} == written


@pytest.mark.only_on("linux", below=(3, 14))  # as ray
def test_ray_on_a_cluster_of_two_nodes(corpus, tmp_path):
    script = Path(__file__).with_name("on_ray.py")
    command = [sys.executable, script, corpus, tmp_path, *SOURCES]
    # datatrove 0.10.1 writes a task's log into ray_logs there, which may be another user's, and waits forever if it
    # cannot; a path of at most 107 characters, because Ray opens sockets below it
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        subprocess.run(command, env=os.environ | {"TMPDIR": folder}, check=True)
    for path in corpus.glob("whole_input_ids*"):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_a_task_without_some_documents_is_done_and_may_run_again(
    corpus, tmp_path, capsys
):
    lines = ['{"text": "A"}', '{"text": 1}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    options = "--append-eod", "--on-error", "skip", "--overwrite"
    paths = "--input", tmp_path / "a.jsonl", "--output-prefix", tmp_path / "a"
    tokenizer = "--tokenizer-name-or-path", corpus / "tokenizer"
    step = Commands([[*map(str, ("preprocess", *paths, *tokenizer, *options))]])
    for _ in range(2):
        assert step(["unchanged"]) == ["unchanged"]
        assert "1 of 2 documents" in capsys.readouterr().err


def test_a_command_that_fails_says_why():
    with pytest.raises(
        RuntimeError,
        match=r"nanoset-ref merge nowhere.npy all.npy ended with exit code 1: .*nowhere",
    ):
        Commands([["merge", "nowhere.npy", "all.npy"]])()
