"""Tokenising on datatrove's local executor, and reading what it wrote."""

import json

import numpy as np
import pytest

from nanoset_ref.load import DatatroveNanoset
from nanoset_ref.tokens import datatrove_files


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_folder_of_the_local_executor_holds_all_documents_and_a_nanoset_reads_it(
    golden, tmp_path, shuffle
):
    from datatrove.executor import LocalPipelineExecutor

    from nanoset_ref.chunks.pipeline import datatrove_pipeline

    steps = datatrove_pipeline(
        golden / "amber/input/redpajama_v1/arxiv",
        tmp_path / "arxiv",
        golden / "tokenizer",
        eos_text="</s>",
        shuffle_documents=shuffle,
        seed=1,
    )
    LocalPipelineExecutor(
        steps, tasks=2, workers=1, logging_dir=str(tmp_path / "logs")
    ).run()
    documents = json.loads((golden / "amber/document_token_ids.json").read_text())[
        "redpajama_v1/arxiv"
    ]
    files = datatrove_files(tmp_path / "arxiv")
    assert len(files) == 2
    found = [
        ids.tolist()
        for file in files
        for ids in np.split(file.tokens, file.document_offsets[1:-1])
    ]
    per_task = [
        *documents[:10],
        *documents[14:],
        *documents[10:14],
    ]  # task 0 has files 0 and 2, task 1 has file 1
    expected = [[*document, 2] for document in per_task]
    assert sorted(found) == sorted(expected)
    assert (found == expected) is not shuffle
    dataset = DatatroveNanoset([tmp_path / "arxiv"], None, 32, 50)
    assert dataset[7]["input_ids"].shape == (33,)
    rows = {
        tuple(row)
        for file in files
        for row in file.tokens[: file.num_tokens // 33 * 33].reshape(-1, 33).tolist()
    }
    assert {tuple(row) for row in dataset.read(np.arange(50)).tolist()} <= rows
