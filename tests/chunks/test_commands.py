"""The commands, from subsets to a token file, and what they say."""

import json
import re

import pytest
from tokenizers import Tokenizer

from nanoset_ref.chunks import (
    TokenizeConfig,
    mix,
    subset_tokenization,
    tokenize,
    validate,
)
from nanoset_ref.chunks.chunk_manifest import (
    Account,
    ChunkManifest,
    ManifestError,
    accounts_table,
)
from nanoset_ref.chunks.commands import main
from nanoset_ref.chunks.output_folder import finished_manifest
from nanoset_ref.tokens import TokenFile


@pytest.fixture
def golden(golden, tmp_path):
    """The same folder at a path without spaces, so that a command can be split into words."""
    link = tmp_path / "golden"
    link.symlink_to(golden)
    return link


def test_the_commands_of_the_documentation_one_after_the_other(
    golden, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    tokenizer, subsets = (
        str(golden / "tokenizer"),
        "tokens/redpajama_v1/arxiv,tokens/redpajama_v1/c4",
    )
    tokenize = f"tokenize --input_root {golden}/amber/input --out_root tokens --tokenizer {tokenizer}"
    mix = f"mix --input_root tokens --out_root mixed --subfolders={subsets} --num_chunks 12 --shuffle"
    accounts = "subset +documents +document tokens +separator tokens +samples +written tokens +tail tokens"
    for command, said, times in (
        (f"{tokenize} --concat_tokens 17 --num_workers 1 --eos_text </s>", accounts, 1),
        (f"{mix} --num_valid_samples_per_subfolder 5", "leftover", 1),
        (
            "validate mixed --sources redpajama_v1/arxiv redpajama_v1/c4",
            r"\A14 files, [\d,]+ lines: all good\n\Z",
            1,
        ),
        ("validate mixed --verbose", "lines, 0 bad", 14),
        ("convert mixed/train --output_prefix datasets/mixed", "rows", 1),
        (
            "convert mixed/train --output_prefix datasets/mixed --format megatron",
            "rows",
            1,
        ),
    ):
        assert main(command.split()) == 0
        assert len(re.findall(said, capsys.readouterr().out)) == times
    manifest = ChunkManifest.read(tmp_path / "mixed")
    samples = sum(entry.train for entry in manifest.conservation)
    assert (
        TokenFile(tmp_path / "datasets/mixed_input_ids.npy").num_samples(16) == samples
    )
    assert (tmp_path / "datasets/mixed.bin").stat().st_size == samples * 17 * 2


def test_real_text_in_36_chunks_accounted_for_to_the_token(real_text, tmp_path):
    for name, file in (("speeches", "speeches.jsonl"), ("scenes/test", "scenes.jsonl")):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / file).symlink_to(real_text / file)
    config = TokenizeConfig(
        tokenizer=str(real_text / "gpt2"), concat_tokens=33, eos_text="<|endoftext|>"
    )
    tokens = tokenize(tmp_path / "in", tmp_path / "tokens", config)
    mixed = mix(
        tmp_path / "tokens", tmp_path / "mixed", list(tokens), 36, 100, shuffle=True
    )
    assert all(
        found.ok for found in validate([tmp_path / "tokens", tmp_path / "mixed"])
    )
    tokenizer = Tokenizer.from_file(str(real_text / "gpt2/tokenizer.json"))
    for account, (name, manifest) in zip(
        mixed.conservation, tokens.items(), strict=True
    ):
        [file] = (tmp_path / "in" / name).iterdir()
        texts = [json.loads(line)["text"] for line in file.read_text().splitlines()]
        num_tokens = sum(
            len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts)
        )
        of_subset = manifest.conservation[0]
        assert (of_subset.document_tokens, of_subset.separator_tokens) == (
            num_tokens,
            len(texts),
        )
        assert num_tokens + len(texts) == 33 * account.samples + of_subset.tail_tokens
        assert (
            account.train
            == account.samples - 100 - account.leftover
            == (account.samples - 100) // 36 * 36
        )


