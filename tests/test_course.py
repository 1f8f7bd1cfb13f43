"""What the notebooks share does what its docstrings say."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from course import DOCUMENTS, check, pieces, show, tiny_corpus
from nanoset_ref import Nanoset, TokenFile


def test_the_tiny_corpus_holds_its_documents_and_ten_samples(tmp_path: Path) -> None:
    files = {source: TokenFile(path) for source, path in tiny_corpus(tmp_path).items()}
    for (source, file), samples in zip(files.items(), (5, 3, 2), strict=True):
        assert Nanoset(file.path, None, 8, 1).order.samples_per_epoch == samples
        assert "".join(pieces(file.tokens, tmp_path)).split("EOS") == [*DOCUMENTS[source], ""]


@pytest.mark.parametrize(
    ("answer", "said"),
    [(..., "open"), (7, "right"), (8, "not yet: count again"), ("x", "not yet: .*TypeError")],
)
def test_a_check_says_open_right_or_what_to_think_of(answer, said: str, capsys) -> None:
    check(answer, lambda it: it + 1 == 8, "count again")
    assert capsys.readouterr().out.startswith(said.split(".*")[0])


def test_a_class_with_an_open_method_is_open(capsys) -> None:
    class Unwritten:
        def __iter__(self):
            return ...

    check(Unwritten, lambda it: list(it()), "iterate")
    assert capsys.readouterr().out.startswith("open")


def test_a_picture_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="one width"):
        show(Figure(figsize=(3, 2)), "", "")
