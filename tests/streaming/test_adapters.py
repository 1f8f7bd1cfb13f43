"""Adapters: what they read, and that an index answers as the iteration does."""

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref.streaming import Adapter, JSONLinesAdapter, adapters
from nanoset_ref.streaming.adapters import can_index


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.sampled_from(["", "1", '"à 😀"', '{"a": [1, 2]}']), max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\ufeff"]),
    st.booleans(),
)
def test_lines_are_found_by_index_as_in_order_and_parsed_late(tmp_path_factory, lines, line_end, mark, closed):
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_bytes((mark + line_end.join(lines) + line_end * closed).encode())
    expected = [line for line in lines if line]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(adapters, "PIECE_BYTES", 5)
        adapter = JSONLinesAdapter(None, path)
    assert list(adapter) == expected == [adapter[k] for k in range(len(adapter))]
    assert list(map(adapter.preprocess_line, adapter)) == list(map(json.loads, expected))
    assert can_index(adapter)


def test_a_broken_line_is_an_error_with_its_file_when_it_is_preprocessed(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\nbroken\n' + "[" * 100_000)
    adapter = JSONLinesAdapter(None, path)
    assert adapter.preprocess_line(adapter[-3]) == {"a": 1}
    for line, message in ((adapter[1], "a.jsonl: 'broken' cannot be read: Expecting"), (adapter[2], "recursion depth")):
        with pytest.raises(ValueError, match=message):
            adapter.preprocess_line(line)
    with pytest.raises(FileNotFoundError):
        JSONLinesAdapter(None, tmp_path / "none.jsonl")


def test_line_adapters_can_be_sent_to_other_processes_while_the_file_is_the_same(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("1\n2\n")
    adapter = JSONLinesAdapter({"a": 1}, path)
    sent = pickle.dumps(adapter)
    again = pickle.loads(sent)
    assert (list(again), again.hparams) == (["1", "2"], {"a": 1})
    path.write_text("longer\n")
    with pytest.raises(ValueError, match=r"a\.jsonl was replaced"):
        pickle.loads(sent)


def test_a_subclass_with_its_own_iteration_has_no_index(tmp_path):
    class Filtered(JSONLinesAdapter):
        def __iter__(self):
            return (line for line in super().__iter__() if line != "0")

    path = tmp_path / "a.jsonl"
    path.write_text("1\n0\n2\n")
    assert list(Filtered(None, path)) == ["1", "2"]
    assert not can_index(Filtered(None, path))
    with pytest.raises(TypeError, match="abstract"):
        Adapter()
