"""Figures that move show what the package says, in an engine that is always there and in a browser where one is."""

import json
import re
from base64 import b64decode
from collections import Counter
from functools import cache
from html import unescape
from itertools import chain, product
from pathlib import Path

import numpy as np
import pages
import pytest

from course import DOCUMENTS
from figures.moving import Box, Moving, State
from nanoset_ref import (
    StatelessOrder,
    load_tokenizer,
    pack_documents,
    plain,
    prepare_corpus,
)
from nanoset_ref.streaming import TokenStream

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = ("02_indexing", "04_data_parallel_sharding", "05_checkpoint_and_resume")
NOTEBOOKS += ("06_training_run", "09_document_masks", "16_documents_in_a_row")
NOTEBOOKS += (
    "07_documents_samples_shuffle",
    "11_token_stream",
    "13_order_without_an_index",
)
LENGTHS = [922, 1364, 1298]  # samples of the three files of notebook 02
TOKENS = [6, 8, 7, 7, 7, 7]  # of the six stories

NOTEBOOKS += ("01_quickstart", "03_collator_and_dataloader")


@cache
def bundle(notebook: str) -> dict[str, str]:
    """The only output of a notebook that moves."""
    cells = json.loads((FOLDER / f"{notebook}.ipynb").read_text(encoding="utf-8"))[
        "cells"
    ]
    outputs = [
        output.get("data", {}) for cell in cells for output in cell.get("outputs", [])
    ]
    (found,) = [
        it for it in outputs if 'class="moving"' in "".join(it.get("text/html", []))
    ]
    return {kind: "".join(content) for kind, content in found.items()}


@cache
def embedded(notebook: str) -> dict:
    page = bundle(notebook)["text/html"]
    return json.loads(
        page.split('<script type="application/json">')[1].split("</script>")[0]
    )


def settings(data: dict) -> dict[tuple[str, ...], list]:
    """By the texts of a choice, what is shown."""
    choices = product(*[texts for _, _, texts in data["controls"]])
    return {
        choice: data["frames"][frame]
        for choice, frame in zip(choices, data["order"], strict=True)
    }


def rows(frame: list) -> dict[str, list[tuple[object, bool]]]:
    """By the name of a row, the text of each box and whether it is a dashed one."""
    names = [text for _, _, anchor, text in frame[1] if anchor == "end"]
    found: dict[str, list] = {name: [] for name in names}
    for _, row, _, text, _, *look in frame[2]:
        found[names[row]].append((text, look == [1]))
    return found


def texts(row: list[tuple[object, bool]]) -> list[object]:
    return [text for text, _ in row]


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_it_is_small_and_has_the_present_script_and_a_picture_for_who_cannot_run_it(
    notebook: str,
) -> None:
    found = bundle(notebook)
    assert sum(len(content) for content in found.values()) < 150_000
    assert b64decode(found["image/png"])[:4] == b"\x89PNG"
    page = found["text/html"]
    [still] = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert still == found["image/png"].replace("\n", "")
    assert unescape(page.split('alt="')[1].split('"')[0]) == found[
        "text/plain"
    ].removeprefix("Picture: ")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert page.endswith(
        (FOLDER / "figures" / "moving.html").read_text(encoding="utf-8")
    )


def test_samples_stand_where_the_order_of_plain_puts_them() -> None:
    samples = [5, 3, 2]
    names = [
        f"{name[0]}{j}"
        for name, size in zip(DOCUMENTS, samples, strict=True)
        for j in range(size)
    ]
    starts = np.cumsum([0, *samples])
    for (stage, seed, size), frame in settings(embedded("01_quickstart")).items():
        shown = [texts(row) for row in rows(frame).values()]
        order = plain.nanotron_order(samples, None, seed=int(seed))
        ordered = [
            names[starts[dataset] + sample] for dataset, sample in order.tolist()
        ]
        if stage == "three files":
            assert shown == [names[:5], names[5:8], names[8:]]
        else:
            assert shown == [ordered]
        if stage == "batches":
            assert frame[0].startswith(f"Ten samples in {10 // int(size)} batches")


