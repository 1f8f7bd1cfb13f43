"""What the tests of the tool share: where the fixture `corpus` has its token files, and the layout of a run."""

LAYOUT = (
    "--sequence-length",
    "32",
    "--dp-size",
    "2",
    "--micro-batch-size",
    "2",
    "--batch-accumulation",
    "2",
)


def ids_of(folder, domain="stories"):
    return folder / f"{domain}_input_ids.npy"
