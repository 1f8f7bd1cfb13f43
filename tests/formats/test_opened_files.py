"""Which file a name means, through links and beside other formats, and in which dtype it is read."""

import contextlib
import pickle

import numpy as np
import pytest
from file_kinds import write_shard
from format_helpers import DOCUMENTS, as_lists, written

from nanoset_ref.io.files import write_together
from nanoset_ref.load.nanoset import Nanoset
from nanoset_ref.tokens import (
    TokenFile,
    TokenFileError,
    TokenFileWriter,
    convert,
    open_tokens,
    verify,
    without_companions,
)
from nanoset_ref.tokens.verification import write_seal


def test_a_pair_is_no_raw_file(source, tmp_path):
    """Its .idx knows the dtype, so its ids are not taken for uint16."""
    path = convert([source], tmp_path / "b.bin", dtype="int32").path
    with pytest.raises(
        TokenFileError,
        match=r"b\.bin is the \.bin of a Megatron pair.*open it with nanoset_ref\.open_tokens",
    ):
        TokenFile(path)
    with pytest.raises(
        TokenFileError,
        match=r"token_dtype=uint16 contradicts the file, which has int32",
    ):
        Nanoset(path, None, 4, 4, token_dtype="uint16")
    expected = Nanoset(source, None, 4, 4).read(np.arange(4))
    for name in (path, path.with_suffix(""), path.with_suffix(".idx")):
        assert np.array_equal(
            Nanoset.from_config(str(name), 4, 4).read(np.arange(4)), expected
        )


def test_an_open_file_of_another_dtype_is_refused(source):
    opened = open_tokens(source.path)
    message = f"token_dtype=int32 contradicts the file, which has {opened.dtype}"
    with pytest.raises(TokenFileError, match=message):
        Nanoset([opened], None, 4, token_dtype="int32")
    assert len(Nanoset([opened], None, 4, 3, token_dtype=opened.dtype)) == 3


def test_of_a_folder_with_every_format_only_the_token_files_are_read(source, tmp_path):
    """Each file of it is named, and each alone."""
    with write_together(), TokenFileWriter(tmp_path / "b.npy", dtype="uint16") as made:
        made.write([1, 2], [2])
        made.write_labels(["web"], [0])
    wide = [convert([source], tmp_path / f"c{end}") for end in (".bin", ".ds", ".npy")]
    raw = tmp_path / "raw_input_ids.npy"
    raw.write_bytes(source.path.read_bytes())
    write_seal(open_tokens(raw, eos_token_id=9))
    shard = write_shard(tmp_path / "d.bin", range(9))
    write_seal(open_tokens(shard))
    files = {source.path, made.path, raw, shard, *(file.path for file in wide)}
    everything = [str(path) for path in sorted(tmp_path.iterdir())]
    assert len(everything) == 7 + 13
    assert set(without_companions(everything)) == {str(path) for path in files}
    opened = []
    for path in everything:
        with contextlib.suppress(TokenFileError):
            opened.append(open_tokens(path).path)
    idx = tmp_path / "c.bin"  # either name of a pair opens it
    assert sorted(opened) == sorted([*files, idx])


@pytest.mark.parametrize("kind", [".npy", "raw", ".bin", ".ds", ".ds alone", "llm.c"])
@pytest.mark.parametrize("stored", ["uint16", "int32"])
@pytest.mark.parametrize("asked_for", ["uint16", "uint32", "int32", "int16", "float32"])
def test_no_dtype_is_read_as_another_one(tmp_path, kind, stored, asked_for):
    """uint32 is int32: ids are below 2**31. A file that records no dtype has the one asked for."""
    source = written(tmp_path / "a.npy", [[5, 6, 7, 8]], dtype=stored)
    path = tmp_path / "b.npy"
    if kind == "llm.c":
        magic, version = (20240520, 1) if stored == "uint16" else (20240801, 7)
        path = write_shard(tmp_path / "b.bin", [5, 6, 7, 8], magic, version, stored)
    elif kind == "raw":
        path.write_bytes(source.path.read_bytes())
    else:
        path = convert([source], tmp_path / f"b{kind.split()[0]}").path
    if kind == ".ds alone":
        path.with_name("b.ds.metadata").unlink()
    same = asked_for.replace("uint32", "int32")
    if same == stored or (kind in ("raw", ".ds alone") and same in ("uint16", "int32")):
        file = open_tokens(path, asked_for)
        assert file.dtype == same
        assert file.tokens.tobytes() == source.tokens.tobytes()
    else:
        with pytest.raises(TokenFileError, match="_dtype|token_size"):
            open_tokens(path, asked_for)


