"""nanoset-ref on files: inspect, verify, convert, merge, split."""

from cli_helpers import ids_of

from nanoset_ref.tokens import TokenFile


def test_inspect_counts_and_draws(run, ask, corpus, tmp_path):
    code, text, _ = run("inspect", ids_of(corpus), "--png", tmp_path / "lengths.png")
    file = TokenFile(ids_of(corpus))
    assert code == 0
    assert (
        f"{file.num_tokens:,} tokens (uint16) in {file.manifest.num_documents:,} documents"
        in text
    )
    assert f"at the end of {file.manifest.num_documents:,} documents" in text
    assert (tmp_path / "lengths.png").read_bytes().startswith(b"\x89PNG")
    assert ask("inspect", ids_of(corpus))["num_tokens"] == file.num_tokens


def test_files_of_a_glob_are_merged_and_verified(run, ask, corpus, tmp_path):
    names = sorted(path for path in corpus.glob("*_input_ids*.npy"))
    assert len(names) == 4, "token files and their boundaries"
    assert len(ask("verify", *names)) == 2
    assert run("merge", *names, tmp_path / "both.npy")[0] == 0
    _, text, _ = run("verify", ids_of(corpus).with_suffix(".documents.npy"))
    assert "holds the document boundaries of stories_input_ids.npy" in text
    run("convert", ids_of(corpus), tmp_path / "a.bin")
    assert run("merge", *sorted(tmp_path.glob("a.*")), tmp_path / "b.npy")[0] == 0
    assert len(ask("verify", *sorted(tmp_path.glob("a.*")))) == 1


def test_raw_ids_and_a_tokenizer_become_a_described_file(run, corpus, tmp_path):
    """Nanotron's own files have no manifest: the end-of-document id gives the documents back."""
    original = TokenFile(ids_of(corpus))
    (tmp_path / "raw.npy").write_bytes(original.path.read_bytes())
    said = ("--eos-token-id", original.manifest.eos_token_id)
    assert (
        f"in {original.manifest.num_documents:,} documents"
        in run("inspect", tmp_path / "raw.npy", *said)[1]
    )
    assert run("verify", tmp_path / "raw.npy", *said)[0] == 0
    name = ("--tokenizer", original.manifest.tokenizer)
    assert (
        run("convert", tmp_path / "raw.npy", tmp_path / "a.npy", *said, *name)[0] == 0
    )
    assert TokenFile(tmp_path / "a.npy").manifest == original.manifest
    run("convert", tmp_path / "a.npy", tmp_path / "b.bin")
    assert run("convert", tmp_path / "b.bin", tmp_path / "c.npy", *name)[0] == 0
    assert TokenFile(tmp_path / "c.npy").manifest == original.manifest


def test_the_eos_id_of_a_pair_is_kept_and_what_nobody_knew_is_no_fact(
    run, corpus, tmp_path
):
    """A .bin records no EOS id, so its copy says appended_eod=False until somebody names the id."""
    eos = TokenFile(ids_of(corpus)).manifest.eos_token_id
    run("convert", ids_of(corpus), tmp_path / "a.bin")
    run("convert", tmp_path / "a.bin", tmp_path / "unknown.npy")
    assert "appended_eod" not in TokenFile(tmp_path / "unknown.npy").facts
    for source in ("a.bin", "unknown.npy"):
        target = tmp_path / f"of {source}.npy"
        run("convert", tmp_path / source, target, "--eos-token-id", eos)
        found = TokenFile(target).manifest
        assert (found.eos_token_id, found.appended_eod) == (eos, True)
    merged = run("merge", ids_of(corpus), tmp_path / "unknown.npy", tmp_path / "m.npy")
    assert merged[0] == 0


def test_verify_seals_what_holds_no_checksum_if_asked(run, ask, corpus, tmp_path):
    run("convert", ids_of(corpus), tmp_path / "a.bin")
    (tmp_path / "a.seal").unlink()
    (tmp_path / "raw.npy").write_bytes(ids_of(corpus).read_bytes())
    names = [tmp_path / "a.bin", tmp_path / "raw.npy"]
    said = ("--eos-token-id", TokenFile(ids_of(corpus)).manifest.eos_token_id)
    for options, sealed in (((), []), (("--seal",), ["a.seal", "raw.npy.seal"])):
        assert run("verify", *names, *said, *options)[0] == 0
        assert sorted(path.name for path in tmp_path.glob("*.seal")) == sealed
    assert len(ask("verify", *sorted(tmp_path.iterdir()), *said)) == 2
    (tmp_path / "raw.npy").write_bytes(ids_of(corpus).read_bytes()[::-1])
    code, text, _ = run("verify", *names, *said)
    assert code == 1 and [line.split()[0] for line in text.splitlines()] == [
        "ok",
        "BROKEN",
    ]


def test_merge_and_split(ask, corpus, tmp_path):
    ask("merge", ids_of(corpus), ids_of(corpus, "programs"), tmp_path / "both.npy")
    both = TokenFile(tmp_path / "both.npy").manifest.num_documents
    paths = [tmp_path / f"{name}.npy" for name in ("both", "train", "valid")]
    for held_out, expected in (("0.25", round(0.25 * both)), ("7", 7)):
        parts = ask("split", *paths, "--held-out", held_out, "--overwrite")
        assert [it["documents"] for it in parts] == [both - expected, expected]


def test_split_keeps_the_eos_id_that_a_pair_does_not_record(ask, corpus, tmp_path):
    ask("convert", ids_of(corpus), tmp_path / "a.bin")
    parts = [tmp_path / "train.npy", tmp_path / "valid.npy"]
    options = ["--held-out", "7", "--eos-token-id", "0"]
    ask("split", tmp_path / "a.bin", *parts, *options)
    for part in map(TokenFile, parts):
        facts = part.manifest
        assert (facts.eos_token_id, facts.appended_eod) == (0, True)


def test_verify_passes_good_files_and_names_what_is_wrong_with_others(
    run, corpus, tmp_path
):
    code, text, _ = run("verify", ids_of(corpus))
    assert code == 0
    assert "checksum as recorded" in text
    run("convert", ids_of(corpus), tmp_path / "a.npy")
    run("convert", ids_of(corpus), tmp_path / "b.bin")
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[::-1])
    code, text, _ = run(
        "verify", tmp_path / "a.npy", tmp_path / "b.bin", tmp_path / "nothing.npy"
    )
    assert code == 1
    assert [line.split()[0] for line in text.splitlines()] == ["BROKEN", "ok", "BROKEN"]
    assert "the content has changed" in text and "no token file at" in text
    code, text, _ = run("verify", tmp_path / "b.bin", "--vocab-size", 10)
    assert code == 1
    assert "outside the vocabulary of 10 ids" in text
