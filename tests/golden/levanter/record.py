"""Record Levanter's shuffle: python record.py SOURCE, a checkout of stanford-crfm/levanter 9263f81e.

It needs JAX and jaxtyping; Levanter's own `FeistelPermutation` is loaded from its file.
Writes shuffles.json beside itself.
"""

import importlib.util
import json
import pathlib
import sys

import jax
import numpy as np

HERE = pathlib.Path(__file__).parent
CASES = [(1, 0), (2, 3), (5, 7), (100, 42), (257, 11), (1000, 1)]  # n, seed of the key
LONG = [65536, 65537, 100_003, 2**20, 2**31 + 11, 2**33 + 5, 2**40 + 1]


def main():
    path = pathlib.Path(sys.argv[1]) / "src/levanter/data/_prp.py"
    spec = importlib.util.spec_from_file_location("prp", path)
    prp = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(prp)
    shuffles = []
    for size, seed in CASES + [(size, size % 1001) for size in LONG]:
        key = jax.random.PRNGKey(seed)
        permutation = prp.FeistelPermutation(size, key)
        places = np.arange(min(size, 1000))
        if size > 1000:
            places = np.append(
                [0, 1, 2, size - 1], np.random.default_rng(0).integers(0, size, 60)
            )
        case = {
            "samples": size,
            "drawn": jax.random.randint(key, (), 0, 2**30).item(),
            "places": places.tolist(),
            "read": permutation(places).tolist(),
        }
        shuffles.append(case)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in shuffles)
    (HERE / "shuffles.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