def test_bad_lines_and_wrong_inputs_end_with_exit_code_1(golden, tmp_path, capsys):
    path, gone = tmp_path / "x.jsonl", tmp_path / "missing.jsonl"
    path.write_text('{"token_ids": [1, 2, 3]}\n{"token_ids": [1]}\n')
    tokenize = f"tokenize --input_root {golden}/amber/input --out_root {tmp_path}/out --tokenizer {golden}/tokenizer"
    for command, said in (
        (f"validate {path} --num_tokens 3", "1 token_ids, expected 3: line 2"),
        (f"validate {path} --num_tokens 3", "\n1 file, 2 lines: 1 bad file\n"),
        (
            f"validate {gone}",
            f"nanoset_ref.chunks validate: error: {gone}: No such file",
        ),
        (tokenize, "nothing separates the documents"),
        (f"{tokenize} --concat-tokens=1", "concat_tokens must be at least 2"),
    ):
        assert main(command.split()) == 1
        out, error = capsys.readouterr()
        assert said in (error or out)
    commands = "", "mix", "other", "download --out_root x", "--help", "mix --help"
    assert [main(command.split()) for command in commands] == [2, 2, 2, 1, 0, 0]


def test_more_than_one_percent_left_out_is_exit_code_3_and_so_it_is_when_nothing_is_left_to_do(
    golden, tmp_path, capsys
):
    (tmp_path / "in/a").mkdir(parents=True)
    (tmp_path / "in/a/x.jsonl").write_text('{"text": "good"}\n' * 97 + "{bad\n" * 3)
    options = f"--tokenizer {golden}/tokenizer --eos-text </s> --on-error skip"
    for _ in range(2):
        assert (
            main(
                f"tokenize --input-root {tmp_path}/in --out-root {tmp_path}/out {options}".split()
            )
            == 3
        )
        assert capsys.readouterr().out.endswith(
            "in a, more than 1 % of the documents were left out\n"
        )


def test_the_text_before_and_the_text_after_a_document_have_a_help_of_their_own(capsys):
    assert main(["tokenize", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "added before each document" in said and "added after each document" in said


def test_ctrl_c_ends_a_command_in_one_line(monkeypatch, capsys):
    def interrupted(input_root, out_root):
        raise KeyboardInterrupt

    monkeypatch.setattr(subset_tokenization, "find_subsets", interrupted)
    assert main("tokenize --input_root a --out_root b --tokenizer c".split()) == 1
    assert capsys.readouterr().err == (
        "nanoset_ref.chunks tokenize: error: interrupted; the same command continues after the last complete file\n"
    )


def test_the_report_adds_up_and_leaves_out_what_is_zero():
    entries = [
        Account(subset=name, samples=n, valid=1, train=n - 1, leftover=0)
        for name, n in (("a/b", 7), ("c", 1234))
    ]
    assert accounts_table(entries).splitlines() == [
        "subset  samples  valid  train",
        "a/b           7      1      6",
        "c         1,234      1  1,233",
        "total     1,241      2  1,239",
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("facts", {"vocab_size": "9"}),
        ("facts", {"concat_tokens": 0}),
        ("format", None),
        ("format", "nanoset_ref.chunks/1"),
        ("files", {"train.jsonl": {"lines": 1}}),
        ("conservation", [{"subset": "a", "samples": -1}]),
        ("carried_tail", ["a"]),
        ("complete", 1),
        ("deep", "["),
    ],
)
def test_a_broken_manifest_is_named(tmp_path, field, value):
    content = {
        "format": "nanoset_ref.chunks/2",
        "settings": {},
        "conservation": [],
        field: value,
    }
    if value is None:
        del content[field]
    deep = "[" * 10**5 if field == "deep" else ""
    (tmp_path / "manifest.json").write_text(json.dumps(content) + deep)
    with pytest.raises(
        ManifestError, match=r"manifest.json is not a valid manifest: [^\n]*$"
    ):
        ChunkManifest.read(tmp_path)


@pytest.mark.parametrize(
    "content", ["{", "[]", "[" * 10**5, json.dumps({"format": "other"})]
)
def test_the_manifest_of_somebody_else_is_left_alone(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    assert ChunkManifest.read(tmp_path) is None
    with pytest.raises(
        ManifestError, match="manifest.json exists, and no manifest says"
    ):
        finished_manifest(tmp_path, {}, [], False)