def test_workers_hold_what_left_the_sampler_and_did_not_reach_the_loop() -> None:
    for choice, frame in settings(embedded("03_collator_and_dataloader")).items():
        workers, ahead, delivered = map(int, choice)
        given, found = delivered + workers * ahead, rows(frame)
        assert texts(found["delivered"]) == list(range(delivered))
        assert texts(found["waiting"]) == list(range(given, 20))
        for worker in range(workers):
            held = [k for k in range(delivered, given) if k % workers == worker]
            assert texts(found[f"worker {worker}"]) == held
        assert frame[0].endswith(
            f"{given} handed out: a resume from there skips {workers * ahead}"
        )


def test_ranks_read_what_plain_computes() -> None:
    layouts = {"like cards": "strided", "in blocks": "contiguous"}
    for (way, *numbers), frame in settings(
        embedded("04_data_parallel_sharding")
    ).items():
        gpus, size, step = map(int, numbers)
        found, part = rows(frame), 32 // gpus
        for gpu in range(gpus):
            first, own = (0, range(32)) if way in layouts else (part * gpu, range(part))
            rank = (gpu, gpus) if way in layouts else (0, 1)
            batches = plain.micro_batches_of_rank(
                own, *rank, size, layouts.get(way, "strided")
            )[:step]
            assert sorted(texts(found[f"GPU {gpu}"])) == [
                first + k for k in sorted(chain(*batches))
            ]
        assert sorted(chain(*map(texts, found.values()))) == list(range(32))


def test_a_resume_loses_and_repeats_what_it_must() -> None:
    for (way, kill), frame in settings(embedded("05_checkpoint_and_resume")).items():
        together, consumed = rows(frame)["together"], int(kill)
        never = [k for k, (_, lost) in enumerate(together) if lost]
        again = [k for k, (text, _) in enumerate(together) if text == "2\u00d7"]
        if way == "exact":
            assert not never and not again
        elif way == "skips in every epoch":
            assert (never, again) == (list(range(10, 10 + consumed)), [])
        elif (
            way == "counts prefetched"
        ):  # two workers have two batches of two samples each
            assert (never, again) == (list(range(consumed, consumed + 8)), [])
        elif way == "restores a generator":
            assert len(never) == len(again) > 0 and max(never + again) < 10
        else:
            ranks = int(way.split()[2])
            assert (never, again) == (
                [],
                list(range(consumed - consumed % ranks, consumed)),
            )
        said = [f"{len(never)} never read"] * bool(never) + [
            f"{len(again)} read twice"
        ] * bool(again)
        assert frame[0].endswith(", ".join(said) or "every sample is read once")


def test_a_killed_run_does_again_what_came_after_its_checkpoint() -> None:
    def steps(row: list[tuple[object, bool]], lost: bool) -> list[int]:
        ends = [
            [int(end) for end in str(text).split("-")]
            for text, dashed in row
            if dashed == lost
        ]
        return [
            step
            for first, *last in ends
            for step in range(first, (last or [first])[0] + 1)
        ]

    for (every, killed), frame in settings(embedded("06_training_run")).items():
        found = rows(frame)
        kept = steps(found["first start"], False)
        lost = steps(found["first start"], True)
        again = steps(found["second start"], False)
        assert kept + again == list(range(1, 46))
        assert kept + lost == list(range(1, int(killed) + 1))
        assert (kept[-1] if kept else 0) == max(
            [0, *range(0, int(killed) + 1, int(every))]
        )
        assert set(texts(found["checkpoints"])) == {
            *range(int(every), 45, int(every)),
            45,
        }
        says = (
            f"{len(lost)} steps, {8 * len(lost)} samples again"
            if lost
            else "nothing again"
        )
        assert frame[0].endswith(says)


