"""Writing and reading the lines of rows."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nanoset_ref.chunks.chunk_manifest import first_fault
from nanoset_ref.chunks.subsets import format_row
from nanoset_ref.chunks.validation import row_parser


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_lines_are_those_of_json_dumps(dtype):
    for ids in ([0, 1, 10], [65535, 99, 100], [7]):
        expected = json.dumps({"token_ids": ids, "source": 'a/"ü"'}) + "\n"
        assert format_row(np.array(ids, dtype=dtype), 'a/"ü"') == expected


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


@pytest.mark.parametrize(("line", "expected"), GOOD)
def test_a_row_is_read_however_it_is_written(line, expected):
    row = row_parser()(line)
    assert (row.token_ids, row.source) == expected


@pytest.mark.parametrize("line", [*BAD, b"[" * 10**5])
def test_what_is_no_row_is_refused_in_a_line(line):
    with pytest.raises(ValidationError) as refused:
        row_parser()(line)
    assert "\n" not in first_fault(refused.value)


@given(st.lists(st.integers(0, 2**31 - 1)), st.booleans())
def test_what_is_written_is_read(ids, compact):
    separators = (",", ":") if compact else (", ", ": ")
    line = json.dumps({"token_ids": ids, "source": "s"}, separators=separators)
    assert row_parser(len(ids))(line.encode()).token_ids == ids


@pytest.mark.parametrize("line", [b'{"token_ids": [1]}', b'{"token_ids": [1, 2, 3]}', b'{"token_ids": [1, 9]}'])
def test_other_lengths_and_other_ids_are_refused(line):
    assert row_parser(2, 9)(b'{"token_ids": [1, 8]}').token_ids == [1, 8]
    with pytest.raises(ValidationError):
        row_parser(2, 9)(line)
