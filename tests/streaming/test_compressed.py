"""CompressedDictionary: the golden files, the operations, and files that mean harm."""

import bz2
import copy
import gzip
import hashlib
import json
import lzma
import pickle
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref.streaming import (
    CompressedDataset,
    CompressedDictionary,
    CompressedFormatError,
)

COMPRESSIONS = ["bz2", "xz", "gzip"]


@pytest.fixture
def folder(golden):
    return golden / "iterable" / "compressed"


@pytest.fixture
def upstream(folder):
    """The golden results: a list of files, a list of operations."""
    return json.loads((folder.parent / "compressed_dictionary.json").read_text())


def of(pairs, compression="bz2"):
    new = CompressedDictionary(compression)
    new.update(pairs)
    return new


def items(dictionary):
    return [[key, value] for key, value in dictionary.items()]


def test_golden_files_decode_and_are_written_again_byte_for_byte(
    upstream, folder, tmp_path
):
    files = {entry["file"]: entry for entry in upstream["files"] if entry["file"]}
    assert len(files) == 10
    for name, entry in files.items():
        loaded = CompressedDictionary.load(folder / name)
        assert loaded.compression == entry["compression"]
        assert items(loaded) == entry["items"]
        loaded.dump(tmp_path / "again.cd")
        assert (
            hashlib.sha256((tmp_path / "again.cd").read_bytes()).hexdigest()
            == entry["sha256"]
        )
    for name in (
        "a_bz2.cd",
        "b_bz2.cd",
        "g_bigkey.cd",
        "f_empty.cd",
        "c_xz.cd",
        "e_limit2.cd",
    ):
        pairs = files[name]["items"] + [[1 << 20, "left out"]]
        of(pairs, files[name]["compression"]).dump(
            tmp_path / "made.cd", limit=len(pairs) - 1
        )
        assert (tmp_path / "made.cd").read_bytes() == (folder / name).read_bytes()
    (operation,) = [
        entry
        for entry in upstream["operations"]
        if entry["op"].startswith("load limit")
    ]
    assert (
        list(CompressedDictionary.load(folder / "a_bz2.cd", limit=2))
        == operation["result"]
    )


def test_golden_splits(upstream, folder):
    splits = [
        operation for operation in upstream["operations"] if operation["op"] == "split"
    ]
    assert len(splits) == 6
    for operation in splits:
        whole = CompressedDictionary.load(folder / operation["file"])
        parts = list(whole.split(**operation["args"]))
        assert [list(part) for part in parts] == operation["keys"]
        values = [value for part in parts for value in part.values()]
        assert values == list(whole.values())[: len(values)]


def test_golden_merges_without_the_two_defects_of_upstream(upstream, folder):
    merges = [
        operation
        for operation in upstream["operations"]
        if operation["op"].startswith("merge")
    ]
    assert len(merges) == 16
    for operation in merges:
        left, right = (
            CompressedDictionary.load(folder / operation[side])
            for side in ("left", "right")
        )
        expected = list(left.values()) + list(right.values())
        in_place, reset, result = (
            operation["op"] == "merge_",
            operation["reset_keys"],
            operation["result"],
        )
        if operation["left"] == "f_empty.cd" and in_place:
            result = {
                "keys": [0, 1, 2, 3, 4, 5]
            }  # upstream: max() of no keys is a ValueError
        merge = left.merge_ if in_place else left.merge
        if (
            "error" in result
        ):  # upstream: also OSError, where the new dictionary has forgotten its compression
            with pytest.raises(
                ValueError,
                match=r"key [03] occurs more than once in these dictionaries",
            ):
                merge(right, reset)
            assert list(left.values()) == expected[: len(left)]
            continue
        merged = merge(right, reset) or left
        assert list(merged) == result["keys"]
        assert list(merged.values()) == expected
        assert (
            merged.compression == left.compression
        )  # upstream's "readable": false for xz


def test_golden_combine_on_disk(upstream, folder, tmp_path):
    combined = [
        entry
        for entry in upstream["files"]
        if entry.get("made_by") == "combine_on_disk"
    ]
    assert len(combined) == 4
    for entry in combined:
        inputs, target = (
            [folder / name for name in entry["inputs"]],
            tmp_path / "combined.cd",
        )
        if "error" in entry:
            with pytest.raises(ValueError, match="key 0 occurs more than once"):
                CompressedDictionary.combine_on_disk(target, *inputs, **entry["args"])
            continue
        CompressedDictionary.combine_on_disk(target, *inputs, **entry["args"])
        assert items(CompressedDictionary.load(target)) == entry["items"]
        assert CompressedDictionary.open(target).compression == entry["compression"]
        target.unlink()
    assert list(tmp_path.iterdir()) == []  # nothing half written


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"))
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
    ),
)


