"""Writes docs/order_tests.md, the appendix of notebook 17, from the stored runs: `python -m course.order_tests`."""

from course.order_comparisons import (
    again,
    commands,
    comparisons,
    of_the_batches,
    of_the_runs,
    other_rates,
)
from course.order_few import of_the_few, of_the_unread
from course.order_lengths import of_the_rounds, of_the_widths, widths
from course.order_reach import held_out, of_the_clean_rows, of_the_tests, spreads, weighted
from course.order_runs import REPOSITORY
from course.order_two_widths import blocks, of_the_blocks

PAGE = REPOSITORY / "docs/order_tests.md"

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

All but the series "with today's shuffle" were made while it had twelve rounds (algorithm 2 of the `stateless`
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

{stars} of them have a star. {pictured[0]} are of section 2 at its usual rate and batch, {pictured[1]} are in the
picture of section 4, {pictured[2]} more in sections 3 to 5, and {pictured[3]} at other rates and in other batches,
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

This is more than the noise of seeds, so a cost of 0.1 nats on programs says nothing of the programs. The cost to
Shakespeare, {few_real}, is more than twice as large; [its own control](#real-text-that-no-run-reads) came later.

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

### Real text that no run reads

Does the cost to Shakespeare survive such a control? With {unread_seeds} new seeds (from 30 on) the arms without
arithmetic were trained once more, and all samples in a second shuffle. They read WikiText and Shakespeare, and were
measured on two texts that no arm reads, too: a novel (Natsume's *Botchan*) and C++ (of sentencepiece), 128 rows of
each, which begin in {unread_documents[0]} and {unread_documents[1]} documents. What should come was
[written down](https://github.com/nanoset-ref/nanoset_ref/blob/main/benchmarks/order_arms.py) before the first run
(`unread`). Holm's correction is over the twelve comparisons without *softened*, whose intervals are over seeds alone.

{of_unread}

The first few cost Shakespeare more than the novel, by {beyond[0]}, and more than code, by {beyond[1]} (over seeds).

| expected | came | |
| :--- | :--- | :--- |
| Shakespeare: +0.25, +0.09 and +0.04 again, each within 0.06 | {unread_plays} | yes |
| A second shuffle moves neither unread text with a star | {unread_again} | yes |
| The first few cost both unread texts something, code with a star | {unread_costs} | yes |
| and neither more than a third of what they cost Shakespeare | {unread_shares} | wrong for code |
| Shakespeare's cost less that of either is above zero | {beyond[0]}, {beyond[1]} | yes |
| A temperature takes away more than half of what they lose | {unread_softer} | not of the novel's |

So **the control fails on real text, too**: much of what the first few samples cost Shakespeare, they cost code that
nobody reads. Shakespeare's own is only the rest, {beyond[1]}. What 116 samples spread over the file cost it is
no more than what they cost the novel ({beyond_spread}).

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

### Blocks at two widths

Is that so at one width alone? The small model and one twice as wide ({block_parameters} parameters) read file order in
1, 10 and 100 rounds, {block_seeds} new seeds (from 30 on) of each: a block has 213, 21 and 2 steps of the corpus, 320,
32 and 3 of real text. The peak rate is that of the small model. What should come was
[written down](https://github.com/nanoset-ref/nanoset_ref/blob/main/benchmarks/order_arms.py) before the first run
(`blocks`); Holm's correction is over these twenty comparisons.

{blocks}

| expected | came | |
| :--- | :--- | :--- |
| Each of the twelve costs has a star | {block_stars} have one | yes |
| On the corpus ten rounds save less than a quarter at both widths | {ten_saved[0]} | yes |
| On real text they save more than a quarter at both | {ten_saved[1]} | wrong |
| A hundred cost less than ten, with a star, at both widths on both texts | {hundred_stars} of 4 | yes |
| and save more than half | {hundred_saved} | yes |
| One round costs the wider model more | {wider_blocks} | yes |
| The shares saved differ between the widths by less than 20 points | by at most {block_apart:.0f} | yes |

So at both widths blocks of 21 or 32 steps cost more than those that are ten times as long. What ten rounds
save on the sources that are read first, they lose on the one that is read last, and with which one round ends. On the
corpus the narrower model loses {stories[1]} nats on stories instead of {stories[0]}, but {programs[1]} on programs
instead of {programs[0]}. Blocks of two or three steps cost less than half of either, but still something.
"""


def page():
    """The Markdown of the appendix."""
    parts = {"commands": commands(), "comparisons": comparisons(), "spreads": spreads()}
    parts |= {"other_rates": other_rates(), **again(), **of_the_clean_rows(), **of_the_few()}
    parts |= dict(zip(("held_out", "documents"), held_out(), strict=True))
    parts |= dict(zip(("weighted", "weights"), weighted(), strict=True))
    parts |= {"widths": widths(), "blocks": blocks()}
    return TEXT.format(
        **parts,
        **of_the_runs(),
        **of_the_batches(),
        **of_the_tests(),
        **of_the_widths(),
        **of_the_rounds(),
        **of_the_blocks(),
        **of_the_unread(),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
