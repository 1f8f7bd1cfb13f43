"""Tokenize with datatrove, if one machine is not enough and torchrun is not available.

datatrove (optional: `pip install nanoset_ref[datatrove]`) runs a list of steps as many independent
tasks, on this machine or as a Slurm job array, and records which tasks are done. Its tokenizer
writes a folder of .ds files, which a Nanoset reads unchanged (`nanoset_ref.tokens`). On this
machine:

    from datatrove.executor import LocalPipelineExecutor
    steps = datatrove_pipeline(
        "redpajama_v1/arxiv", "datasets/arxiv", "huggyllama/llama-7b", eos_text="</s>"
    )
    LocalPipelineExecutor(steps, tasks=64, workers=16, logging_dir="logs/arxiv").run()

On a cluster, run the same steps as an array of 1,000 jobs of 4 cores; a second call starts the
missing jobs:

    from datatrove.executor import SlurmPipelineExecutor
    SlurmPipelineExecutor(
        steps, tasks=1000, time="04:00:00", partition="cpu", cpus_per_task=4, mem_per_cpu_gb=2,
        job_name="tokenize-arxiv", logging_dir="logs/arxiv", venv_path=".venv",
    ).run()

Then train on `DatatroveNanoset(["datasets/arxiv", ...], weights, sequence_length, ...)`.

Differences from `tokenize`: the order of documents depends on the number of tasks (each task has
its own files and shuffles their documents), the only separator is an EOS, and a document that
cannot be read stops its task.
"""

import dataclasses
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from nanoset_ref.io.extras import extra
from nanoset_ref.io.paths import PathLike
from nanoset_ref.preprocess.text import open_text

with extra("datatrove", "a datatrove pipeline"):
    from datatrove.data import Document
    from datatrove.pipeline.tokens import DocumentTokenizer


def datatrove_pipeline(
    input: PathLike,
    output_folder: PathLike,
    tokenizer: PathLike,
    *,
    eos_text: str,
    column: str = "text",
    **options: Any,
) -> list[Any]:
    """Make the steps that tokenize `input` into `output_folder`: read; tokenize and write.

    Args:
        input: a folder with the files of one subset (.jsonl, .json, also .gz and .zst, or
            .parquet), a file or a glob.
        output_folder: the folder of the .ds files; each task writes its own files.
        tokenizer: name on the Hub, a folder with a tokenizer.json, or such a file.
        eos_text: the token after each document.
        column: the column with the text.
        **options: passed to datatrove's DocumentTokenizer, for example `shuffle_documents` and its
            `seed`.
    """
    file = Path(tokenizer, "tokenizer.json")
    name = os.fspath(file if file.is_file() else tokenizer)
    writer = DocumentTokenizer(
        os.fspath(output_folder),
        tokenizer_name_or_path=name,
        eos_token=eos_text,
        **options,
    )
    return [partial(_read, os.fspath(input), column), writer]


def _read(
    input: str, column: str, data: object, rank: int, world_size: int
) -> Iterator[Document]:
    """Yield the documents of `open_text`; task r of R reads files r, r + R, r + 2R, ..."""
    source = open_text(input, column=column)
    share = dataclasses.replace(source, parts=source.parts[rank::world_size])
    for number, document in enumerate(share.documents()):
        yield Document(
            text=document.text, id=f"{document.block.part.path}/{rank}/{number}"
        )
