"""Writing and reading lines of records."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref.chunks import records as module
from nanoset_ref.chunks.records import format_records, read_records


def parse(tmp_path, content):
    """Per line: (ids, source), or the error."""
    path = tmp_path / "records.jsonl"
    path.write_bytes(content)
    found = []
    for part in read_records(path):
        assert part.first_line == len(found) + 1
        for i in range(len(part)):
            ids = part.ids[part.offsets[i] : part.offsets[i + 1]].tolist()
            found.append(part.errors.get(i, (ids, part.sources[i])))
    return found


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_lines_are_those_of_json_dumps(dtype):
    rows = np.array([[0, 1, 10], [65535, 99, 100]], dtype=dtype)
    expected = "".join(json.dumps({"token_ids": row, "source": 'a/"ü"'}) + "\n" for row in rows.tolist())
    assert format_records(rows, 'a/"ü"') == expected.encode()
    assert (
        format_records(rows[:, 1:2], "s") == b'{"token_ids": [1], "source": "s"}\n{"token_ids": [99], "source": "s"}\n'
    )


GOOD = [
    (b'{"token_ids": [1, 2], "source": "a"}', ([1, 2], "a")),
    (b'{"token_ids": [0], "source": "a", "more": [1, 2]}', ([0], "a")),
    (b'{"token_ids": []}', ([], None)),
    (b'{"token_ids":[1,2],"source":"a"}', ([1, 2], "a")),
    (b'{"source": "b", "token_ids": [3]}\r', ([3], "b")),
    (b' {"token_ids" : [ 7 ] }', ([7], None)),
    (b'{"token_ids": [2147483647]}', ([2147483647], None)),
    (b'{"token_ids": [1], "token_ids": [2, 3]}', ([2, 3], None)),
]
BAD = [
    b"",
    b"  ",
    b"{bad",
    b"[1]",
    b'{"token_ids": [1, 2]',
    b'{"token_ids": [1, 2]}x',
    b'{"token_ids": [1, 2,]}',
    b'{"token_ids": [01]}',
]
BAD += [
    b'{"token_ids": [-1]}',
    b'{"token_ids": [2147483648]}',
    b'{"token_ids": [1.0]}',
    b'{"token_ids": [true]}',
    b'{"token_ids": 1}',
    b"{}",
]
BAD += [
    b'{"token_ids": [1], "source": 5}',
    b'{"token_ids": [1], "source": "\xff"}',
    b'{"token_ids": [1 2]}',
    b'{"token_ids": [1, ',
]


def test_good_and_bad_lines_are_told_apart_in_any_company(tmp_path):
    lines = [*GOOD, *((line, None) for line in BAD)]
    for seed in range(5):
        order = np.random.RandomState(seed).permutation(len(lines))
        found = parse(tmp_path, b"\n".join(lines[i][0] for i in order) + b"\n")
        for i, result in zip(order, found, strict=True):
            assert isinstance(result, str) if lines[i][1] is None else result == lines[i][1], lines[i]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=6), max_size=8),
    st.booleans(),
    st.integers(1, 60),
    st.booleans(),
)
def test_what_is_written_is_read_however_the_file_is_cut_into_blocks(
    tmp_path_factory, rows, compact, block_bytes, newline_at_end
):
    separators = (",", ":") if compact else (", ", ": ")
    text = (
        "\n".join(json.dumps({"token_ids": row, "source": f"s{len(row)}"}, separators=separators) for row in rows)
        + "\n" * newline_at_end
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.line_blocks, "__defaults__", (block_bytes,))
        found = parse(tmp_path_factory.mktemp("records"), text.encode() if rows else b"")
    assert found == [(row, f"s{len(row)}") for row in rows]


def test_an_empty_file_has_no_records(tmp_path):
    assert parse(tmp_path, b"") == []
