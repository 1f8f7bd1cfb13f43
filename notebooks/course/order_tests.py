"""Writes docs/order_tests.md, the appendix of notebook 17, from the stored runs: `python -m course.order_tests`."""

import json

import numpy as np

from course.order_runs import (
    REPOSITORY,
    TEXTS,
    WIDTHS,
    apart,
    best_ends,
    by_batch,
    control_again,
    cost_among_few,
    cost_of_few,
    curves,
    ends_at_constant_rate,
    ends_in_rounds,
    ends_of,
    finding,
    in_file_order,
    more,
    on_clean_rows,
    reach,
    results,
    runs_of,
    said_of,
    seeds,
    small_in_rounds,
    star,
    tested,
    wider_less_narrower,
)

# isort: split
# after course.order_runs, which puts the repository on the path
from benchmarks import order_again, order_clean
from benchmarks.order_arms import (
    BATCHES,
    FEWER,
    IN_ROUNDS,
    LITTLE,
    PEAKS,
    RATES,
    TOGETHER,
    exchanged,
)
from benchmarks.order_matters import RATE, at_the_end
from benchmarks.order_pieces import CLEAN
from benchmarks.order_questions import APART, BLENDED
from benchmarks.order_statistics import (
    RESAMPLES,
    RESULTS,
    corrected,
    detectable,
    rows_of,
    stars_with_both_errors,
)
from benchmarks.small_model import SIZES, SmallModel

PAGE = REPOSITORY / "docs/order_tests.md"
SECTIONS = {  # by experiment, where notebook 17 has its comparisons
    "buffers": "Section 2: file order, buffers, documents",
    "repetition": "Section 3: epochs",
    "annealing": "Section 4: the best source last",
    "blend": "Section 5: a blend that is cut",
}
EPOCHS = (2, 4, 8, 16)
NOTES = {  # below the tables
    "annealing": """
Programs gain more at a constant 0.0015 than under WSD from 0.003, although the rate of its last fifth is slightly
higher on average, 0.00165. So the rate at the end is not the whole story.
"""
}

