"""By picture of the notebooks, an example of what it draws and the words that it has to show."""

import importlib
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nanoset_ref.train import layout_of_rank

DRAW = np.random.RandomState(0)
NAMES = ["stories", "arithmetic", "programs"]
TINY = {
    "stories": "The| lantern| was| old|.|EOS|Nora| walked| home|.|EOS".split("|"),
    "programs": "def| f|(|x|):|\n   | return| x|EOS|f|(|7|)|EOS".split("|"),
}
RUNS = {name: np.linspace(8, 4, 60) for name in ("shuffled", "in file order")}
UNSEEN = {name: [5.0, 4.0] for name in RUNS}
TWO = [(7, " owl", "stories"), (0, "def", "programs")]
RANKS = {
    f"parts, {gpus} GPUs": [(k * gpus // 32, k % 4 == 0) for k in range(32)]
    for gpus in (2, 4)
}
POINTERS = {"input_ids": "→ rank 0", "model": "layers", "label_ids": "→ rank 3"}
FIRST = POINTERS | {"input_ids": "int32 [4, 8]"}
LAST = POINTERS | {"label_ids": "int32 [4, 8]"}
LAYOUTS = [layout_of_rank(rank, {"pp": 2, "dp": 2, "tp": 2}) for rank in range(8)]
PACKED = [(" lantern" if k % 5 else "EOS", NAMES[k // 20]) for k in range(25)]
TEXTS = {name: ["Nobody had seen the letter."] * 4 for name in NAMES}
KINDS = [k // 30 for k in range(90)]
DEALT = {"first job": {0: "0", 4: "1"}, "second job": {4: "2"}}
LOSSES = {"whole": (range(9), range(9)), "after": ([7, 8], [7, 8])}
HANDED_OVER = {
    "first job": {0: ("row 2", "stories"), 1: ("lost", "")},
    "then rank 1": {1: ("row 0", "stories")},
}
STEPS = {"open": 214.6, "stack": 22.8}
RUNGS = {
    "GPUs consume": [("8B", 6.6e4, "consumed")],
    "a bucket": [("1,024", 4e7, "computed"), ("10 Gbit/s", 6e8, "limit")],
}
RATES = {
    "nanoset_ref": [800, 900, 950],
    "memcpy": [2000, 1999, 1800],
    "grain": [30, 31, 29],
}
SPLITS = [(0, 0), (1, 2), (2, 3), (2, 7), (4, 0)]
DOCUMENTS = [list("012345678"), list("9ab"), list("cdefg"), list("hi"), list("jklm")]
MIXED_ROW = [
    ("The", "stories"),
    (" lantern", 0),
    ("EOS", 5),
    ("7", "arithmetic"),
    ("f", "programs"),
]
BAR_ROWS = {
    f"k = {k}": [("sum", "arithmetic", 2), (3, 3, 4), ("train", "white", 1)]
    for k in range(3)
}
TWO_LOSSES = {"causal": [5, 4, 3, 3, 3], "document": [5, 3, 2, 2, 2]}
SIZES = {str(10**power): 10.0 ** (power - 6) for power in range(3, 9)}
SEEDS = {
    "shuffled": (range(4), DRAW.randn(5, 4)),
    "file order": (range(4), 3 + DRAW.randn(5, 4)),
}
COSTS = {
    "buffer 10": ([0.2, 0.3], True),
    "16 epochs": ([-0.1, 0.1], False),
    "blended": ([-0.2, -0.4], True),
}
MEMORY = {"anonymous": (range(9), [200] * 9), "all": (range(9), range(300, 1020, 80))}
IN_ROWS = {
    "wrap": [[("The owl", 0, 3), (" walked", 1, 3)]],
    "cut": [[("home", 2, 6), ("lost", -2, 3)]],
}
IN_ROWS |= {"pad": [[("7 * 8 = 56", 3, 5), ("", -1, 1)]], "best": [[("def f", 4, 6)]]}
CUT_OR_LOST = [
    {"wrap": [0.9, 0.5], "best fit": [0.8, 0.1]},
    {"truncate": [0.9, 0.1], "pad": [0.1, 0.8], "best fit": [0, 0.01]},
]
# by function, its arguments, and last what the picture has to say
PICTURES: dict[str, list[Any]] = {
    "quickstart.text_to_batch": [
        TINY,
        4,
        [("programs", 1), ("stories", 0), ("programs", 2)],
        2,
        "1:  inputs|↵|old",
    ],
    "quickstart.order_and_loss": [
        RUNS,
        {"stories": 40, "programs": 20},
        UNSEEN,
        8.3,
        "shuffled|stories",
    ],
    "orders.greedy_choice": [
        {"stories": 0.7, "programs": 0.3},
        [0, 1, 0, 0],
        "stories, 70%|position t",
    ],
    "orders.times_read": [
        {"stories": [2, 2, 1], "programs": [1] * 700 + [0] * 500},
        "T",
        "never read: 500 of 1,200  ",
    ],
    "orders.epochs": [
        {"new": DRAW.permutation(900) % 300},
        300,
        150,
        "150|epoch 3|sample",
    ],
    "batches.runs": [
        {"A": np.linspace(6, 2, 60), "B": np.linspace(6, 0, 60)},
        "broken",
        "  A|  B|broken",
    ],
    "batches.shift": [
        ["Nora", " walked", " home", ".", " The", " owl"],
        "six",
        "input_ids|label_ids|␣walked|six",
    ],
    "batches.samples": [
        {"got": TWO, "gave": [*TWO, TWO[0]]},
        "lost",
        [7],
        "got|7\n␣owl|0\ndef|lost",
    ],
    "sharding.columns": [
        {"slices": [[0, 1], [2, 3]], "zig-zag": [[0, 3], [1, 2]]},
        "title",
        "slices|rank 1: 7|rank 1: 5",
    ],
    "sharding.pipeline": [
        [FIRST, POINTERS, LAST],
        "flow",
        "→ rank 3|int32 [4, 8]|label_ids|activations|layers|flow",
    ],
    "sharding.readers": [RANKS, "fair", "parts, 4 GPUs|28|sample|fair"],
    "sharding.machine": [
        LAYOUTS,
        ["input_ids\n[0, 2]", ""] * 4,
        "two readers",
        "pp rank 1|dp rank 1|two readers",
    ],
    "sharding.nodes": [
        LAYOUTS,
        [[0, 2], [1, 3]] * 4,
        4,
        "two nodes",
        "Node 0: pp rank 0 needs input_ids|GPU 7\ndp 1 · tp 1|page cache: positions 0, 1, 2, 3"
        "|no ids|two nodes",
    ],
    "resume.times_read": [
        {"x": [0, 1, 2, 1] * 6},
        {4: "k"},
        [("s3", "k")] * 24,
        "lost",
        "x|s3|lost|6 never, 6 again",
    ],
    "resume.timeline": [
        [(1, 17), (16, 22), (21, 24)],
        [5, 10, 15, 20],
        24,
        "start 3|killed: 2 steps lost",
    ],
    "resume.lanes": [
        {"rank 0": [(0, "stories", "white", 4)]},
        {2: "killed"},
        "title",
        "rank 0|stories|killed|title",
    ],
    "resume.losses": [
        LOSSES,
        {"a": (0, 4), "b": (5, 8)},
        {6: "SIGKILL"},
        "same",
        "SIGKILL|whole|after|same",
    ],
    "resume.same_losses": [
        [8.0, 6.5, 5.25],
        {"first start": [(1, 8.0), (2, 6.5)], "second start": [(2, 6.5), (3, 5.25)]},
        {"stories": 1, "sums": 3},
        2,
        "sums|SIGKILL after step 2, done twice:\n6.5000 both times|second start",
    ],
    "permutations.rounds": [
        [(f"{k} rounds", [range(9)]) for k in range(8)],
        [2, 3],
        "they part",
        "6 rounds|they part",
    ],
    "megatron.stream": [
        DOCUMENTS,
        [3, 4, 0, 1, 2],
        SPLITS,
        [3, 1, 0, 2],
        "document 4|k = 0:  sample 3|sample 3|left over",
    ],
    "megatron.passes": [
        {"stories": 2.38, "programs": 0.7},
        "more than twice",
        "2.38 passes|0.70 passes|stories|more than twice",
    ],
    "megatron.bars": [
        {"8 samples": BAR_ROWS, "9 samples": BAR_ROWS},
        "8 samples|9 samples|k = 1|sum",
    ],
    "megatron.shuffles": [
        {"kept apart": DRAW.permutation(1800), "one": DRAW.permutation(1800)},
        1100,
        920,
        "headline",
        "headline|one",
    ],
    "megatron.attention": [MIXED_ROW, "token that looks|token looked at|␣lantern"],
    "megatron.mask_losses": [
        dict.fromkeys(["steps", "places"], TWO_LOSSES),
        "abcde",
        "causal|document|step|places|e",
    ],
    "permutations.clouds": [
        [(name, DRAW.permutation(3000)) for name in NAMES],
        "no lines",
        "no lines|number|stories",
    ],
    "permutations.sharing": [
        (0, (2, 1, 2, 5), 5, 10),
        [32, 19, 13],
        NAMES,
        "64 turns|programs: 13",
    ],
    "permutations.windows": [
        {"laid": ([0] * 64, [""] * 64), "mixed": ([1, 0] * 32, range(64))},
        "mixed|63",
    ],
    "permutations.deviations": [
        {"dice": DRAW.randn(800).cumsum()},
        {"dice": (810, 0)},
        "Drifts",
        "dice|Drifts",
    ],
    "streaming.dealt": [
        TEXTS,
        DEALT,
        "lost",
        True,
        "Nobody\nhad\nseen\nthe\nletter.|never|twice|second job|11",
    ],
    "streaming.collective": [
        [3, 3, 2],
        "two wait",
        "step 1|waits for all ranks|has left|two wait",
    ],
    "streaming.packed_rows": [
        [PACKED[k : k + 9] for k in (0, 8, 16)],
        "from row to row",
        "row 2|EOS|␣lantern",
    ],
    "streaming.mixtures": [
        dict.fromkeys(["no buffer", "all"], KINDS),
        8,
        "it does not mix",
        "no buffer|stories",
    ],
    "streaming.handed_over": [
        HANDED_OVER,
        "two continue",
        "lost|row 2|then rank 1|position|two continue",
    ],
    "streaming.encoders": [
        {f"K = {n}": [[True] * n + [False] * 8] * 4 for n in (1, 8)},
        "once",
        "K = 8|worker 3",
    ],
    "chunks.forgetting": [
        {"a": ([0] * 50 + [1] * 50, [[8, 8], [5, 7]])},
        NAMES[:2],
        8,
        "training step|stories",
    ],
    "chunks.mixture_over_time": [
        {"dealt": DRAW.randint(0, 3, 3300)},
        NAMES,
        128,
        "row of the run|stories",
    ],
    "chunks.tails": [
        {"packer 0": 27, "packer 1": 31},
        10,
        "Lost",
        "Lost|packer 0|7 lost|1 lost",
    ],
    "packing.ways": [IN_ROWS, 6, "One cuts", "One cuts|row 0|wrap|best|0|1|3|lost"],
    "packing.tree": [
        [0, 2, 1, 1, 1, 0, 1, 0],
        [5, 3, 6],
        6,
        "found",
        "sum of 4|look 1: 0|look 3: 1|found",
    ],
    "packing.counts": [
        [129, 257],
        dict.fromkeys(["code", "text"], CUT_OR_LOST),
        "Best fit cuts fewer",
        "Best fit cuts fewer|code|text|129|best fit|documents cut, %",
    ],
    "experiments.bands": [
        {"stories": SEEDS, "programs": SEEDS},
        "forgotten",
        "forgotten|stories|shuffled|file order",
    ],
    "experiments.intervals": [
        {
            "corpus": {"against fresh text:": None, "16 epochs": (-0.2, 0.1, "")},
            "real": {"file order": (0, 1, "x")},
        },
        "What is left",
        "What is left|corpus|real|against fresh text:|16 epochs|extra nats per token|x|-0.200 \u00b1 0.100",
    ],
    "experiments.differences": [
        {"corpus": COSTS, "real": COSTS},
        "costs",
        "shuffled",
        "costs|16 epochs|+0.25|-0.30",
    ],
    "laws.counterexamples": [
        {
            "resume": {"never stopped": [[0], [1]], "stopped": [[0]]},
            "ranks": {"rank 0": [[3, 4]]},
        },
        "smallest",
        "smallest|resume|never stopped|row 1|no batch|rank 0|row 3 4|step 1",
    ],
    "laws.sizes": [
        {"2 ranks": [1, 9], "3 ranks": []},
        48,
        [8, 48],
        "none is found",
        "none is found|2 ranks|rows|8|48",
    ],
    "laws.shrinking": [
        [("as drawn", range(53), range(12, 24)), ("rows = 2", [1, 0], [0])],
        "shrinks",
        "shrinks|as drawn|12 of 53 rows lost|1 of 2 rows lost",
    ],
    "provenance.jump": [
        [3.0, 2.5, 4.0, 2.4],
        range(2, 5),
        [3],
        "It jumps",
        "It jumps|step 3|training step",
    ],
    "provenance.step": [
        [("stories", "4: home.", "k = 224", "rank 0", 3)],
        "Step 5",
        "Step 5|4: home.|rank 0|position",
    ],
    "provenance.difference": [
        {"stories": (900, 300, 200, 50)},
        "seed",
        "both\n900|lost\n300|again\n200|first time\n50|stories: saved",
    ],
    "reading.hierarchy": [RUNGS, "enough", "enough|GPUs consume|1,024|10 Gbit/s"],
    "reading.steps": [
        {"nanotron": STEPS, "nanoset_ref": {"copy": 4}},
        "opening",
        "opening|nanotron|stack|23",
    ],
    "reading.rates": [
        {"512": RATES},
        "memcpy",
        "the limit",
        "nanoset_ref|900|memcpy: 2,000|the limit",
    ],
    "reading.memory": [
        {"kept": MEMORY, "anew": MEMORY},
        1024,
        "it lives",
        " the memory allowed|anonymous|anew|it lives",
    ],
    "reading.against_samples": [
        {"building": dict.fromkeys(["grain", "a walk"], SIZES)},
        "a walk|grain|building",
    ],
}


def draw(picture: str, arguments: list[Any]) -> Figure:
    module, _, name = picture.partition(".")
    return getattr(importlib.import_module(f"figures.{module}"), name)(*arguments)