def test_a_token_sees_what_the_mask_leaves() -> None:
    edges = [0, 6, 14, 19]  # of the documents in the row
    for (mask, token), frame in settings(embedded("09_document_masks")).items():
        colored = [
            bool(color)
            for _, _, _, _, color, *_ in sorted(frame[2], key=lambda it: it[1])
        ]
        first = (
            max(edge for edge in edges if edge <= int(token))
            if mask == "document"
            else 0
        )
        assert colored == [first <= other <= int(token) for other in range(19)]
        own = int(token) + 1 - max(edge for edge in edges if edge <= int(token))
        assert (
            f"sees {own} tokens of its own document, {sum(colored) - own} of others"
            in frame[0]
        )


def test_documents_are_placed_as_the_fast_kernel_places_them() -> None:
    shown = settings(embedded("16_documents_in_a_row"))
    found = [
        text for row in rows(shown["best fit", "12"]).values() for text in texts(row)
    ]
    said = [str(text).removesuffix(" tokens").split(": ") for text in found]
    lengths = {int(document): int(size) for document, size in said}
    assert len(found) == len(lengths) == 12, "best fit cuts nothing here"
    assert [lengths[document] for document in range(6)] == TOKENS
    for placed in range(1, 13):
        longest = sorted(lengths.values(), reverse=True)[:placed]
        used = len(pack_documents(np.cumsum([0, *longest]), 15)[0]) - 1
        assert (
            f"{placed} documents in {used} rows, 0 cut"
            in shown["best fit", str(placed)][0]
        )
        ends = np.cumsum([lengths[document] for document in range(placed)])
        begins = ends - [lengths[document] for document in range(placed)]
        cut = int((begins // 15 != (ends - 1) // 15).sum())
        said = f"Wrap: {placed} documents in {-(-ends[-1] // 15)} rows, {cut} cut"
        assert shown["wrap", str(placed)][0] == said


def test_the_text_below_a_figure_says_what_its_title_says() -> None:
    shown = settings(embedded("16_documents_in_a_row"))
    assert " in 6 rows, 4 cut" in shown["wrap", "12"][0]
    assert " in 7 rows, 0 cut" in shown["best fit", "12"][0]
    page = (FOLDER / "16_documents_in_a_row.ipynb").read_text(encoding="utf-8")
    assert "Wrapping takes six rows and cuts four of the twelve" in page
    assert "best fit takes a seventh row and cuts none" in page


def test_the_share_never_read_follows_from_the_weights() -> None:
    shown = settings(embedded("02_indexing"))
    for weight in (1, 8):
        epoch = plain.nanotron_order(LENGTHS, [weight, 1, 1], seed=1234)
        never = sum(LENGTHS) - len({*map(tuple, epoch.tolist())})
        for epochs in (1, 3, 300):
            assert (
                f"{never:,} of 3,584 samples are never read"
                in shown["Nanotron", str(weight), str(epochs)][0]
            )
    for weight, epochs in ((1, 1), (8, 3), (16, 4), (8, 30)):
        order = StatelessOrder(LENGTHS, [weight, 1, 1], epochs * sum(LENGTHS))
        never = sum(LENGTHS) - len(
            {*zip(*(part.tolist() for part in order[:]), strict=True)}
        )
        said = (
            f"{never:,} of 3,584 samples are never read"
            if never
            else "Every sample is read"
        )
        assert shown["stateless", str(weight), str(epochs)][0].startswith(said)


def test_the_last_round_is_the_permutation_of_plain() -> None:
    for (done, key), frame in settings(embedded("13_order_without_an_index")).items():
        board = list(chain(*map(texts, rows(frame).values())))
        if done == "0":
            assert board == list(range(64))
        if done == "1":  # a column keeps its numbers, and their cycle
            for column in range(8):
                own = board[column::8]
                turned = own.index(column)
                assert own[turned:] + own[:turned] == list(range(column, 64, 8))
        if done == "10":
            assert [board[plain.permute(x, 64, int(key))] for x in range(64)] == list(
                range(64)
            )


def test_megatron_cuts_are_those_of_plain() -> None:
    for (number, length), frame in settings(
        embedded("07_documents_samples_shuffle")
    ).items():
        asked, S = int(number), int(length)
        plan = plain.megatron_epochs(sum(TOKENS), asked, S)
        documents, _, order = plain.megatron_indexes(TOKENS, (0, 6), plan, S, seed=6)
        found = rows(frame)
        assert texts(found["documents"]) == documents.tolist()
        assert texts(found["samples"]) == list(range(plan[1]))
        assert found["the run"] == [
            (j, k >= asked) for k, j in enumerate(order.tolist())
        ]
        assert f": {plan[0]} epoch" in frame[0]
        assert ("kept apart" in frame[0]) == (plan[2] < plan[1])


def test_a_batch_comes_out_of_what_the_buffer_holds(tmp_path) -> None:
    corpus = prepare_corpus(tmp_path)
    tokenizer, files = load_tokenizer(corpus.tokenizer), list(corpus.domains.values())

    def read(paths=files, **options) -> list[bytes]:
        stream = TokenStream(paths, tokenizer, 128, append_eod=True, **options)
        return [row["input_ids"].tobytes() for row in stream]

    number = {row: k for k, row in enumerate(read())}
    ends = np.cumsum([len(read(path)) for path in files[:2]])
    order = np.array([number[row] for row in read(shuffle_buffer=1024)])
    for batch in (0, 24, 56, 104):
        drawn = order[32 * batch : 32 * batch + 32]
        sources = Counter(np.searchsorted(ends, drawn, "right").tolist())
        held = ", ".join(
            f"{sources[s]} {name}" for s, name in enumerate(DOCUMENTS) if s in sources
        )
        assert (
            f"M = 1,024: {held}. "
            in settings(embedded("11_token_stream"))["1024", str(batch)][0]
        )


@pytest.fixture(
    scope="module", params=pages.ENGINES, ids=lambda engine: engine.__name__
)
def page(request: pytest.FixtureRequest):
    engine = request.param()
    yield engine
    engine.close()


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_moving_a_control_changes_the_figure_to_what_is_embedded(
    notebook: str, page
) -> None:
    data, at = embedded(notebook), list(embedded(notebook)["start"])
    page.open(bundle(notebook)["text/html"])
    assert_shown(page, data, at)
    for control, (name, _, choices) in enumerate(data["controls"]):
        for end in (len(choices) - 1, 0, data["start"][control]):
            page.move(name, at[control], end)
            at[control] = end
            assert_shown(page, data, at)


def assert_shown(page, data: dict, at: list[int]) -> None:
    choice = tuple(
        choices[place]
        for place, (_, _, choices) in zip(at, data["controls"], strict=True)
    )
    sentence, _, boxes = settings(data)[choice]
    said, drawn = page.seen()
    assert (said, sorted(drawn)) == (
        sentence,
        sorted(str(text) for _, _, _, text, *_ in boxes),
    )


def test_a_page_can_not_be_broken_by_a_text_and_is_always_the_same() -> None:
    def figure() -> Moving:
        states = {"</script>": "<b>&", "plain": "é"}
        controls = {"which": list(states), "times": [1, 2]}

        def state(which: str, times: int) -> State:
            return State(which, {"row": [Box(0, states[which]), Box(1, times)]})

        return Moving(controls, state, ("plain", 1))

    page = figure().html(alt='two "boxes" & no more', still=b"a PNG")
    assert page == figure().html(alt='two "boxes" & no more', still=b"a PNG")
    engine = pages.V8()
    engine.open(page)
    assert engine.seen() == ["plain", ["é", "1"]]
    engine.move("which", 1, 0)
    engine.move("times", 0, 1)
    assert engine.seen() == ["</script>", ["<b>&", "2"]]