TEXT = """\
# The tests of notebook 17

[Notebook 17](../notebooks/17_does_the_order_matter.ipynb) asks what the order of the data does to small
models. This page has what it leaves out: every comparison, and how far its tests can be trusted.
`python -m course.order_tests`, in the folder `notebooks`, writes it from the committed results.

In every table a number is a difference of held-out loss in nats per token, with half of its 95% interval;
above zero the first order is worse. A star (\u2217) means that p stays below 0.05 after Holm's correction. An
order without "against" is compared with a full shuffle, with fresh text, with the source spread out or with
the stateless order: the reference of its section, at the same rate and in as large batches.

## The runs

The small model is a transformer of two layers, two heads and width 48. AdamW trains it with torch's defaults
(weight decay 0.01), without clipping or dropout. The vocabulary is a BPE of the training documents. In section
2 a run reads {samples} samples, {ratio:.1f} tokens per parameter. Shuffled, it ends at {ends[0]} nats on the
course's corpus and at {ends[1]} on real text; the shorter runs of section 3, on fresh text, at {fresh[0]} and
{fresh[1]}.

Each command takes one core; the results of every seed are in `benchmarks/results`. torch was 2.13. The last
200 of the 1,720 runs and all later ones came from an AMD EPYC, the others from an Intel Xeon; 24 of those,
repeated on the EPYC, moved by less than 0.001 nats. A later repetition was less exact: at a constant rate, in five
seeds, the shuffle came again within {moved_again[0]} nats, but file order moved by up to {moved_again[1]}, and its
mean by {moved_again[2]}. (One machine repeats itself exactly.)

All but the three series "with today's shuffle" were made while it had twelve rounds (algorithm 2 of the `stateless`
order). It has ten now, so the same commands shuffle the samples differently, also in a buffer that is emptied as a
whole; [six comparisons](#six-of-them-once-more) were run once more with it. The last commit with twelve rounds draws
the shuffles of the older runs. There, four of section 5 (seed 0, the corpus) were trained once more on 30 November
2026: every stored number came again.

```sh
git checkout 8fd48be6
python -m benchmarks.order_matters --experiments blend --seeds 1
```

| runs | command | hours |
|:---|:---|---:|
{commands}

`python -m benchmarks.real_text FOLDER` fetches the real texts first. `python -m benchmarks.order_statistics`
prints the comparisons.

## All {count} comparisons

{stars} of them have a star. {pictured[0]} are in the picture of the notebook's section 7, {pictured[1]} in that
of its section 4, {pictured[2]} more in its sections 3 to 5, and {pictured[3]} at other rates and in other batches,
all of them costs with a star. These {pictured[3]} could be a family of their own. If Holm's correction is over them
and over the other {main} apart, {apart_stars[0]} and {apart_stars[1]} have a star: the same ones.

{comparisons}
## Six of them, once more

The comparisons above were not fixed before their runs, and 20 of them were added when the others were known.
So [six were written down](https://github.com/nanoset-ref/nanoset_ref/blob/main/benchmarks/order_again.py),
one for each claim of the notebook's summary but section 6's, with ten new seeds ({first} to {last}) and what each
should show: its sign, and a star where the first series has one. Then each was run once. Holm's correction is over
these twelve alone. **{agree} of {all} agree.** But the few samples on programs do not stand out from a source
that none of these runs reads ([the control](#a-control-that-fails)), so {told} say what was asked.

These runs, too, drew the shuffle of twelve rounds. On 30 November 2026 the same seeds were trained once more with
today's shuffle: **{agree_today} of {all} agree**, and no mean moves by more than {moved_today:.3f}.

{again}

## Two more about section 2

A buffer of 1,000 that exchanges hands out {late:.0%} of the samples more than 1,000 places late.

Where does the rest of the cost lie if the last 20% of the steps are shuffled, at the usual falling rate? In
every source, against the shuffle:

{ending}

## File order at other rates and in other batches

Nats above a full shuffle under the same rate and batch (a falling rate in batches of 16, unless a row says otherwise):

{other_rates}

In the last row an order has the best of half, once and twice the peak, and WSD: chosen on one half of the held-out
documents, the loss taken on the other, both ways; \u00b1 over seeds.

## Shuffled documents in larger batches

"Documents shuffled, rows together" was read in batches of 64, 128 and 256 afterwards, with {batch_seeds} seeds and
no test; the numbers for 8, 16 and 32 are of the same seeds. Their rates follow two rules: batches of 8, 16 and
32 have the usual peak of 0.003; that of 64, 128 and 256 is 0.006, 0.0085 and 0.012, for it grows with the square
root of the batch, from 0.003 for 16. So rows of the table on both sides of 32 differ in two things.

*Rows of a document* are those of the document that a row belongs to, on average over the rows: {own}. Most rows are
in a few long documents, so that is much more than a document has on average ({mean_rows}).

{larger}

In batches of 256 a run has only 39 steps, and the shuffle itself ends at {largest_ends} nats, where a guess
among the 512 ids has {guess:.1f}. So those rows say little about runs that learn more.

## How far the tests reach

**How many documents stand behind the bootstrap?** Each source is measured on {held_out} rows that no run trains on:
{documents}. So few documents make plain percentiles too narrow. Ours is a *bootstrap-t* with {draws:,} draws: each
draws documents, with all their rows, and its mean is taken in its own standard errors.

**How small an effect gets a star?** In four of five such experiments, one of {least}.

**Both errors at once.** Each test varies seeds or documents. With both errors added (Student's t, 9 degrees
of freedom), {both} of {stars} stars stay. The one that does not: {lost}.

**A narrow interval may be luck.** The ten differences of 2, 4, 8 and 16 epochs have these standard
deviations, and eight epochs would have this interval if all four had the same:

{spreads}

The ±{narrow:.3f} of eight epochs on real text is ten seeds that happen to agree. With the spread of the other
rows, {mean:.3f} is still far from zero.

**A seed fixes weights and shuffles together**, so the test over seeds speaks of both. *Shuffled again* starts
from the same weights: it bounds what another shuffle does, and moves the mean by {moved:.3f} or less in
sections 2 and 3, a source that is read by {moved_source:.3f} or less in sections 4 and 5, and the unread one by
{moved_unread:.3f} ([below](#a-control-that-fails)).

**The mean of the sources** gives each the same weight. If each had that of its training samples instead ({weights}):

{weighted}

**Held-out documents that share text with training ones.** Most of the corpus's do: 13 tokens in a row
([notebook 08](../notebooks/08_splits_and_blends.ipynb), section 1). So its generator wrote {written} more documents of
each source. A row of theirs is *clean* if no 13 of its ids in a row, in the vocabulary of the models, are in any
training document: {kept} are. The models of
{clean_seeds} seeds, trained with today's shuffle, were measured on the usual rows and on 128 clean ones of each source.
Shuffled, they end at {clean_ends[0]} nats on the usual rows and at {clean_ends[1]} on the clean ones, which are the
less usual ones.

{clean}

Each keeps its sign and its star. Five are smaller on clean rows; for the blend and for sixteen epochs the difference
is within its interval.

### A control that fails

In section 5 no arm reads arithmetic, so no order of that section should change it. Shuffled again it moves by
{unread[0]}, under Nanotron's order by {unread[1]}, with the few samples by {unread[2]}, and with the few samples in
the ten new seeds by {unread[3]}. Over all {few_seeds} seeds, with intervals over seeds alone:

| the few samples cost | nats per token | above zero |
| :--- | ---: | ---: |
| programs | {few[0]} | {above[0]} of {few_seeds} |
| arithmetic, unread | {few[1]} | {above[1]} of {few_seeds} |
| programs less arithmetic | {few[2]} | {above[2]} of {few_seeds} |

This is more than the noise of seeds, so a cost of 0.1 nats on programs says nothing of the programs. Real text has no
unread source; the cost to Shakespeare, {few_real}, is more than twice as large.

### Which few samples, and why the control fails

Is it these 116 samples or any 116? And does a source that is not read get worse through *transfer* (fewer programs
teach less of what arithmetic needs) or through *overfitting* (the model gets too sure, and nothing holds it where it
reads nothing)? We trained {few_seeds_new} with today's shuffle; what each answer would show was
[written down](https://github.com/nanoset-ref/nanoset_ref/blob/main/benchmarks/order_arms.py) before (`few`).
All arms are stateless and read the small source as often. Two of them give 1% or 5% of the run to arithmetic, at the
expense of the stories, and are compared with all samples and as much arithmetic. *Softened* is each model at the best
of eight temperatures. In the order of the table, the few samples begin in {begin[0]} documents of programs and in
{begin[1]} of Shakespeare.

{of_few}

| expected | came | |
| :--- | :--- | :--- |
| The control fails again | {control_failed} | yes |
| Any few samples cost Shakespeare as much | the next {plays[1]}, spread out {plays[2]} | wrong |
| If it is which samples, others cost arithmetic less than half | {others_cost[0]}, {others_cost[1]} | one of two |
| If it is transfer, a cost remains with 1% and with 5% | {little_costs[0]}, {little_costs[1]} | not at 5% |
| If it is overfitting, none remains | the same | not at 1% |
| and a temperature takes away more than half | {softer} | yes |

So **which samples are read matters more than how few**: 116 spread over the file cost little. And the unread source
gets worse mostly through overfitting: its loss is lowest after {least_at[0]} of the run with all samples and after
{least_at[1]} with the first few, and then rises, by {risen[0]} and by {risen[1]} nats. A smaller part may be transfer.
Why the first 116 of Shakespeare cost three times what the next 116 do, from as many speeches, we do not know.

## Two widths, two lengths

Section 6 trains two widths for 1.1 and 11.2 million tokens, five seeds each. What file order costs: its end
less the shuffle's.

{widths}

By how much more it costs the wider model, with 95% intervals over seeds: {wider}.

- In file order a model learns each source in turn and forgets it again. In the long runs stories come down to
  {best[0]} and {best[1]}, and end at {end[0]} and {end[1]}: worse than a guess among the 512 ids,
  {guess:.1f}.
- In the short run file order costs the wider model more. That, too, comes from the shuffle's gain: shuffled,
  it ends {gain[0]} nats below the narrower one (on real text {gain[1]}); in file order the two end about
  level.
- The other orders compare as in section 2: sources one after another, each shuffled, save nothing
  ({saved[0]}); a buffer of 1,000 samples, one in 44, saves {saved[1]}, and the blend in file order
  {saved[2]}.
- The long run of the narrower model was trained once more, afterwards, in file order cut into ten rounds: a
  tenth of each source at a time, as much as the short run reads of it at once. It ends at {in_rounds:.2f}, which is
  {rounds_cost} above the shuffle: as in the short run ({short_cost}), and not as in the long one in one round
  ({long_cost}). The difference to the short run is {rounds_less_short}.
- One peak rate, 0.002, was used for both widths and both lengths, and the real texts are too short for the
  long run.

### Ten rounds at a constant rate

Under the falling rate the last of ten rounds is read at 0.19 to 0.10 of the peak, while the last source of one round
begins at 0.4. So the rate might do what the shorter blocks seem to do. Last of all, {steady} runs were trained at a
constant rate (5 more, of the small model, at the falling one), and four expectations were
[written down](https://github.com/nanoset-ref/nanoset_ref/blob/main/benchmarks/order_arms.py) before the first of
them (`steady`). A block is what is read of one source at a time.

{rounds}

| expected | came | |
| :--- | :--- | :--- |
| The long run costs more than at the falling rate, in one round and in ten | it does | yes |
| Ten rounds save less than 70%, some 45% to 65% | {saved_long} | nearly |
| The blocks have an effect of their own if ten rounds save at least 35% | {saved_long} | yes |
| In ten rounds the long run costs more than the short one does in one, by up to 1 nat | {over_short} | wrong |
| Ten rounds save in the small model, too, at either rate | {small_saved} | wrong |

So the falling rate is probably not why ten rounds save so much in the long run (at a constant one there is one seed).
But shorter blocks do not always help: in the short run ten rounds save a quarter, in the small model next to nothing.
There, at a constant rate, they end at
{small_programs[1]} nats on programs, which they have just read, where one round ends at {small_programs[0]}: in 21
steps it does not learn a source again.
"""

