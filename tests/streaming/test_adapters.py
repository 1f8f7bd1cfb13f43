"""Adapters: what they read, and that an index answers as the iteration does."""

import csv
import io
import pickle

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoset_ref.streaming import (
    Adapter,
    CSVAdapter,
    HuggingFaceAdapter,
    JSONLinesAdapter,
    LinesAdapter,
)
from nanoset_ref.streaming.text_adapters import can_index


def write(tmp_path, text):
    path = tmp_path / "file.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def ready(adapter):
    return [adapter.preprocess_line(line) for line in adapter]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\nb\n", ["a", "b"]),
        ("a\r\n\r\nb\n\n", ["a", "", "b", ""]),
        ("\ufeffà\n😀", ["à", "😀"]),
    ],
)
def test_lines(tmp_path, text, lines):
    adapter = LinesAdapter(None, write(tmp_path, text))
    assert list(adapter) == lines == [adapter[i] for i in range(len(adapter))]
    assert can_index(adapter)


def test_json_lines_are_parsed_late_and_blank_lines_are_none(tmp_path):
    adapter = JSONLinesAdapter(None, write(tmp_path, '{"a": 1}\n\n{"a": 2}\nbroken\n'))
    assert list(adapter) == ['{"a": 1}', '{"a": 2}', "broken"]
    assert adapter.preprocess_line(adapter[-2]) == {"a": 2}
    with pytest.raises(ValueError, match="'broken' cannot be read: Expecting value"):
        ready(adapter)


FIELDS = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=6)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(FIELDS, min_size=2, max_size=2), max_size=6),
    st.sampled_from(",\t;"),
)
def test_csv_records_are_what_the_csv_module_reads(tmp_path_factory, rows, delimiter):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows([["first", "second\nname"], *rows])
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(out.getvalue().encode())
    assert ready(CSVAdapter(None, path, delimiter=delimiter, header=False)) == [
        ["first", "second\nname"],
        *rows,
    ]
    adapter = CSVAdapter(None, path, delimiter=delimiter)
    assert ready(adapter) == [{"first": a, "second\nname": b} for a, b in rows]
    assert len(adapter) == len(rows)


def test_tsv_without_quoting_and_records_of_the_wrong_width(tmp_path):
    path = write(tmp_path, 'a\tb\n5" pipe\tx\n')
    assert ready(CSVAdapter(None, path, delimiter="\t", quotechar=None)) == [
        {"a": '5" pipe', "b": "x"}
    ]
    with pytest.raises(ValueError, match=r"3 fields for the 2 columns \['a', 'b'\]"):
        ready(CSVAdapter(None, write(tmp_path, "a,b\n1,2,3\n")))
    with pytest.raises(ValueError, match="pass header=False"):
        CSVAdapter(None, write(tmp_path, ""))
    with pytest.raises(ValueError, match="cannot be read"):
        ready(CSVAdapter(None, write(tmp_path, "a,b\n1\r2,3\n")))
    with pytest.raises(ValueError, match="unexpected end of data"):
        ready(CSVAdapter(None, write(tmp_path, 'a,b\n1,"2\n3,4\n')))
    with pytest.raises(ValueError, match="a column is named twice"):
        CSVAdapter(None, write(tmp_path, "a,a\n1,2\n"))
    for wrong in ("ab", "", "\n", None, 3):
        with pytest.raises(ValueError, match="delimiter must be one character"):
            CSVAdapter(None, write(tmp_path, "a\n1\n"), delimiter=wrong)
    with pytest.raises(ValueError, match="quotechar must be one character"):
        CSVAdapter(None, write(tmp_path, "a\n1\n"), quotechar="''")
    # the last byte of » is a byte of û, too
    path = write(tmp_path, "a§b\nû§ü\n")
    with pytest.raises(
        ValueError, match="must be an ASCII character, got '»': replace"
    ):
        CSVAdapter(None, path, delimiter="§", quotechar="»")
    assert ready(CSVAdapter(None, path, delimiter="§")) == [{"a": "û", "b": "ü"}]
    with pytest.raises(ValueError, match="delimiter and quotechar must differ"):
        CSVAdapter(None, write(tmp_path, "a\n1\n"), delimiter='"')


def test_a_csv_field_may_be_as_long_as_a_document(tmp_path):
    before = csv.field_size_limit(131_072)  # where Python begins
    path = write(tmp_path, "a,b\n" + "x" * 300_000 + ",2\n")
    assert [len(row["a"]) for row in ready(CSVAdapter(None, path))] == [300_000]
    csv.field_size_limit(before)


def test_line_adapters_can_be_sent_to_other_processes(tmp_path):
    adapter = JSONLinesAdapter({"a": 1}, write(tmp_path, "1\n2\n"))
    again = pickle.loads(pickle.dumps(adapter))
    assert (list(again), again.hparams) == (["1", "2"], {"a": 1})
    sent = pickle.dumps(adapter)
    write(tmp_path, "longer\n")
    with pytest.raises(ValueError, match="was replaced"):
        pickle.loads(sent)
    with pytest.raises(FileNotFoundError):
        LinesAdapter(None, tmp_path / "none.txt")


def test_hugging_face_datasets_map_and_streaming():
    rows = [{"text": f"t{k}", "n": k} for k in range(300)]
    mapped = HuggingFaceAdapter(None, datasets.Dataset.from_list(rows))
    assert list(mapped) == rows
    assert (can_index(mapped), len(mapped), mapped[7]) == (True, 300, rows[7])
    streamed = HuggingFaceAdapter(
        None, datasets.Dataset.from_list(rows).to_iterable_dataset()
    )
    assert list(streamed) == rows
    assert not can_index(streamed)
    with pytest.raises(TypeError, match=r"datasets\.Dataset or"):
        HuggingFaceAdapter(None, rows)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("name", ["arrow", "pandas"])
def test_a_format_of_tables_is_refused_and_one_of_arrays_is_read(name, is_streamed):
    made = datasets.Dataset.from_list([{"n": k} for k in range(3)])
    dataset = made.to_iterable_dataset() if is_streamed else made
    tables = HuggingFaceAdapter(None, dataset.with_format(name))
    message = r"instead of a dict; pass dataset.with_format\(None\)"
    with pytest.raises(TypeError, match=message):
        list(tables)
    if not is_streamed:
        with pytest.raises(TypeError, match=message):
            tables[1]
    arrays = HuggingFaceAdapter(None, dataset.with_format("numpy"))
    assert [row["n"] for row in arrays] == [0, 1, 2]


def test_a_subclass_with_its_own_iteration_has_no_index(tmp_path):
    class Filtered(LinesAdapter):
        def __iter__(self):
            return (line for line in super().__iter__() if line)

    path = write(tmp_path, "a\n\nb\n")
    assert list(Filtered(None, path)) == ["a", "b"]
    assert not can_index(Filtered(None, path))
    with pytest.raises(TypeError, match="abstract"):
        Adapter()
