"""The experiments about order: arms differ in order alone, and a seed gives one result."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path

import numpy as np
import pytest

from benchmarks import order_matters, order_pieces, order_unread
from benchmarks.order_arms import (
    EXPERIMENTS,
    FEWER,
    LITTLE,
    TOGETHER,
    batches,
    blend,
    buffered,
    ending_shuffled,
    exchanged,
    few,
    own_document_rows,
    together,
)
from benchmarks.order_pieces import UNREAD, Run, finish
from benchmarks.order_questions import FEW
from benchmarks.small_model import SCHEDULES, SIZES
from benchmarks.small_text import (
    documents_of,
    held_out_documents,
    held_out_rows,
    prepare_text,
    training_documents,
)
from nanoset_ref import load_tokenizer, prepare_corpus
from nanoset_ref.streaming import TokenStream

LENGTHS, SIZE = [70, 50, 40], SIZES["smallest"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The token files of the smallest size, made of thirty documents of each source."""
    folder = tmp_path_factory.mktemp("order_matters")
    documents = {
        name: texts[:30] for name, texts in documents_of("corpus", folder, None).items()
    }
    prepare_text(documents, folder / "smallest" / "corpus", SIZE)
    return folder


def readings(experiment: str) -> dict[str, Counter[int]]:
    return {
        name: Counter(arm.numbers.tolist())
        for name, arm in EXPERIMENTS[experiment](LENGTHS, SIZE, 3).items()
    }


def test_the_orders_of_an_experiment_read_the_same_samples_once() -> None:
    buffers, annealing = readings("buffers"), list(readings("annealing").values())
    named = {"in file order", "shuffled", "a buffer of 10"}
    assert named | {"a buffer of 100 that exchanges"} < buffers.keys()
    assert all(counts == Counter(range(160)) for counts in buffers.values())
    assert all(counts == annealing[0] for counts in annealing)
    assert set(annealing[0].values()) == {1}
    assert (
        sum(number >= 120 for number in annealing[0]) == 6
    )  # a tenth of 64 from the last source


def test_the_better_source_is_where_the_arm_says() -> None:
    arms = EXPERIMENTS["annealing"](LENGTHS, SIZE, 3)
    places = {name: np.flatnonzero(arm.numbers >= 120) for name, arm in arms.items()}
    assert (
        places["in the last fifth"].min()
        >= 52
        > 12
        > places["in the first fifth"].max()
    )
    assert places["spread out"].min() < 12 < 52 <= places["spread out"].max()
    for name, arm in arms.items():
        assert (arm.schedule == "constant") == ("constant" in name)
        assert (arm.peak < 1, arm.peak > 1) == ("half" in name, "twice" in name)


def test_schedules_end_at_a_tenth_and_wsd_falls_in_its_last_fifth() -> None:
    ends = {name: (rate(0.0), rate(1.0)) for name, rate in SCHEDULES.items()}
    assert ends.pop("constant") == (1, 1)
    assert list(ends.values()) == [pytest.approx((1, 0.1))] * 3
    stages = [SCHEDULES["WSD"](done) for done in (0.5, 0.8, 0.9)]
    assert stages == pytest.approx([1, 1, 0.55])
    assert SCHEDULES["cosine"](0.5) == pytest.approx(0.55)