@pytest.mark.parametrize("recorded", [None, 0, 9])
@pytest.mark.parametrize("given_id", [None, 0, 9])
def test_an_eos_id_beside_a_manifest_agrees_with_it(tmp_path, recorded, given_id):
    path = written(tmp_path / "a.npy", [[5, 9]], eos_token_id=recorded).path
    if {recorded, given_id} == {0, 9}:
        for read in (open_tokens, TokenFile, verify):
            with pytest.raises(
                TokenFileError,
                match=f"eos_token_id={given_id} contradicts the manifest, .* {recorded}",
            ):
                read(path, eos_token_id=given_id)
    else:
        assert (
            open_tokens(path, eos_token_id=given_id).facts["eos_token_id"] == recorded
        )


@pytest.mark.parametrize("suffix", ["_input_ids.npy", ".bin", ".ds"])
def test_a_link_without_the_companions_of_its_target_is_refused(
    source, tmp_path, suffix
):
    """int32 ids would be read as twice as many uint16 ids."""
    (tmp_path / "linked").mkdir()
    path = convert([source], tmp_path / f"wide{suffix}", dtype="int32").path
    link = tmp_path / "linked" / path.name
    link.symlink_to(path)
    with pytest.raises(TokenFileError, match=f"is a link to {path}, whose dtype is in"):
        open_tokens(link)
    for companion in tmp_path.glob("wide*"):
        if companion != path:
            (link.parent / companion.name).symlink_to(companion)
    assert as_lists(open_tokens(link)) == DOCUMENTS
    whole = tmp_path / "folder"
    whole.symlink_to(tmp_path)
    assert as_lists(open_tokens(whole / path.name)) == DOCUMENTS


@pytest.mark.parametrize("suffix", ["_input_ids.npy", ".bin", ".ds"])
def test_a_companion_that_is_a_link_to_nothing_is_no_missing_companion(
    source, tmp_path, suffix
):
    """int32 ids would be read as twice as many uint16 ids, or without their documents."""
    path = convert([source], tmp_path / f"wide{suffix}", dtype="int32").path
    for companion in tmp_path.glob("wide*"):
        if companion == path or companion.suffix == ".seal":
            continue
        aside = tmp_path / "aside"
        companion.rename(aside)
        companion.symlink_to(tmp_path / "gone")
        with pytest.raises(FileNotFoundError, match="a link to a file that does not"):
            open_tokens(path).require_document_offsets()
        companion.unlink()
        aside.rename(companion)
    assert as_lists(open_tokens(path)) == DOCUMENTS


def test_a_link_to_raw_ids_is_read_like_them(source, tmp_path):
    raw = tmp_path / "raw_input_ids.npy"
    raw.write_bytes(source.path.read_bytes())
    link = tmp_path / "link_input_ids.npy"
    link.symlink_to(raw)
    assert open_tokens(link).tokens.tolist() == source.tokens.tolist()
    link.unlink()
    link.symlink_to(source.path)
    assert TokenFile(link, "uint16").num_tokens == source.num_tokens


@pytest.mark.parametrize("suffix", [".npy", ".bin", ".ds"])
def test_files_that_were_replaced_are_not_read_for_those_that_were_opened(
    source, tmp_path, suffix
):
    opened = convert([source], tmp_path / f"b{suffix}")
    waiting, dataset = open_tokens(opened.path), Nanoset(opened, None, 4, 4)
    travelled = pickle.dumps(dataset), pickle.dumps(opened)
    assert as_lists(pickle.loads(travelled[1])) == DOCUMENTS
    convert([source], tmp_path / f"b{suffix}", overwrite=True)
    for read in (
        lambda: pickle.loads(travelled[0])[0],
        lambda: pickle.loads(travelled[1]).tokens,
        lambda: Nanoset(waiting, None, 4, 4)[0],
    ):
        with pytest.raises(
            TokenFileError, match="was replaced or changed after it was opened"
        ):
            read()
    with pytest.raises(TokenFileError, match="was replaced"):
        _ = waiting.tokens
    assert opened.tokens[0] == 5, "what is mapped stays"
