"""The files beside token files, which a glob would also match."""

from collections.abc import Sequence


def without_companions(paths: Sequence[str]) -> list[str]:
    """Drop companion files: boundaries, .idx files and seals."""
    companions = {
        path.removesuffix(".npy") + ".documents.npy" for path in paths if path.endswith(".npy")
    }
    pairs = [path.removesuffix(".bin") for path in paths if path.endswith(".bin")]
    companions |= {prefix + end for prefix in pairs for end in (".idx", ".seal")}
    companions |= {f"{path}.seal" for path in paths}
    return [path for path in paths if path not in companions]