@pytest.mark.parametrize("epochs", [2, 4, 8, 16])
def test_an_epoch_is_a_part_of_the_fresh_samples(epochs: int) -> None:
    arms = EXPERIMENTS["repetition"](LENGTHS, SIZE, 3)
    again, anew = (
        arms[f"{epochs} epochs, {how}"].numbers.reshape(epochs, -1)
        for how in ("same order", "shuffled anew")
    )
    first = sorted(arms["fresh"].numbers[: 64 // epochs])
    assert len(set(arms["fresh"].numbers)) == 64
    assert all(sorted(epoch) == first for epoch in [*again, *anew])
    assert (again == again[0]).all()
    assert (anew[0] == again[0]).all() and not (anew == anew[0]).all()


def test_the_blends_read_as_much_of_each_file_and_nanotron_fewer_different_samples() -> (
    None
):
    arms = blend(
        [6_000, 500], SIZES["small"], 3
    )  # 6,144 positions over files of 768 and 384 samples
    last = {name: arm.numbers[arm.numbers >= 6_000] for name, arm in arms.items()}
    assert all(612 <= len(numbers) <= 618 for numbers in last.values())  # a tenth
    assert {name: len(set(numbers)) for name, numbers in last.items()} == {
        "nanotron": 116,
        "stateless": 384,
        "stateless, shuffled again": 384,
        "stateless, as few samples": 116,
    }
    again = last["stateless, shuffled again"]
    assert last["stateless"].tolist() != again.tolist()
    assert set(last["nanotron"]) == set(last["stateless, as few samples"])
    assert last["nanotron"].max() == 6_115  # the beginning of the file, and no more


def test_few_samples_are_others_and_as_often_read() -> None:
    """The blend's first 116 samples of the last source, its next 116, and 116 of all its parts."""
    lengths = [6_000, 900, 500]
    arms = few(lengths, SIZES["small"], 3)
    last = {name: arm.numbers[arm.numbers >= 6_900] for name, arm in arms.items()}
    assert all(612 <= len(numbers) <= 618 for numbers in last.values())  # a tenth
    whole, first, following, spread, *_ = (set(it - 6_900) for it in last.values())
    assert whole == {*range(384)}
    assert (first, following) == ({*range(116)}, {*range(116, 232)})
    assert len(spread) == 116 and {0, 383} < spread < whole
    known = blend([6_000, 500], SIZES["small"], 3)
    for name, same in {"all samples": "stateless", FEWER[0]: FEW}.items():
        numbers = arms[name].numbers.copy()
        numbers[numbers >= 6_900] -= 900  # there is no source in the middle there
        assert numbers.tolist() == known[same].numbers.tolist()


def test_a_little_of_the_middle_source_takes_the_place_of_the_first() -> None:
    arms = few([6_000, 900, 500], SIZES["small"], 3)
    for percent, which in LITTLE.items():
        for name in ("all samples", FEWER[0]):
            sources = np.searchsorted(
                [6_000, 6_900], arms[name + which].numbers, "right"
            )
            counts = np.bincount(sources, minlength=3) / 6_144
            assert counts == pytest.approx(
                [0.9 - percent / 100, percent / 100, 0.1], abs=1e-3
            )
            reference = order_matters.reference_of("few", name + which)
            assert reference == "all samples" + which
    without = few([6_000, 500], SIZES["small"], 3)
    assert [*without] == ["all samples", *FEWER]


def test_the_control_on_unread_text_reads_what_few_reads() -> None:
    lengths = [6_000, 500]
    arms, known = (
        EXPERIMENTS[name](lengths, SIZES["small"], 3) for name in ("unread", "few")
    )
    again = arms.pop("all samples, shuffled again").numbers
    assert [*arms] == [*known]
    assert all((arms[it].numbers == known[it].numbers).all() for it in known)
    whole = known["all samples"].numbers
    assert set(again) == set(whole)
    assert again.tolist() != whole.tolist()
    arms = order_unread.asked()
    assert len(arms) == len(set(arms)) == 4 * 3
    names = {it.arm for it in arms} | {it.reference for it in arms}
    assert names == {*known, order_unread.AGAIN}
    assert {order_matters.reference_of("unread", it) for it in names} == {"all samples"}


def test_unread_text_is_measured_and_not_read(folder: Path, tmp_path: Path) -> None:
    """A model that is measured on one more text is the same model."""
    run = Run("smallest", "corpus", "buffers", "shuffled", 0)
    known = finish(folder, run)
    rows = held_out_rows(
        folder / "smallest/corpus/stories_held_out_input_ids.npy", SIZE
    )
    shutil.copytree(folder / "smallest", tmp_path / "smallest")
    np.save(tmp_path / f"smallest/corpus/{UNREAD}other.npy", rows)
    found = finish(tmp_path, run)
    other = found["held_out"].pop(f"{UNREAD}other")
    assert found["held_out"] == known["held_out"]
    assert other == known["held_out"]["stories"]
    assert found["rows"][f"{UNREAD}other"] == known["rows"]["stories"]


def test_a_buffer_is_that_of_a_token_stream(tmp_path: Path) -> None:
    corpus = prepare_corpus(tmp_path)
    text, tokenizer = corpus.domains["stories"], load_tokenizer(corpus.tokenizer)
    plain, shuffled = (
        [
            row["input_ids"].tolist()
            for row in islice(
                TokenStream(text, tokenizer, 32, seed=5, shuffle_buffer=M), 40
            )
        ]
        for M in (0, 20)
    )
    assert shuffled == [plain[number] for number in buffered(40, 20, seed=5)]


def test_an_exchange_buffer_hands_out_what_it_holds() -> None:
    """Nothing before it was read, and some samples much later than a buffer that is emptied as a whole could."""
    handed = exchanged(2_000, 20, seed=5)
    late = np.arange(2_000) - handed
    assert late.min() == -19
    assert late.max() > 5 * 20
    assert sorted(handed) == list(range(2_000))
    assert sorted(handed[-20:]) != handed[-20:].tolist()
    assert exchanged(2_000, 20, seed=6).tolist() != handed.tolist()


def test_sources_one_after_another_stay_apart_and_blended_ones_keep_their_own_order() -> (
    None
):
    arms = EXPERIMENTS["buffers"](LENGTHS, SIZE, 3)
    apart = arms["one after another, each shuffled"].numbers
    assert sorted(apart[:70]) == list(range(70)) != apart[:70].tolist()
    reversed_ = arms["in file order, sources reversed"].numbers
    assert reversed_.tolist() == [*range(120, 160), *range(70, 120), *range(70)]
    blended = arms["blended, each in file order"].numbers
    assert all(
        list(part) == sorted(part)
        for part in (blended[blended < 70], blended[blended >= 120])
    )
    assert np.bincount(np.searchsorted([70, 120], blended[:32], "right")).tolist() == [
        14,
        10,
        8,
    ]


def test_the_last_steps_are_those_of_the_shuffle_behind_file_order() -> None:
    """In 40 steps of 4 samples, 20% are the last 32 samples; in 639 of 16, 1% are 6 steps and the unread rest."""
    arms = EXPERIMENTS["buffers"](LENGTHS, SIZE, 3)
    shuffle = arms["shuffled"].numbers
    for percent, samples in ((20, 32), (5, 8), (1, 0)):
        numbers = arms[f"in file order, last {percent}% shuffled"].numbers
        begin = len(numbers) - samples
        assert numbers[begin:].tolist() == shuffle[begin:].tolist()
        assert numbers[:begin].tolist() == sorted(shuffle[:begin])
    shuffle = np.random.RandomState(0).permutation(10_239)
    numbers = ending_shuffled(shuffle, 1, batch=16)
    assert np.flatnonzero(numbers != shuffle).max() < 633 * 16
    assert (np.diff(numbers[: 633 * 16]) > 0).all()


def test_documents_are_shuffled_and_their_samples_stay_neighbors() -> None:
    documents = np.repeat(range(12), [5, 1, 2, 9, 1, 1, 30, 2, 2, 40, 3, 4])
    numbers = together(documents, seed=5)
    assert sorted(numbers) == list(range(100))
    turns = [document for document, _ in groupby(documents[numbers])]
    assert sorted(turns) == list(range(12)) != turns
    assert all((np.diff(numbers[documents[numbers] == it]) == 1).all() for it in turns)
    assert together(documents, seed=6).tolist() != numbers.tolist()


def test_in_larger_batches_the_rate_grows_with_the_root_of_the_batch() -> None:
    arms = batches(LENGTHS, SIZES["small"], 3, np.repeat(range(32), 5))
    known = EXPERIMENTS["buffers"](LENGTHS, SIZES["small"], 3)
    assert len(arms) == 9
    for batch, peak in ((64, 2), (128, 2.83), (256, 4)):
        arm = arms[f"shuffled, batches of {batch}"]
        assert (arm.batch, round(arm.peak, 2)) == (batch, peak)
        assert (arm.numbers == known["shuffled"].numbers).all()
        together_too = arms[f"{TOGETHER}, batches of {batch}"].numbers.tolist()
        assert together_too != arm.numbers.tolist()


def test_long_documents_count_for_more_rows() -> None:
    assert own_document_rows(np.array([0, 1, 1, 1])) == (1 + 3 * 3) / 4


def test_ten_rounds_read_a_tenth_of_each_source_at_a_time() -> None:
    [arm] = EXPERIMENTS["rounds"](LENGTHS, SIZE, 3).values()
    turns = [range(7), range(70, 75), range(120, 124), range(7, 14)]
    assert arm.numbers[:23].tolist() == [number for turn in turns for number in turn]
    assert sorted(arm.numbers) == list(range(160))


def test_blocks_are_cut_into_one_ten_and_a_hundred_rounds_at_two_widths() -> None:
    lengths = [300, 200, 100]
    one, ten, hundred, mixed = EXPERIMENTS["blocks"](lengths, SIZE, 3).values()
    assert one.numbers.tolist() == list(range(600))
    [known] = EXPERIMENTS["rounds"](lengths, SIZE, 3).values()
    assert ten.numbers.tolist() == known.numbers.tolist()
    assert hundred.numbers[:12].tolist() == [
        *(0, 1, 2, 300, 301, 500),
        *(3, 4, 5, 302, 303, 501),
    ]
    assert sorted(hundred.numbers) == list(range(600))
    whole = EXPERIMENTS["buffers"](lengths, SIZE, 3)["shuffled"].numbers
    assert mixed.numbers.tolist() == whole.tolist()
    wide = replace(SIZES["small, wide"], width=48, heads=2)
    assert wide == SIZES["small"]


def test_ten_rounds_at_a_constant_rate_are_compared_with_its_shuffle() -> None:
    arms = EXPERIMENTS["steady"](LENGTHS, SIZE, 3)
    in_file_order, in_rounds, shuffle = arms.values()
    assert {arm.schedule for arm in arms.values()} == {"constant"}
    assert in_file_order.numbers.tolist() == list(range(160))
    [known] = EXPERIMENTS["rounds"](LENGTHS, SIZE, 3).values()
    assert in_rounds.numbers.tolist() == known.numbers.tolist()
    mixed = EXPERIMENTS["buffers"](LENGTHS, SIZE, 3)["shuffled"]
    assert shuffle.numbers.tolist() == mixed.numbers.tolist()
    assert {order_matters.reference_of("steady", arm) for arm in arms} == {
        "shuffled, constant rate"
    }


def test_documents_of_several_files_are_counted_on(tmp_path: Path) -> None:
    for name, ends in {"a": [0, 15, 16, 40], "b": [20]}.items():
        ids = np.ones(4 * 16 + 1, "uint16")
        ids[ends] = 0
        ids.tofile(tmp_path / name)
    found = training_documents([tmp_path / "a", tmp_path / "b"], SIZE)
    assert found.tolist() == [0, 2, 3, 4, 5, 5, 6, 6]


def test_a_run_may_read_whole_documents(folder: Path) -> None:
    run = Run("smallest", "corpus", "buffers", TOGETHER, 0)
    assert finish(folder, run)["tokens"] == [80 * 16, 156 * 16]
    arms = order_pieces.arms_of(folder, "corpus", "buffers", "smallest", 0)
    numbers = arms[TOGETHER].numbers
    documents = order_pieces.documents_of_samples(folder, "corpus", "smallest")
    assert len(documents) == len(numbers)
    facts = json.loads((folder / "smallest" / "corpus" / "facts.json").read_text())
    counts = [it["documents_that_samples_begin_in"] for it in facts.values()]
    assert sum(counts) == len(set(documents))
    turns = [document for document, _ in groupby(documents[numbers])]
    assert len(turns) == len(set(documents))
    buffered_too = arms["documents shuffled, a buffer of 1,000"].numbers
    assert sorted(buffered_too) == sorted(numbers)


def test_a_seed_gives_one_result_and_arms_begin_alike(folder: Path) -> None:
    runs = [
        Run("smallest", "corpus", "buffers", arm, seed)
        for arm, seed in (("shuffled", 0), ("shuffled", 1))
    ]
    first, again, other = (finish(folder, run) for run in (runs[0], runs[0], runs[1]))
    assert first["held_out"] == again["held_out"]
    assert first["train"] == again["train"] != other["train"]
    assert first["tokens"] == [
        80 * 16,
        156 * 16,
    ]  # each source has lost less than a sample to the cut
    assert first["held_out"].keys() == {"stories", "arithmetic", "programs"}
    assert first["held_out"]["stories"][-1] < np.log(512)


def test_a_row_begins_in_the_document_behind_so_many_ends(tmp_path: Path) -> None:
    ids = np.ones(4 * 16 + 1, "uint16")
    ids[[0, 15, 16, 40]] = 0  # the ends of four documents
    ids.tofile(tmp_path / "held_out.npy")
    rows = held_out_rows(tmp_path / "held_out.npy", SIZE)
    assert rows.shape == (4, 17)
    assert held_out_documents(tmp_path / "held_out.npy", SIZE) == [0, 2, 3, 4]


def test_controls_read_the_same_samples_in_another_order() -> None:
    for experiment, arm, again in (
        ("buffers", "shuffled", "shuffled again"),
        ("repetition", "fresh", "fresh, shuffled again"),
        ("annealing", "spread out", "spread out, shuffled again"),
    ):
        arms = EXPERIMENTS[experiment](LENGTHS, SIZE, 3)
        first, again = arms[arm].numbers, arms[again].numbers
        assert sorted(first) == sorted(again)
        assert first.tolist() != again.tolist()


def test_an_arm_may_have_batches_of_another_size(folder: Path) -> None:
    """160 samples, of which each source has lost less than one to the cut, in batches of 8 and of 32."""
    for batch, tokens in (
        (8, [10 * 8 * 16, 19 * 8 * 16]),
        (32, [2 * 32 * 16, 4 * 32 * 16]),
    ):
        arm = f"in file order, batches of {batch}"
        run = Run("smallest", "corpus", "buffers", arm, 0)
        assert finish(folder, run)["tokens"] == tokens
        reference = order_matters.reference_of("buffers", arm)
        assert reference == f"shuffled, batches of {batch}"


WORDS = ["--size", "smallest", "--experiments", "blend", "--seeds", "2"]


def test_a_stopped_series_goes_on_with_the_runs_that_are_missing(
    folder: Path, monkeypatch, capsys, tmp_path
) -> None:
    trained: list[str] = []

    def train(data, held_out, size, seed, schedule, peak):
        trained.append(data.fingerprint)
        losses = [5.0 - 0.1 * len(trained)]
        rows = {name: [3.456] * len(rows) for name, rows in held_out.items()}
        held_out_losses = dict.fromkeys(held_out, losses)
        return {
            "tokens": [16],
            "held_out": held_out_losses,
            "train": [5.0],
            "rows": rows,
        }

    monkeypatch.setattr(order_pieces, "train", train)
    words = [*WORDS, "--folder", str(folder), "--output", str(tmp_path / "all.json")]
    order_matters.main([*words, "--most", "2"])
    assert len(trained) == 2 and not (tmp_path / "all.json").exists()
    order_matters.main([*words, "--most", "2"])
    result = json.loads((tmp_path / "all.json").read_text())
    assert {run["run"][4] for run in result["runs"]} == {0}, "the complete seed alone"
    order_matters.main(words)
    assert len(trained) == len(set(trained)) == 8
    assert "4.600 (4.400 to 4.800)   +0.000" in capsys.readouterr().out
    result = json.loads((tmp_path / "all.json").read_text())
    arms = ["nanotron", "stateless", "stateless, shuffled again"]
    arms.append("stateless, as few samples")
    assert [run["run"][3:] for run in result["runs"]] == [
        [a, s] for s in (0, 1) for a in arms
    ]
    assert result["texts"]["corpus"]["stories"]["documents_before_the_cut"] == 27
    with np.load(tmp_path / "all_rows.npz") as rows:
        assert (rows["corpus/stories/losses"] == 346).all()
        assert rows["corpus/stories/losses"].shape == (8, 4)
        assert rows["corpus/stories/documents"].shape == (4,)
