"""Tokenising with the ranks of torchrun, on two nodes (which share this machine)."""

import subprocess
import sys

from ranks import free_port

from nanoset_ref.chunks import TokenizeConfig, tokenize


def run_on_two_nodes(arguments):
    """(exit code, stdout, stderr) per node; each node has one rank."""
    torchrun = (
        "-m torch.distributed.run --nnodes 2 --nproc-per-node 1 --master-addr 127.0.0.1"
    )
    torchrun = f"{torchrun} --master-port {free_port()}"
    nodes = [
        subprocess.Popen(
            [
                sys.executable,
                *torchrun.split(),
                "--node-rank",
                str(node),
                "-m",
                "nanoset_ref.chunks",
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for node in range(2)
    ]
    said = [node.communicate() for node in nodes]
    return [(node.returncode, *texts) for node, texts in zip(nodes, said, strict=True)]


def test_two_nodes_make_the_rows_of_one_process_and_skip_what_is_there(
    golden, tmp_path
):
    config = TokenizeConfig(
        tokenizer=str(golden / "tokenizer"),
        concat_tokens=65,
        eos_text="</s>",
        backend="hf",
    )
    tokenize(golden / "amber/input", tmp_path, config, subfolders="redpajama_v1/arxiv")
    before = (tmp_path / "redpajama_v1/arxiv/train.jsonl").stat().st_mtime_ns
    arguments = [
        "tokenize",
        "--input_root",
        golden / "amber/input",
        "--out_root",
        tmp_path,
    ]
    arguments += "--concat_tokens 65 --eos_text </s> --backend hf".split()
    arguments += ["--tokenizer", golden / "tokenizer"]
    (first, said, errors), (second, silence, more) = run_on_two_nodes(arguments)
    assert first == second == 0, errors + more
    assert "starcoderdata/python" in said and not silence
    assert (tmp_path / "redpajama_v1/arxiv/train.jsonl").stat().st_mtime_ns == before
    found = sorted(tmp_path.rglob("train.jsonl"))
    assert len(found) == 3
    for path in found:
        assert (
            path.read_bytes()
            == (golden / "amber/tokenized" / path.relative_to(tmp_path)).read_bytes()
        )
