"""What the notebooks share does what its docstrings say."""

import ast
import inspect
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from course import (
    DOCUMENTS,
    check,
    exercises,
    guess,
    guesses,
    pieces,
    registry,
    show,
    show_source,
    tally,
    tiny_corpus,
)
from course.drift import start_ranks
from course.pictures import show_table
from course.registry import Answer, Rule
from course.zig_zag import zig_zag
from nanoset_ref import (
    Encoder,
    Nanoset,
    TokenFile,
    TokenFileWriter,
    laws,
    load_tokenizer,
    open_tokens,
    plain,
    prepare_corpus,
)
from nanoset_ref.megatron import (
    MMapIndexedDataset,
    MMapIndexedDatasetBuilder,
    preprocess_corpus,
)


def test_the_tiny_corpus_holds_its_documents_and_ten_samples(tmp_path: Path) -> None:
    files = {source: TokenFile(path) for source, path in tiny_corpus(tmp_path).items()}
    for (source, file), samples in zip(files.items(), (5, 3, 2), strict=True):
        assert Nanoset(file.path, None, 8, 1).order.samples_per_epoch == samples
        assert "".join(pieces(file.tokens, tmp_path)).split("EOS") == [
            *DOCUMENTS[source],
            "",
        ]


NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
MAP = (NOTEBOOKS / "00_map.md").read_text(encoding="utf-8")
TIMES = (
    r"(?P<reading>\d+) minutes to read and predict, "
    r"(?P<exercises>\d+) for the exercises; \d+ seconds to run\.(?= \*\*|$)"
)
ROW = re.compile(r"^\| \[(\d\d) [^]]*\]\((\S+)\) \| ([^|]+) \| (\d+) \|", re.MULTILINE)


def minutes_of_the_map() -> dict[str, int]:
    """By number of a page, the minutes for it."""
    rows = ROW.findall(MAP)
    assert len({number for number, *_ in rows}) == len(rows)
    return {number: int(minutes) for number, _, _, minutes in rows}


def test_map_and_site_have_all_pages_in_one_order() -> None:
    site = (NOTEBOOKS.parent / "docs" / "contents.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\./notebooks/(\d\d_\w+)$", site, re.MULTILINE)
    pages = [page for _, page, _, _ in ROW.findall(MAP)]
    assert listed == ["00_map", *[page.removesuffix(".ipynb") for page in pages]]
    assert sorted(pages) == sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


def test_a_page_names_the_next_one_of_the_map_at_its_top_and_once_at_its_end() -> None:
    pages = [page for _, page, _, _ in ROW.findall(MAP)]
    for place, (page, following) in enumerate(itertools.pairwise(pages), 1):
        cells = json.loads((NOTEBOOKS / page).read_text(encoding="utf-8"))["cells"]
        text = ["".join(cell["source"]) for cell in cells]
        assert f"*Page {place} of {len(pages)} in the order of the [map]" in text[0]
        assert f"Next: [{following[:2]}]({following})." in text[0], page
        named = f"Next: [{following[:2]}]({following})"
        assert text[-1].splitlines()[-1].startswith(named), page
        assert "\n".join(text[1:]).count("\nNext") == 1, page
        if place > 1:
            before = pages[place - 2]
            assert f"Before: [{before[:2]}]({before})." in text[0], page


def test_the_last_page_of_the_map_says_so_at_its_top() -> None:
    *_, before, last = [page for _, page, _, _ in ROW.findall(MAP)]
    cells = json.loads((NOTEBOOKS / last).read_text(encoding="utf-8"))["cells"]
    top = "".join(cells[0]["source"])
    place = len(ROW.findall(MAP))
    assert f"*Page {place} of {place} in the order of the [map]" in top
    assert f"Before: [{before[:2]}]({before}).*" in top


def times_of_page(number: str) -> re.Match[str]:
    """The line of a page that names its times."""
    [path] = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    return re.search(r"\*\*Time\*\*: " + TIMES, text, re.MULTILINE)


def test_the_minutes_of_the_map_are_about_those_of_the_pages() -> None:
    for path in NOTEBOOKS.glob("*.ipynb"):
        page = json.loads(path.read_text(encoding="utf-8"))
        text = "\n".join("".join(cell["source"]) for cell in page["cells"])
        [said] = re.findall(r"\*\*Time\*\*: (.*)", text)
        times = re.match(TIMES, said)
        assert times, said
        total = int(times["reading"]) + int(times["exercises"])
        assert abs(minutes_of_the_map()[path.name[:2]] - total) <= 5, path.name