COMMANDS = {  # of each stored result
    "order_matters": "1,720 of 107,000 parameters",
    "order_pieces": "30 of 560,000 parameters, long",
    "order_widths": "40 of both widths, short",
    "order_lengths": "10 of 118,000 parameters, long",
    "order_again": "220 of 107,000 parameters, new seeds",
    "order_again_ten_rounds": "220 of 107,000 parameters, the same with today's shuffle",
    "order_batches": "90 of 107,000 parameters, larger batches",
    "order_rounds": "5 of 118,000 parameters, long, in ten rounds",
    "order_steady": "6 of 118,000 parameters, long and short, at a constant rate",
    "order_steady_small": "20 of 107,000 parameters, in ten rounds, at two rates",
    "order_few": "120 of 107,000 parameters, other few samples, with today's shuffle",
    "order_clean": "50 of 107,000 parameters, on clean text too, with today's shuffle",
}


def as_table(head, rows):
    lines = [head, [":---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def interval(mean, half, mark=""):
    return f"{mean:+z.3f} \u00b1 {half:.3f}{mark}"


def comparisons():
    """A table for each section, a row for each comparison."""
    parts = []
    for experiment, heading in SECTIONS.items():
        mine = [it for it in tested() if it.question.experiment == experiment]
        rows = []
        for label in dict.fromkeys(it.question.label for it in mine):
            cells = {
                it.text: interval(it.mean, it.reach, star(it))
                for it in mine
                if it.question.label == label
            }
            rows.append(
                [label.replace(" - ", " against "), *(cells.get(text, "") for text in TEXTS)]
            )
        table = as_table(["order", *TEXTS.values()], rows)
        parts.append(f"### {heading}\n\n{table}\n{NOTES.get(experiment, '')}")
    return "\n".join(parts)


def commands():
    rows = []
    for name, runs in COMMANDS.items():
        path = RESULTS.with_stem(name)
        stored = json.loads(path.read_text())
        hours = sum(run["cpu_seconds"] for run in stored["runs"]) / 3600
        rows.append(f"| {runs} | `{stored['command']}` | {hours:.{1 if hours > 0.05 else 2}f} |")
        assert len(stored["runs"]) == int(runs.split()[0].replace(",", ""))
    return "\n".join(rows)


def again():
    """What each claim should show, and what each series of runs says of it on each text."""
    rows, agree, agree_today, moved = [], [], [], []
    today = order_again.outcomes(order_again.TEN_ROUNDS)
    for claim, by_text in order_again.outcomes().items():
        for text, found in by_text.items():
            expected = "a cost" if claim.sign > 0 else "a gain"
            expected += ", \u2217" if text in claim.stars else ""
            series = [finding(text, claim.label), found, today[claim][text]]
            agree.append(order_again.agrees(claim, found))
            agree_today.append(order_again.agrees(claim, series[2]))
            moved.append(abs(series[2].mean - found.mean))
            rows.append(
                [
                    f"{claim.label.replace(' - ', ' against ')}: {TEXTS[text]}",
                    expected,
                    *(interval(it.mean, it.reach, star(it)) for it in series),
                ]
            )
    head = ["order: text", "should be", "seeds 0 to 9", "new seeds", "with today's shuffle"]
    return {
        "again": as_table(head, rows),
        "agree": sum(agree),
        "all": len(agree),
        "told": f"{sum(agree) - 1} of the {len(agree)}",
        "agree_today": sum(agree_today),
        "moved_today": max(moved),
    }


def mean_curve(text, arm):
    """Shares of the run, and the held-out loss there: the mean of sources and seeds."""
    read = [curves(text, "buffers", arm, source) for source in results()["texts"][text]]
    tokens = read[0][0]
    return tokens / tokens[-1], np.mean([losses for _, losses in read], axis=(0, 1))


def ending():
    """What a run in file order with a shuffled fifth still costs, source by source."""
    arm, rows = "in file order, last 20% shuffled", []
    for text, label in TEXTS.items():
        steps, shuffle = mean_curve(text, "shuffled")
        place = np.interp(-mean_curve(text, arm)[1][-1], -shuffle, steps)
        costs = [
            f"{source} {np.mean(more(text, 'buffers', arm, 'shuffled', source)):+.2f}"
            for source in results()["texts"][text]
        ]
        rows.append([label, ", ".join(costs), f"{place:.0%} of its steps"])
        assert finding(text, arm).has_star and 0.3 < place < 0.7
    return as_table(["text", "cost", "ends where the shuffle is after"], rows)


def of_the_runs():
    """What the page says of the small model's runs."""
    samples = results()["runs"][0]["tokens"][-1] // 32
    ends = {}
    for experiment, arm in (("buffers", "shuffled"), ("repetition", "fresh")):
        for text in TEXTS:
            losses = at_the_end(runs_of(text, experiment))[arm].values()
            ends.setdefault(arm, []).append(f"{np.mean([*losses]):.2f}")
    parameters = sum(it.numel() for it in SmallModel(SIZES["small"]).parameters())
    count = sum(it["training_samples"] for it in results()["texts"]["corpus"].values())
    late = np.arange(count) - exchanged(count, 1_000, seed=0)
    return {
        "samples": f"{samples:,}",
        "ratio": 32 * samples / parameters,
        "ends": ends["shuffled"],
        "fresh": ends["fresh"],
        "late": np.mean(late > 1_000),
        "ending": ending(),
    }


def other_rates():
    """What file order and the blend cost at each rate and batch, and each order at its best rate."""
    kinds = {
        "as usual": "",
        "half the peak": PEAKS[0.5],
        "twice the peak": PEAKS[2.0],
        "WSD": RATES["WSD"],
        "a constant rate": RATES["constant"],
        "batches of 8": BATCHES[8],
        "batches of 32": BATCHES[32],
    }
    labels = {(it.text, it.question.label): it.mean for it in tested()}
    columns = [(text, way) for text in TEXTS for way in ("in file order", BLENDED)]
    lines = []
    for kind, which in kinds.items():
        means = [labels.get((text, way + which)) for text, way in columns]
        lines.append([kind, *("not run" if it is None else f"{it:+.2f}" for it in means)])
    best = []
    for text in TEXTS:
        shuffle, *ends = (best_ends(text, arm) for arm in ("shuffled", "in file order", BLENDED))
        costs = [end - shuffle for end in ends]
        best += map(cost_said, costs)
        assert 0.1 < costs[1].mean() < 0.5 * costs[0].mean()
    lines.append(["each order at its best of four", *best])
    heads = [f"{TEXTS[text]}: {way.partition(',')[0]}" for text, way in columns]
    return as_table(["nats above the shuffle", *heads], lines)


def larger():
    """What shuffled documents cost in batches of 8 to 256, by text."""
    lines = []
    for text, label in TEXTS.items():
        rows = results("order_batches")["rows_of_own_document"][text]
        batches, whole = by_batch(text, "in file order")
        _, costs = by_batch(text, TOGETHER)
        _, shuffles = by_batch(text, "shuffled", against=None)
        for batch, cost, all_of_it, end in zip(batches, costs.T, whole.T, shuffles.T, strict=True):
            said = [label, str(batch), f"{rows / batch:.1f}"]
            said += [f"{cost.mean():+.2f} \u00b1 {reach(cost):.2f}"]
            said += [f"{cost.mean() / all_of_it.mean():.0%}", f"{end.mean():.2f}"]
            lines.append(said)
    head = ["text", "batch", "rows of a document / of a batch", "nats above the shuffle"]
    return as_table([*head, "of what file order costs", "the shuffle ends at"], lines)


def of_the_batches():
    """What the page says of larger batches."""
    own = results("order_batches")["rows_of_own_document"]
    means = []
    for text in TEXTS:
        facts = results()["texts"][text].values()
        samples = sum(it["training_samples"] for it in facts)
        documents = sum(it["documents_that_samples_begin_in"] for it in facts)
        means.append(f"{samples / documents:.0f}")
    return {
        "larger": larger(),
        "batch_seeds": seeds("order_batches"),
        "largest_ends": " and ".join(
            f"{by_batch(text, 'shuffled', against=None)[1][:, -1].mean():.1f}" for text in TEXTS
        ),
        "own": " and ".join(f"{own[text]:.0f} on {label}" for text, label in TEXTS.items()),
        "mean_rows": " and ".join(means),
    }


def spreads():
    """The deviations of each number of epochs, and the interval of eight with the usual one."""
    rows = []
    for text, label in TEXTS.items():
        deviations = np.array(
            [
                np.std(more(text, "repetition", f"{n} epochs, same order", "fresh"), ddof=1)
                for n in EPOCHS
            ]
        )
        usual = (
            finding(text, "8 epochs").seeds.reach * np.sqrt(np.mean(deviations**2)) / deviations[2]
        )
        rows.append([label, *(f"{it:.3f}" for it in deviations), f"\u00b1 {usual:.3f}"])
    return as_table(["text", *(f"{n} epochs" for n in EPOCHS), "8, usual spread"], rows)


def weighted():
    """The shares of the training samples, and what orders of section 2 cost if sources had these weights."""
    ways = [
        "in file order",
        *("a buffer of 1,000" + kind for kind in ("", " that exchanges")),
        APART,
        TOGETHER,
        BLENDED,
    ]
    shares, lines = {}, {way: [way] for way in ways}
    for text in TEXTS:
        counts = {it: facts["training_samples"] for it, facts in results()["texts"][text].items()}
        shares[text] = {it: count / sum(counts.values()) for it, count in counts.items()}
        for way in ways:
            cost = sum(
                share * np.array(more(text, "buffers", way, "shuffled", source))
                for source, share in shares[text].items()
            )
            alike = finding(text, way).mean
            lines[way] += [f"{alike:+.2f}", f"{cost.mean():+.2f}"]
    said = "; ".join(
        ", ".join(f"{source} {share:.0%}" for source, share in of_text.items())
        for of_text in shares.values()
    )
    heads = [f"{text}: {how}" for text in ("corpus", "real") for how in ("alike", "by samples")]
    return as_table(["nats above the shuffle", *heads], lines.values()), said


def of_the_clean_rows():
    """What the page says of held-out documents that share no 13 tokens with a training one."""
    lines = []
    for label, (found, clean, difference) in on_clean_rows().items():
        cells = [f"{it.mean:+.2f} \u00b1 {it.reach:.2f}{star(it)}" for it in (found, clean)]
        cells.append(f"{difference.mean():+.2f} \u00b1 {reach(difference):.2f}")
        lines.append([label.replace(" - ", " against "), *cells])
        assert found.has_star and clean.has_star and found.mean * clean.mean > 0
    head = ["order", "usual rows", "clean rows", "clean less usual"]
    stored = results("order_clean")
    facts = {it: facts for it, facts in stored["texts"]["corpus"].items() if CLEAN in it}
    shuffled = [run["held_out"] for run in stored["runs"] if run["run"][3] == "shuffled"]
    ends = {"": [], CLEAN: []}
    for losses in shuffled:
        for prefix, found in ends.items():
            found.append([losses[prefix + it][-1] for it in order_clean.SOURCES])
    kept = [
        f"{it['clean_rows'] / it['rows_written']:.0%} of {name.removeprefix(CLEAN)}"
        for name, it in facts.items()
    ]
    return {
        "clean": as_table(head, lines),
        "kept": ", ".join(kept),
        "written": order_clean.WRITTEN,
        "clean_ends": [f"{np.mean(it):.2f}" for it in ends.values()],
        "clean_seeds": seeds("order_clean"),
    }


def of_the_few():
    """What the page says of other samples as few as Nanotron's, with a little of the unread source."""
    begin = results("order_few")["documents_of_the_last_source"]
    costs, lines = {}, []
    for arm in [*FEWER, *(FEWER[0] + which for which in LITTLE.values())]:
        costs[arm] = [cost_among_few("corpus", arm, "arithmetic", warm) for warm in (False, True)]
        costs[arm].append(cost_among_few("corpus", arm, "programs"))
        if arm in FEWER:
            costs[arm].append(cost_among_few("real", arm, "shakespeare"))
        said = [f"{it.mean():+z.3f} \u00b1 {reach(it):.3f}" for it in costs[arm]]
        lines.append(
            [arm.replace("the middle source", "arithmetic"), *said, *[""] * (4 - len(said))]
        )
    head = ["samples", "arithmetic", "arithmetic, softened", "programs", "Shakespeare"]
    unread = {arm: unread_on_its_way(arm) for arm in ("all samples", FEWER[0])}
    first, following, spread = (costs[arm] for arm in FEWER)
    return {
        "of_few": as_table(head, lines),
        "begin": [", ".join(str(begin[text][it]) for it in FEWER) for text in TEXTS],
        "few_seeds_new": f"{seeds('order_few')} new seeds (from 20 on)",
        "control_failed": f"{first[0].mean():+.2f} \u00b1 {reach(first[0]):.2f}",
        "others_cost": [f"{it[0].mean():+.2f}" for it in (following, spread)],
        "little_costs": [
            f"{it.mean():+z.2f} \u00b1 {reach(it):.2f}"
            for it in (costs[FEWER[0] + which][0] for which in LITTLE.values())
        ],
        "softer": f"{1 - first[1].mean() / first[0].mean():.0%}",
        "plays": [f"{it[3].mean():+.2f}" for it in (first, following, spread)],
        "least_at": [f"{(np.argmin(it) + 1) / len(it):.0%}" for it in unread.values()],
        "risen": [f"{it[-1] - it.min():.2f}" for it in unread.values()],
    }


def unread_on_its_way(arm):
    """The mean loss on arithmetic after each eighth of a run that reads none."""
    runs = [run for run in results("order_few")["runs"] if run["run"][1] == "corpus"]
    losses = [run["held_out"]["arithmetic"] for run in runs if run["run"][3] == arm]
    return np.mean(losses, axis=0)


def widths():
    rows = []
    for parameters, (short, long) in WIDTHS.items():
        ends = [ends_of(short), ends_of(long), ends_of(short, "real")]
        rows.append([parameters, *(said_of(*(it.mean() for it in pair)) for pair in ends)])
    return as_table(["model", "1.1M tokens", "11.2M tokens", "1.1M tokens of real text"], rows)


def of_the_widths():
    """What the page says of section 6."""
    where = {"1.1 million tokens": (", short", "generated"), "11.2 million": ("", "generated")}
    where["1.1 million of real text"] = (", short", "real")
    wider = {name: wider_less_narrower(*it) for name, it in where.items()}
    stories = [
        np.array([run["held_out"]["stories"] for run in in_file_order(size)])
        for _, size in WIDTHS.values()
    ]
    best = [it.min(axis=1).mean() for it in stories]
    end = [it[:, -1].mean() for it in stories]
    assert min(end) > np.log(512) > 4 * max(best)
    gains = []
    for text in ("generated", "real"):
        narrow, wide = ([it.mean() for it in ends_of(size, text)] for size, _ in WIDTHS.values())
        gains.append(narrow[1] - wide[1])
        assert abs(wide[0] - narrow[0]) < gains[-1]
    cost = {
        way: np.mean(more("generated", "buffers", way, "shuffled"))
        for way in (
            "in file order",
            "one after another, each shuffled",
            "a buffer of 1,000",
            BLENDED,
        )
    }
    whole, *others = cost.values()
    shuffled = ends_of("narrow")[1]
    costs = [
        ends_in_rounds() - shuffled,
        *(np.subtract(*ends_of(size)) for size in ("narrow, short", "narrow")),
    ]
    # the page says so
    assert abs(costs[0].mean() - costs[1].mean()) < reach(costs[0]) < costs[2].mean() / 3
    said = [f"{it.mean():+.2f} \u00b1 {reach(it):.2f}" for it in costs]
    less, half = apart(*costs[:2])
    return {
        "rounds_less_short": f"{less:+z.2f} \u00b1 {half:.2f}",
        "in_rounds": ends_in_rounds().mean(),
        "rounds_cost": said[0],
        "short_cost": said[1],
        "long_cost": said[2],
        "wider": ", ".join(
            f"{name} {mean:+.2f} \u00b1 {half:.2f}" for name, (mean, half) in wider.items()
        ),
        "best": [f"{it:.1f}" for it in best],
        "end": [f"{it:.1f}" for it in end],
        "guess": np.log(512),
        "gain": [f"{it:.1f}" for it in gains],
        "saved": [f"{1 - it / whole:z.0%}" for it in others],
    }


def of_the_rounds():
    """What the page says of ten rounds at a constant rate."""
    short, long = (ends_at_constant_rate(size) for size in ("narrow, short", "narrow"))
    small = small_in_rounds()
    long_falling = np.subtract(*ends_of("narrow")), ends_in_rounds() - ends_of("narrow")[1]
    short_falling = np.subtract(*ends_of("narrow, short"))
    wide, tiny = "118,000 parameters", "107,000, the course's corpus"
    runs = {  # by model, tokens, rate and steps of a block: one round and ten
        (wide, "11.2M", "falling", "910, 91"): long_falling,
        (wide, "11.2M", "constant", "910, 91"): np.subtract(long[:2], long[2]),
        (wide, "1.1M", "falling", "91, 9"): (short_falling, None),
        (wide, "1.1M", "constant", "91, 9"): np.subtract(short[:2], short[2]),
    }
    runs |= {(tiny, "0.3M", rate, "213, 21"): costs for rate, costs in small.items()}
    rows = [[*which, *map(cost_said, costs), *saved_said(*costs)] for which, costs in runs.items()]
    head = ["parameters", "tokens", "rate", "steps of a block", "one round", "ten rounds", "saved"]
    over = long[1] - long[2] - (short[0] - short[2])
    stored = results("order_steady_small")["runs"]
    assert over < 0 < small["falling"][1].mean() - small["falling"][0].mean()
    return {
        "rounds": as_table(head, rows),
        "steady": sum("steady" in run["run"] for run in stored)
        + len(results("order_steady")["runs"]),
        "saved_long": saved_said(*np.subtract(long[:2], long[2]))[0],
        "over_short": f"{over:+.2f}",
        "small_saved": " and ".join(
            f"{saved_said(*it)[0]} at a {rate} one" for rate, it in small.items()
        ),
        "small_programs": [
            f"{np.mean([*at_the_end(stored, 'programs')[way + ', constant rate'].values()]):.2f}"
            for way in ("in file order", IN_ROUNDS)
        ],
        "moved_again": moved_again(stored),
    }


def cost_said(cost):
    """A cost, with its interval where there are several seeds."""
    if cost is None:
        return "not run"
    if np.ndim(cost) == 0:
        return f"{cost:+.2f} (one seed)"
    return f"{np.mean(cost):+.2f} \u00b1 {reach(cost):.2f}"


def saved_said(whole, rounds):
    return [""] if rounds is None else [f"{1 - np.mean(rounds) / np.mean(whole):.0%}"]


def moved_again(runs):
    """How far repeated runs came from the first ones: the shuffle, file order, and the mean of that."""
    first, repeated = at_the_end(runs_of("corpus", "buffers")), at_the_end(runs)
    shuffle, file_order = (
        np.array([end - first[way][seed] for seed, end in repeated[way].items()])
        for way in ("shuffled, constant rate", "in file order, constant rate")
    )
    found = np.abs(shuffle).max(), np.abs(file_order).max(), abs(file_order.mean())
    return [f"{found[0]:.4f}", f"{found[1]:.2f}", f"{found[2]:.3f}"]


def of_the_tests():
    """What the page says of how far they reach."""
    stars = [it for it in tested() if it.has_star]
    both = stars_with_both_errors(tested(), seeds())
    assert all(it in stars for it in both)
    [lost] = [it for it in stars if it not in both]
    least = [
        f"{detectable(finding(text, 'shuffled again'), len(tested()), seeds()):.2f} nats on {label}"
        for text, label in TEXTS.items()
    ]
    controls = {2: [], 4: []}  # by the first of two sections
    pictured = how_many_are_pictured()
    assert sum(pictured) == len(tested())
    for found in tested():
        question = found.question
        if "shuffled again" in question.label and "unread" not in question.label:
            controls[4 if question.sources else 2].append(abs(found.mean))
    unread = [
        finding("corpus", f"{arm}: unread source")
        for arm in ("stateless, shuffled again", "blend, Nanotron", "blend, few samples")
    ]
    eight = finding("real", "8 epochs")
    unread.append(control_again())
    programs, arithmetic = cost_of_few("programs"), cost_of_few("arithmetic")
    few = programs, arithmetic, programs - arithmetic
    assert abs(few[2].mean()) < reach(few[2])
    real = finding("real", "blend, few samples: small source")
    assert real.mean > 2 * arithmetic.mean()
    families = [], []
    for found in tested():
        families[of_another_rate(found.question)].append(found)
    apart_stars = [[it.question for it in corrected(of) if it.has_star] for of in families]
    assert sorted([*apart_stars[0], *apart_stars[1]]) == sorted(it.question for it in stars)
    return {
        "main": len(families[0]),
        "apart_stars": [len(it) for it in apart_stars[::-1]],
        "few": [f"{it.mean():+.3f} \u00b1 {reach(it):.3f}" for it in few],
        "above": [int((it > 0).sum()) for it in few],
        "few_seeds": len(programs),
        "few_real": f"{real.mean:+.2f} \u00b1 {real.reach:.2f}",
        "count": len(tested()),
        "stars": len(stars),
        "both": len(both),
        "lost": f"{TEXTS[lost.text]}, {lost.question.label} ({lost.mean:+.2f})",
        "least": " and ".join(least),
        "moved": max(controls[2]),
        "moved_source": max(controls[4]),
        "moved_unread": abs(unread[0].mean),
        "pictured": pictured,
        "draws": RESAMPLES,
        "unread": [f"{it.mean:+.2f} \u00b1 {it.reach:.2f}" for it in unread],
        "narrow": eight.reach,
        "mean": eight.mean,
    }


def how_many_are_pictured():
    """Of the comparisons: those of section 7's picture, of section 4's, the rest of sections 3 to 5, and the others."""
    counts = [0, 0, 0, 0]
    for found in tested():
        label = found.question.label
        if found.question.experiment != "buffers":
            counts[1 if "last fifth" in label and "better" in label else 2] += 1
        elif of_another_rate(found.question):
            assert found.has_star and found.mean > 0
            counts[3] += 1
        else:
            counts[0] += 1
    return counts


def of_another_rate(question):
    """Whether a comparison of section 2 is at another rate or in other batches than the usual ones."""
    return question.experiment == "buffers" and bool(RATE.search(question.arm).group())


def held_out():
    """How many rows a source is measured on, and how many documents these begin in."""
    said, counts = [], set()
    for text, sources in rows_of(RESULTS, results()["texts"]).items():
        documents = {it: len(np.unique(rows.documents)) for it, rows in sources.items()}
        counts |= {len(rows.documents) for rows in sources.values()}
        said.append(
            f"on {TEXTS[text]} from "
            + ", ".join(f"{n} documents of {it}" for it, n in documents.items())
        )
    [count] = counts
    return count, "; ".join(said)


def page():
    """The Markdown of the appendix."""
    parts = {"commands": commands(), "comparisons": comparisons(), "spreads": spreads()}
    parts |= {"other_rates": other_rates(), **again(), **of_the_clean_rows(), **of_the_few()}
    parts |= dict(zip(("held_out", "documents"), held_out(), strict=True))
    parts |= dict(zip(("weighted", "weights"), weighted(), strict=True))
    parts |= {"first": order_again.SEEDS[0], "last": order_again.SEEDS[-1], "widths": widths()}
    return TEXT.format(
        **parts,
        **of_the_runs(),
        **of_the_batches(),
        **of_the_tests(),
        **of_the_widths(),
        **of_the_rounds(),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