@settings(deadline=None, max_examples=40)
@given(
    st.dictionaries(st.integers(-(2**31), 2**31 - 1), JSON, max_size=8),
    st.sampled_from(COMPRESSIONS),
)
def test_dump_and_load_return_the_same_values(tmp_path_factory, content, compression):
    path = tmp_path_factory.mktemp("cd") / "d.cd"
    made = of(content.items(), compression)
    assert dict(made) == content
    made.dump(path)
    assert list(CompressedDictionary.load(path).items()) == list(content.items())
    dataset = CompressedDataset(None, path)
    assert dataset[:] == [content[key] for key in sorted(content)]
    assert CompressedDataset(None, made)[:] == dataset[:]
    assert pickle.loads(pickle.dumps(dataset))[:] == dataset[:]


def test_it_is_a_dictionary():
    d = of({5: "five", -1: [1]}.items())
    del d[5]
    assert (5 in d, -1 in d, len(d), d.get(5), d == {-1: [1]}) == (
        False,
        True,
        1,
        None,
        True,
    )
    with pytest.raises(KeyError):
        d[5]


@pytest.mark.parametrize("is_opened", [False, True])
def test_unions_keep_the_compression_of_the_left(tmp_path, is_opened):
    left, right = CompressedDictionary("bz2"), CompressedDictionary("gzip")
    left[0], left[1], right[1] = "zero", "one", "other"
    right.dump(tmp_path / "right.cd")
    if is_opened:
        right = CompressedDictionary.open(tmp_path / "right.cd")
    for union in (left | right, left | {1: "other"}):
        assert dict(union) == {0: "zero", 1: "other"} and union.compression == "bz2"
    assert dict(left) == {0: "zero", 1: "one"}
    union = {1: "other", 5: "five"} | left
    assert dict(union) == {1: "one", 5: "five", 0: "zero"}
    assert [*union] == [1, 5, 0] and union.compression == "bz2"
    left |= right
    left |= {2: "two"}
    left.dump(tmp_path / "left.cd")
    stored = CompressedDictionary.open(tmp_path / "left.cd")
    assert dict(stored) == {0: "zero", 1: "other", 2: "two"}
    for dictionary in (left, stored):
        assert 1 in dictionary and 3 not in dictionary
        assert "a" not in dictionary and None not in dictionary
        assert dictionary.get("a") is None


@pytest.mark.parametrize("reset_keys", [False, True])
def test_values_can_be_merged_into_a_file_that_is_open_for_reading(
    tmp_path, reset_keys
):
    one, other = CompressedDictionary(), CompressedDictionary()
    one[0], other[5] = "a", "b"
    one.dump(tmp_path / "one.cd")
    content = (tmp_path / "one.cd").read_bytes()
    opened = CompressedDictionary.open(tmp_path / "one.cd")
    opened.merge_(other, reset_keys=reset_keys)
    assert dict(opened) == {0: "a", 1 if reset_keys else 5: "b"}
    assert (tmp_path / "one.cd").read_bytes() == content


def test_a_copy_of_a_file_that_is_open_for_reading_is_a_dictionary_of_its_own(
    tmp_path,
):
    of({1: "a"}).dump(tmp_path / "a")
    opened = CompressedDictionary.open(tmp_path / "a")
    for duplicate in (copy.copy(opened), copy.deepcopy(opened), opened.copy()):
        duplicate.merge_(of({7: "b"}))
        assert (dict(duplicate), dict(opened)) == ({1: "a", 0: "b"}, {1: "a"})


def test_wrong_arguments_say_what_is_right(tmp_path):
    for key in (2**31, -(2**31) - 1, 2**40):
        with pytest.raises(ValueError, match="32 signed bits"):
            of([(key, "x")])
    with pytest.raises(ValueError, match=r"\['bz2', 'xz', 'gzip'\]"):
        CompressedDictionary("lz4")
    for pair in (("key", 1), (1, object())):
        with pytest.raises(TypeError):
            of([pair])
    with pytest.raises(ValueError, match="either parts or parts_length"):
        of([]).split()
    with pytest.raises(ValueError, match="parts must be at least 1"):
        of([]).split(parts=0)
    with pytest.raises(ValueError, match="at least one file"):
        CompressedDictionary.combine_on_disk(tmp_path / "x.cd")
    with pytest.raises(FileNotFoundError):
        CompressedDictionary.load(tmp_path / "none.cd")
    of([(1, "x")]).dump(tmp_path / "x.cd")
    with pytest.raises(TypeError, match="x.cd was opened for reading; `load` makes"):
        CompressedDictionary.open(tmp_path / "x.cd")[1] = "y"


