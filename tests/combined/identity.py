"""What a run is changed to before it is resumed."""

from combined.axes import AXES, Draw, applicable, refusals

ORDERS = {
    "nanotron": "stateless",
    "stateless": "identity",
    "identity": "published",
    "published": "nanotron",
    "published raw": "identity",
    "grain": "levanter",
    "llm_c:micro_batch_size=2,dp_size=2": "llm_c:micro_batch_size=2",
    "maxtext:hosts=2": "maxtext",
    "nanotron_main": "nanotron",
    "olmo_core:chunk_size=2,batch_size=4": "olmo_core:batch_size=4",
    "py1e:canonical_nodes=2,block_size=6": "py1e:canonical_nodes=3,block_size=6",
}
OTHERS = {
    "other content": lambda draw: {"content": 1},
    "other seed": lambda draw: {"seed": 7 if draw["seed"] == 1234 else 1234},
    "other weights": lambda draw: {
        "weights": (3, 1, 2) if draw["weights"] != (3, 1, 2) else (1, 1, 1)
    },
    "other order": lambda draw: {"order": ORDERS.get(draw["order"], "nanotron")},
    "as published": lambda draw: {
        "order": "published in order" if draw["order"] == "identity" else draw["order"]
    },
    "other ledger": lambda draw: {
        "ledger": None if draw["ledger"] is None else (draw["ledger"][0], (4, 4, 4))
    },
    "other skip": lambda draw: {"skip": None if draw["skip"] else AXES["skip"][1]},
    "other length": lambda draw: {"length": 80 if draw["length"] != 80 else 17},
    "other pad_id": lambda draw: {"pad_id": 5},
    "other sequence_length": lambda draw: {"sequence_length": 5},
}


def places(draw: Draw) -> tuple[str, bool]:
    """Where the files of the resumed run lie, and whether their paths are spelled in another way."""
    where = draw["resume"] if draw["resume"] in ("moved", "renamed") else "here"
    return where, draw["resume"] == "other spelling"


def resumed(draw: Draw) -> Draw:
    """The run that goes on: another layout, and perhaps other reads. A change that no run can have is left out."""
    layout = {
        name: draw[f"{name}_after"]
        for name in ("dp_size", "micro_batch_size", "workers")
    }
    change = OTHERS[draw["resume"]](draw) if draw["resume"] in OTHERS else {}
    after = draw | layout
    other = after | applicable(after | change)
    if draw["dataset"] == "stream" and "content" in change:
        other["content"] = change["content"]
    return after if refusals(other) else other