def reading_minutes(cells: list[dict]) -> float:
    """Minutes for 120 words, 30 lines of code or two predictions each, up to the exercises."""
    minutes = 0.0
    for cell in cells:
        text = "".join(cell["source"])
        if text.startswith("## Exercises"):
            break
        if cell["cell_type"] == "markdown":
            minutes += len(text.split()) / 120
        else:
            lines = [line for line in text.splitlines() if line.strip()]
            minutes += len(lines) / 30 + text.count("guess(") / 2
    return minutes


@pytest.mark.parametrize(
    "path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda it: it.stem
)
def test_a_page_can_be_read_in_the_time_that_it_names(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    said = int(times_of_page(path.name[:2])["reading"])
    assert said == pytest.approx(reading_minutes(cells), rel=0.1)


def test_the_map_says_what_the_pages_need() -> None:
    needs = re.findall(r"^\| \[(\d\d) .*\| ([\d, ]*) ?\|$", MAP, re.MULTILINE)
    assert len(needs) == len(minutes_of_the_map())
    for number, said in needs:
        [path] = NOTEBOOKS.glob(f"{number}_*.ipynb")
        page = json.loads(path.read_text(encoding="utf-8"))
        text = "\n".join("".join(cell["source"]) for cell in page["cells"])
        [line] = re.findall(r"\*\*You need\*\*:? (.*?)Words:|$", text)[:1]
        listed = sorted(re.findall(r"\[(\d\d)\]", line))
        assert listed == re.findall(r"\d\d", said), number


def test_the_minutes_of_a_path_are_the_sum_of_its_pages() -> None:
    paths = re.findall(
        r"^- \*\*\w+\*\*(.*?): (\d+) minutes, and (\d+) for the exercises",
        MAP,
        re.MULTILINE | re.DOTALL,
    )
    assert len(paths) == 3
    for pages, reading, exercising in paths:
        times = [times_of_page(number) for number in re.findall(r"\[(\d\d)\]", pages)]
        assert sum(int(it["reading"]) for it in times) == int(reading)
        assert sum(int(it["exercises"]) for it in times) == int(exercising)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A page 99 with a question and an exercise, and a cache folder of its own."""
    asked = {
        "99.1": Answer(print, 70, 5, ("70%",)),
        "99.2": Answer(print, "Both", 0, ("both",)),
        "99.3": Answer(print, (2, 1), 0, ("two",)),
        "99.4": Answer(print, True, 0, ("yes",)),
    }
    monkeypatch.setattr(registry, "page", lambda key: None)
    for module in (exercises, guesses):
        monkeypatch.setattr(module, "page", lambda key: None)
    monkeypatch.setattr(registry, "ANSWERS", asked)
    monkeypatch.setattr(guesses, "ANSWERS", asked)
    monkeypatch.setattr(guesses, "_here", {})
    monkeypatch.setattr(guesses, "KEPT", tmp_path / "cache" / "guesses.json")
    monkeypatch.setitem(
        exercises.RULES, "99.1", Rule(lambda it: it + 1 == 8, "count again")
    )
    monkeypatch.setitem(exercises.RULES, "99.2", Rule(lambda it: list(it()), "iterate"))
    monkeypatch.setitem(
        exercises.RULES, "99.3", Rule(lambda it, WANTED: it == WANTED, "look up")
    )


WANTED = 5  # a variable of the page that calls check


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (..., ""),
        ((..., 1), ""),
        (7, "right"),
        (8, "not yet: count again"),
        ("x", "not yet: count again (your answer raised TypeError"),
        (np.array([7, 7]), "not yet: count again (your answer raised ValueError"),
        (eval("lambda: 7"), "not yet: count again (your answer raised TypeError"),
    ],
)
def test_a_check_says_right_or_what_to_think_of_and_nothing_of_an_open_answer(
    page, answer, said: str, capsys
) -> None:
    check("99.1", answer)
    printed = capsys.readouterr().out
    assert printed.startswith(said)
    assert bool(printed) == bool(said)


def test_a_class_with_an_open_method_is_open(page, capsys) -> None:
    class Unwritten:
        def __iter__(self):
            return ...

    check("99.2", Unwritten)
    assert capsys.readouterr().out == ""


def test_a_dataclass_is_checked_without_the_source_of_what_it_generates(
    page, capsys
) -> None:
    @dataclass
    class Written:
        number: int = 7

        def __iter__(self):
            return iter(())

    check("99.2", Written)
    assert capsys.readouterr().out == "not yet: iterate\n"


@dataclass
class Described:
    make: object
    claims: object


@pytest.mark.parametrize(
    "answer",
    [
        Described(eval("lambda data: data"), ...),
        Described(test_a_class_with_an_open_method_is_open, "once"),  # returns dots
        (test_a_class_with_an_open_method_is_open, "once"),
    ],
)
def test_an_answer_with_an_open_part_is_open(answer: object) -> None:
    assert exercises.is_open(answer)
    assert not exercises.is_open(Described(eval("lambda data: data"), "once"))


@pytest.mark.parametrize(
    ("right", "other"),
    [
        (' seed epochs resume"', ' epochs resume"'),
        (' seed epochs resume"', ' seed epochs resume refuses"'),
        ('tail="drop",', ""),
        ("rank, world_size, seed)", "rank, world_size)"),
        ("loader.set_epoch(epoch)", ""),
        ("state is not None", "False"),
        ("Shuffled.state_dict,", "lambda loader: {'done': 0},"),
    ],
)
def test_an_adapter_of_notebook_18_that_leaves_something_out_is_not_right(
    right: str, other: str
) -> None:
    from course.pages.page_18 import rule_4

    [loader] = re.findall(
        r"^class Shuffled:\n(?:.+\n|\n(?=    ))*", page_text("18"), re.M
    )
    text = (NOTEBOOKS / "solutions/18_is_your_loader_right.py").read_text()
    solution = text.split("# %% Exercise 4")[1]
    assert solution.count(right) == 1
    variables = {"np": np, "laws": laws}
    exec(loader + solution.replace(right, other), variables)
    assert not rule_4(variables["mine"])


def test_a_rule_reads_the_variables_of_the_page_that_asks(page, capsys) -> None:
    check("99.3", 5)
    assert capsys.readouterr().out == "right\n"


def test_a_variable_that_the_page_has_not_made_is_named() -> None:
    with pytest.raises(NameError, match="lengths is not defined on this page yet"):
        registry.call(lambda lengths: lengths, {})


@pytest.mark.parametrize(
    ("key", "guessed", "is_right"),
    [
        ("99.1", 66, True),
        ("99.1", 64, False),
        ("99.1", "much", False),
        pytest.param("99.1", 10**400, False, id="huge"),
        ("99.1", True, False),
        ("99.2", " both", True),
        ("99.3", [2, 1], True),
        ("99.3", (1, 2), False),
        ("99.4", True, True),
        ("99.4", 1, False),
    ],
)
def test_a_guess_is_compared_and_counted(
    page, key, guessed, is_right: bool, capsys
) -> None:
    guess(key, guessed)
    tally("99")
    said, counted = capsys.readouterr().out.splitlines()
    assert said.startswith("right" if is_right else "not so")
    assert counted == f"you guessed {int(is_right)} of 4 right; 3 are open"
    assert guesses.kept() == {key: is_right}
    assert guesses.summary() == f"you guessed {int(is_right)} of 1 right, on 1 pages"


def test_an_open_guess_prints_nothing_and_leaves_nothing_behind(page, capsys) -> None:
    guess("99.1", ...)
    tally("99")
    assert capsys.readouterr().out == ""
    assert not guesses.KEPT.exists()


def test_a_guess_counts_where_nothing_can_be_kept(page, capsys) -> None:
    guesses.KEPT.parent.parent.joinpath("cache").write_text("a file, so no folder")
    guess("99.1", 70)
    assert capsys.readouterr().out.startswith("right")
    assert guesses.kept() == {}


def test_damage_to_the_kept_guesses_is_no_error(page) -> None:
    guesses.KEPT.parent.mkdir()
    guesses.KEPT.write_text("[half a li")
    guess("99.2", "both")
    assert guesses.kept() == {"99.2": True}


def test_only_what_is_true_or_false_counts_as_a_kept_guess(page) -> None:
    guesses.KEPT.parent.mkdir()
    guesses.KEPT.write_text('{"99.1": "x", "99.2": true, "99.3": null}')
    assert guesses.summary() == "you guessed 1 of 1 right, on 1 pages"


def test_a_picture_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="one width"):
        show(Figure(figsize=(3, 2)), "", "")


@pytest.fixture
def displayed(monkeypatch) -> list:
    shown: list = []
    monkeypatch.setattr("course.pictures.display", shown.append)
    return shown


def test_a_table_has_its_numbers_at_the_right(displayed) -> None:
    show_table(["way", "cut"], [["wrap", "3.5%"], ["pad", "0.0%"]])
    lines = "| way | cut |\n| :--- | ---: |\n| wrap | 3.5% |\n| pad | 0.0% |"
    assert displayed[0].data == lines


def test_a_source_has_the_colors_of_code(displayed) -> None:
    show_source(pieces)
    assert displayed[0].data.startswith("```python\ndef pieces(")


def test_padding_that_has_the_id_of_eos_hides_every_eos_from_a_collator_by_id(
    tmp_path, monkeypatch
) -> None:
    """What notebook 16, section 2, says of transformers' DataCollatorForLanguageModeling."""
    from transformers import DataCollatorForLanguageModeling

    from nanoset_ref import load_tokenizer, prepare_corpus

    monkeypatch.chdir(tmp_path)
    tokenizer = load_tokenizer(prepare_corpus("data").tokenizer)
    tokenizer.pad_token = tokenizer.eos_token
    eos = tokenizer.eos_token_id
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    labels = collator([{"input_ids": [5, 6, eos, 7, eos, eos]}])["labels"]
    assert labels.tolist() == [[5, 6, -100, 7, -100, -100]]


def test_a_mixture_of_hugging_face_datasets_ends_as_notebook_02_says() -> None:
    from datasets import Dataset, interleave_datasets

    from course.pages.page_02 import LENGTHS

    files = [
        Dataset.from_dict({"source": [source] * length})
        for source, length in enumerate(LENGTHS)
    ]

    def mixed(**options: str) -> list[int]:
        mixture = interleave_datasets(
            files, probabilities=[0.8, 0.1, 0.1], seed=7, **options
        )
        return [mixture["source"][:].count(source) for source in range(3)]

    assert LENGTHS == [922, 1364, 1298]
    assert mixed() == [922, 120, 108]  # 1,150 rows
    rows = mixed(stopping_strategy="all_exhausted")
    assert sum(rows) == 13_503
    assert 11 < rows[0] / LENGTHS[0] < 12


def test_best_fit_writes_the_longest_documents_first_as_notebook_16_says(
    tmp_path: Path,
) -> None:
    corpus = prepare_corpus(tmp_path)
    encoder = Encoder(load_tokenizer(corpus.tokenizer), append_eod=True)
    lengths = []
    for path in corpus.domains.values():
        texts = [json.loads(line)["text"] for line in path.read_text().splitlines()]
        lengths += encoder.encode_batch(texts)[1].tolist()
    documents = [len(row) for row in plain.best_fit(lengths, 2049)]
    quarter = len(documents) // 4
    assert max(documents[:quarter]) == 1
    assert round(sum(documents[-quarter:]) / quarter) == 24
    # of a document of n tokens, attention compares n (n + 1) / 2 pairs
    pairs = [
        sum((end - begin) * (end - begin + 1) // 2 for _, begin, end in row)
        for row in plain.best_fit(lengths, 2049)
    ]
    assert round(sum(pairs[:quarter]) / sum(pairs[-quarter:])) == 14


def test_notebook_16_calls_the_kernel_for_variable_lengths_as_torch_does() -> None:
    """On a CPU nobody can run it; its arguments are those of the torch that is installed."""
    from torch.nn.attention.varlen import varlen_attn

    block = page_text("16").split("import varlen_attn\n")[1].split("```")[0]
    assigned = ast.parse(block).body[-1]
    assert isinstance(assigned, ast.Assign) and isinstance(assigned.value, ast.Call)
    given = [ast.unparse(it) for it in assigned.value.args]
    named = {str(it.arg): ast.unparse(it.value) for it in assigned.value.keywords}
    arguments = inspect.signature(varlen_attn).bind(*given, **named).arguments
    assert arguments == {
        "query": "query",
        "key": "key",
        "value": "value",
        "cu_seq_q": "edges",
        "cu_seq_k": "edges",
        "max_q": "longest",
        "max_k": "longest",
        "window_size": "(-1, 0)",
    }
    assert "(-1, 0) for causal attention" in str(varlen_attn.__doc__)


def test_an_empty_text_is_an_eos_or_nothing_as_notebook_16_says(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(prepare_corpus(tmp_path).tokenizer)
    for append_eod, length in ((True, 1), (False, 0)):
        encoder = Encoder(tokenizer, append_eod=append_eod)
        assert encoder.encode_batch(["", "a"])[1].tolist() == [length, length + 1]
    assert plain.best_fit([5, 0, 4], 9) == [[(0, 0, 5), (2, 0, 4)]]


def test_maps_and_chunks_are_as_notebook_15_says() -> None:
    from benchmarks.peers import CHUNK
    from course.pages.page_15 import results, served

    memory, peers = results("memory"), results("streamers")
    ends = {way: points[-1] for way, points in memory["ways"].items()}
    speed = {way: end["rows"] / end["cpu_seconds"] for way, end in ends.items()}
    assert memory["read_ahead_kb"] == 32 * 4  # pages of 4 KiB
    assert min(speed, key=lambda way: speed[way]) == "rebuilt"
    kept = speed["a kept map"]
    assert round(speed["a kept map without read-ahead"] / kept) == 6
    assert round(served()["nanotron"] / 2048, -3) == 19_000  # from memory
    assert peers["megabytes"] << 19 == 8 * CHUNK  # litdata's


def test_a_special_token_in_a_text_ends_a_document_as_notebook_03_says(
    tmp_path: Path,
) -> None:
    tokenizer = load_tokenizer(prepare_corpus(tmp_path).tokenizer)
    ids = tokenizer("ends with <|endoftext|> and goes on")["input_ids"]
    assert ids[1:-1].count(tokenizer.eos_token_id) == 1
    split = tokenizer("with <|endoftext|> and", split_special_tokens=True)["input_ids"]
    assert tokenizer.eos_token_id not in split


def test_an_empty_text_is_an_eos_here_and_no_token_in_a_pair_as_notebook_03_says(
    tmp_path: Path,
) -> None:
    folder = prepare_corpus(tmp_path).tokenizer
    tokenizer = load_tokenizer(folder)
    ids, lengths = Encoder(tokenizer, append_eod=True).encode_batch(["", "ab"])
    assert (lengths[0], ids[0]) == (1, tokenizer.eos_token_id)
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": ""}\n{"text": "ab"}\n')
    preprocess_corpus(
        texts, tmp_path / "pair", tokenizer_model=folder, append_eod=True, backend="hf"
    )
    pair = MMapIndexedDataset(tmp_path / "pair_text_document")
    assert pair.document_offsets.tolist() == [0, 0, lengths[1]]


@pytest.mark.parametrize("order", ["stateless", "nanotron"])
def test_a_file_of_masks_is_read_in_the_order_of_the_ids_as_notebook_03_says(
    tmp_path: Path, order: str
) -> None:
    paths: dict[str, list[Path]] = {"ids": [], "mask": []}
    for source, length in (("a", 1000), ("b", 700)):
        ids = np.random.default_rng(length).integers(1, 300, length)
        for kind, values in (("ids", ids), ("mask", ids % 2)):
            paths[kind].append(tmp_path / f"{source}_{kind}.npy")
            with TokenFileWriter(
                paths[kind][-1], dtype="uint16", vocab_size=300
            ) as writer:
                writer.write_document(values.tolist())
    rows, masks = (
        Nanoset(paths[kind], [3, 1], 32, 200, random_seed=7, order=order).read(
            np.arange(200)
        )
        for kind in ("ids", "mask")
    )
    assert np.array_equal(rows % 2, masks)


def stored(benchmark: str) -> dict:
    return json.loads(
        (NOTEBOOKS.parent / f"benchmarks/results/{benchmark}.json").read_text()
    )


def page_text(number: str) -> str:
    [path] = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def test_notebook_16_says_what_benchmarks_packing_measured() -> None:
    found, page = stored("packing"), page_text("16")
    for tokens, ways in found["milliseconds"].items():
        causal, mask, edges = (
            f"{ways[way]:.0f} ms" for way in ("causal", "mask", "cu_seqlens")
        )
        assert f"| {int(tokens):,} tokens | {causal} | {mask} | {edges} |" in page
    rates = [rate / 1e6 for rate in found["documents_per_second"].values()]
    assert (round(min(rates)), round(max(rates))) == (4, 9)
    assert "four to nine million documents a second" in page


def test_notebook_13_says_what_benchmarks_order_build_measured() -> None:
    times = [
        time
        for by_order in stored("order_build")["nanoseconds"].values()
        for time in by_order["stateless"].values()
    ]
    said = f"{min(times)} ns per lookup with one source, and {max(times)} ns with a thousand"
    assert f"The price is {said}" in page_text("13")


def test_notebook_09_says_what_its_longer_runs_found() -> None:
    stored = json.loads((NOTEBOOKS / "course/masks.json").read_text())
    ends = [found["480"] for found in stored.values()]
    ahead = [it["causal -> causal"] - it["document -> document"] for it in ends]
    assert len(ahead) == 3 and min(ahead) > 0
    assert "the document mask is still ahead for every seed" in page_text("09")
    for it in ends:
        assert it["document -> causal"] > it["document -> document"] + 1
        assert abs(it["causal -> document"] - it["causal -> causal"]) < 0.05


def test_notebooks_01_and_11_say_what_benchmarks_streaming_measured() -> None:
    rates, page = stored("streaming")["tokens_per_core_second"], page_text("11")
    slow, fast = (rates[f"stream, {backend}"] for backend in ("hf", "gigatoken"))
    assert f"One core encodes {slow / 1e6:.1f} million tokens" in page
    assert f"{fast / 1e6:.1f} million with the other backend" in page
    days, hours = 1e12 / slow / 86_400, 1e12 / fast / 3600
    assert (
        f"a trillion tokens take one core {days:.0f} days with the first and "
        f"{hours:.0f} hours with the second"
    ) in page
    assert f"feeds {slow // 66_000} of them" in page
    first = f"one core takes {days:.0f} days for a trillion tokens with one library"
    assert f"{first} and {hours:.0f} hours with another" in page_text("01")


@pytest.mark.parametrize("number", [f"{number:02}" for number in range(1, 19)])
def test_a_page_links_nanotron_at_the_commits_of_its_line_of_versions(
    number: str,
) -> None:
    page = page_text(number)
    [versions] = re.findall(r"^\*\*Versions\*\*: (.*)$", page, re.MULTILINE)
    linked = re.findall(r"nanotron/blob/([0-9a-f]{7})", page)
    assert set(linked) <= set(re.findall(r"\b[0-9a-f]{7}", versions))


def test_the_loss_after_a_restart_is_as_changing_a_run_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from course.pages.page_05 import AHEAD, after_a_restart

    monkeypatch.chdir(tmp_path)
    page = (NOTEBOOKS.parent / "docs/changing_a_run.md").read_text(encoding="utf-8")
    means = []
    for name, higher in after_a_restart().items():
        spans = higher[:, :1], higher[:, 1:AHEAD], higher[:, AHEAD:]
        means.append([span.mean() for span in spans])
        by_seed = [span.mean(axis=1) for span in spans]
        cells = [", ".join(f"{mean:+.2f}" for mean in both) for both in by_seed]
        assert " | ".join([f"\n| {name}", *cells]) in page
    lost, early, late, from_the_start = means
    assert lost[0] == 0 and lost[1] > 0.1 and lost[2] > 0.05
    assert early[0] < -0.5 and early[1] < -0.2 and abs(early[2]) < 0.1
    assert max(map(abs, late)) < 0.2
    assert max(from_the_start) < -0.1


def test_weights_by_temperature_and_cap_are_as_the_decision_page_says() -> None:
    page = (NOTEBOOKS.parent / "docs/decide.md").read_text(encoding="utf-8")
    sizes, run, S = [5000e9, 800e9, 50e9], 6000e9, 4096
    cap = 4 * sizes[2] / run
    rest = (1 - cap) / sum(sizes[:2])
    ways = {
        "by size, T = 1": sizes,
        "T = 2": np.sqrt(sizes).tolist(),
        "math at most 4 times": [rest * sizes[0], rest * sizes[1], cap],
    }
    for way, weights in ways.items():
        taken, _ = plain.blend_targets(weights, int(run / S))
        shares = np.divide(weights, sum(weights))
        epochs = [count / (size // S) for count, size in zip(taken, sizes, strict=True)]
        cells = [
            f"{share:.1%}: {read:.2f}"
            for share, read in zip(shares, epochs, strict=True)
        ]
        assert " | ".join([f"\n| {way}", *cells]) in page


def test_an_address_in_int32_turns_negative_as_the_decision_page_says() -> None:
    samples = np.array([524_288], dtype=np.int32)
    assert int(samples[0]) * 4096 == 2**31
    assert (samples * np.int32(4096))[0] < 0  # and no error


def test_files_are_repaired_by_their_document_offsets_as_notebook_03_says(
    tmp_path: Path,
) -> None:
    """Documents without an EOS, and with two BOS, are copied one by one; no tokenizer is asked."""
    EOS, BOS = 0, 1
    documents = {"bare": [[5, 6], [7, 8, 9]], "twice": [[1, 1, 5, 6], [1, 1, 7, 8, 9]]}
    for name, ids in documents.items():
        with MMapIndexedDatasetBuilder(tmp_path / f"{name}.bin", np.uint16) as pair:
            for document in ids:
                pair.add_document(document, [len(document)])
        file = open_tokens(tmp_path / f"{name}.bin")
        repaired = tmp_path / f"{name}_input_ids.npy"
        with TokenFileWriter(repaired, dtype="uint16", vocab_size=16) as writer:
            for begin, end in itertools.pairwise(file.document_offsets):
                found = file.tokens[begin:end].tolist()
                writer.write_document([*found, EOS] if name == "bare" else found[1:])
        wanted = (
            [5, 6, EOS, 7, 8, 9, EOS] if name == "bare" else [BOS, 5, 6, BOS, 7, 8, 9]
        )
        assert TokenFile(repaired).tokens.tolist() == wanted


def test_each_document_is_cut_in_zig_zag_as_notebook_04_says() -> None:
    row = np.array([0, 4, 12, 16])  # documents of 4, 8 and 4 tokens
    begins = np.repeat(row[:-1], np.diff(row))  # of each token's document
    for rank in range(2):
        columns, own = zig_zag(row, rank, cp=2)
        first_of_each = columns[own[:-1]]
        assert np.array_equal(begins[first_of_each], row[:-1])
        assert (columns - begins[columns] + 1).sum() == 28
    assert "so that each of two ranks attends to 28 tokens" in page_text("04")


def test_the_page_of_loaders_says_how_many_bytes_their_states_take() -> None:
    page = (NOTEBOOKS.parent / "docs/loaders.md").read_text(encoding="utf-8")
    table = page.split("## Bytes of loader state")[1].split("\n## ")[0]
    rows = re.findall(r"^\| .* \| (\d.*) \| .* \|$", table, re.MULTILINE)
    said = [[*map(int, re.findall(r"\b\d+", row.replace(",", "")))] for row in rows]
    assert said == [
        [*dict.fromkeys(sizes.values())]
        for sizes in stored("state_bytes")["bytes"].values()
    ]


def test_notebooks_13_and_15_say_what_benchmarks_startup_measured() -> None:
    found = stored("startup")
    ends = {name: it["100000000"] for name, it in found["startup_seconds"].items()}
    nanotron, megatron = ends["Nanotron's way"], ends["megatron-core"]
    olmo = ends["OLMo-core's way"]
    seconds = f"{nanotron:.0f} | {megatron:.0f} | {ends['torch.randperm']:.1f} | "
    seconds += f"{olmo:.1f} | less than 0.001 |"
    assert f"| seconds to build | {seconds}" in page_text("13")
    assert max(ends["grain"], ends["nanoset_ref, stateless"]) < 0.001
    starts = [
        1e3 * it for it in found["startup_seconds"]["nanoset_ref, stateless"].values()
    ]
    said = f"its start grows from {min(starts):.2f} to {max(starts):.2f} ms"
    assert f"{said}, and its resume stays between 1.5 and 3 ms" in page_text("15")
    resumes = found["resume_seconds"]["nanoset_ref"].values()
    assert min(resumes) > 1.5e-3 and max(resumes) < 3e-3


def test_the_ranks_of_notebook_04_meet_in_a_folder_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "My Notebooks ü#?"
    (folder / "data").mkdir(parents=True)
    monkeypatch.chdir(folder)
    started: list[list[str]] = []

    class Job:
        def __init__(self, command: list[str], **options: object) -> None:
            started.append(command)

        def communicate(self) -> tuple[str, None]:
            return "two equal batches", None

    monkeypatch.setattr("course.drift.subprocess.Popen", Job)
    assert start_ranks("a.npy", [1, 1]) == ["two equal batches"] * 2
    meeting = str(folder / "data/04_meeting")
    assert [command[2:] for command in started] == [
        [meeting, "a.npy", "1", "1", rank] for rank in "01"
    ]
