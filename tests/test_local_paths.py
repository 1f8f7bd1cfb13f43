"""Only token files may be in a bucket: a URL for anything else is refused before anything is done."""

from unittest.mock import Mock

import numpy as np
import pytest

from nanoset_ref.chunks import chunks_to_tokens, download, mix, tokenize
from nanoset_ref.chunks.corpus import prepare_corpus
from nanoset_ref.chunks.subset_tokenization import TokenizeConfig
from nanoset_ref.cli import main
from nanoset_ref.io.index_cache import load_or_build
from nanoset_ref.load import DatatroveNanoset
from nanoset_ref.tokens.bin_idx_writer import MMapIndexedDatasetBuilder
from nanoset_ref.train.checkpoint import Checkpoints
from nanoset_ref.train.config import CheckpointsConfig

URL = "s3://bucket/folder"


def write_rows(folder):
    (folder / "a").mkdir()
    (folder / "a/train.jsonl").write_text(
        '{"token_ids": [1, 2, 3], "source": "a"}\n' * 4
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: load_or_build(URL, {}, ["a"], lambda: [np.arange(3)]),
        lambda: Checkpoints(URL, Mock()),
        lambda: CheckpointsConfig(checkpoints_path=URL, checkpoint_interval=1),
        lambda: prepare_corpus(URL),
        lambda: chunks_to_tokens("a", f"{URL}_input_ids.npy", vocab_size=10),
        lambda: mix(".", URL, "a", 2, 0),
        lambda: mix(URL, "out", "a", 2, 0),
        lambda: tokenize("a", URL, TokenizeConfig(tokenizer="none")),
        lambda: download(out_root=URL, urls="urls.txt"),
        lambda: MMapIndexedDatasetBuilder(f"{URL}.bin"),
        lambda: DatatroveNanoset(URL, None, 8, 3),
    ],
)
def test_a_url_is_refused_where_only_a_local_path_works(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    message = r"must be a local path, got s3://bucket/folder.*: only token files may be"
    with pytest.raises(ValueError, match=message):
        call()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "command",
    [
        "split x.npy s3://b/a.npy v.npy --held-out 1 --eos-token-id 3",
        "inspect x.npy --png s3://b/a.png",
        "replay 1 --data x.npy --sequence-length 4 --output s3://b/a.npy",
        "chunks convert a/train.jsonl --output_prefix s3://b/c --vocab_size 10",
    ],
)
def test_a_command_writes_to_the_disk(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path)
    np.arange(40, dtype="<u2").tofile("x.npy")
    before = sorted(tmp_path.rglob("*"))
    assert main(command.split()) == 1
    assert "must be a local path" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