def test_a_merge_keeps_the_compression_of_the_left():
    left = of([(0, "a")], "xz")
    left.merge_(of([(0, "b")], "gzip"))
    assert (dict(left), left.compression) == ({0: "a", 1: "b"}, "xz")


# ---- files that mean harm


def record(payload):
    return struct.pack("<I", len(payload)) + payload


def header(compression="bz2"):
    return record(json.dumps({"compression": compression}).encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "invalid header"),
        (b"\x00", "invalid header"),
        (b"\xff\xff\xff\xff{}", "invalid header"),
        (b"\xff\xff\xff\xff" + header()[4:], "record at byte 4294967299 is damaged"),
        (record(b"not json"), "invalid header"),
        (record(b"[1]"), "invalid header"),
        (record(b'{"compression": "rot13"}'), "must be one of"),
        (record(b'{"compression": ["bz2"]}'), "invalid header"),
        (record(b"[" * 4000), "invalid header"),
        (header() + b"\x01", "record at byte 26 is damaged"),
        (header() + record(b"abc"), "record at byte 26 is damaged"),
        (
            header() + struct.pack("<Ii", 1000, 1) + b"short",
            "record at byte 26 is damaged",
        ),
        (header() + struct.pack("<Ii", 2**32 - 1, 1), "record at byte 26 is damaged"),
        (
            header() + 2 * record(struct.pack("<i", 7) + bz2.compress(b"1")),
            "key 7 occurs more than once",
        ),
    ],
)
def test_a_damaged_file_is_refused_when_it_is_opened(tmp_path, content, message):
    (tmp_path / "bad.cd").write_bytes(content)
    with pytest.raises(CompressedFormatError, match=message):
        CompressedDictionary.load(tmp_path / "bad.cd")


@pytest.mark.parametrize(
    ("compression", "payload", "message"),
    [
        ("bz2", b"no stream", "key 7 is not bz2"),
        ("bz2", bz2.compress(b"1")[:-1], "is cut off"),
        ("bz2", bz2.compress(b"1") + b"x", "or has bytes after its end"),
        ("bz2", bz2.compress(b"1") * 2, "or has bytes after its end"),
        ("bz2", bz2.compress(b"{"), "key 7 is not JSON"),
        ("bz2", bz2.compress(b"[" * 200_000), "key 7 is not JSON"),
        ("bz2", bz2.compress(b"\xff"), "key 7 is not JSON"),
        ("xz", b"", "is cut off"),
        ("xz", lzma.compress(b"1", lzma.FORMAT_ALONE), "key 7 is not xz"),
        ("gzip", b"\x80\x04K\x01.", "key 7 is not gzip"),
    ],
)
def test_a_damaged_value_is_an_error_of_that_value_only(
    tmp_path, compression, payload, message
):
    bad = header(compression) + record(struct.pack("<i", 7) + payload)
    good = of([(8, "good")], compression)
    good.dump(tmp_path / "good.cd")
    (tmp_path / "bad.cd").write_bytes(
        bad + (tmp_path / "good.cd").read_bytes()[len(header(compression)) :]
    )
    dataset = CompressedDataset(None, tmp_path / "bad.cd")
    assert dataset[1] == "good"
    with pytest.raises(CompressedFormatError, match=message):
        dataset[0]
    if "JSON" not in message:  # compressing anew does not parse
        with pytest.raises(CompressedFormatError, match=message):
            of([], "xz" if compression != "xz" else "bz2").merge(dataset.dictionary)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_decompression_bomb_is_an_error_before_it_goes_off(tmp_path, compression):
    """The limit is 16 MiB of JSON: 64 MiB of short lists within lists would be more than 2 GiB of objects."""
    compress = {"bz2": bz2.compress, "xz": lzma.compress, "gzip": gzip.compress}[
        compression
    ]
    bomb, path = compress(b"[" + b" " * (16 << 20) + b"]"), tmp_path / "bomb.cd"
    path.write_bytes(header(compression) + record(struct.pack("<i", 7) + bomb))
    assert path.stat().st_size < 20_000
    with pytest.raises(
        CompressedFormatError,
        match="grows beyond 16777216 bytes; set a larger max_value_bytes",
    ):
        CompressedDataset(None, path)[0]
    with pytest.raises(CompressedFormatError, match="grows beyond 16777216 bytes"):
        other = next(name for name in COMPRESSIONS if name != compression)
        CompressedDictionary.combine_on_disk(
            tmp_path / "all.cd", path, compression=other
        )
    loaded = CompressedDictionary.load(path)
    loaded.max_value_bytes += 2
    assert CompressedDataset(None, loaded)[0] == []
    with pytest.raises(ValueError, match="max_value_bytes=16777218"):
        loaded[9] = "0" * (17 << 20)
