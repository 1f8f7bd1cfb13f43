"""What the tests of the tool share: the token files of the fixtures `corpus` and `demo`, and the layout of a run."""

FILES = "--data", "datasets/stories_input_ids.npy", "datasets/programs_input_ids.npy"

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
