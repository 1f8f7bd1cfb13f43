"""Record what MaxText's hosts read: python record.py SOURCE, a checkout of AI-Hypercomputer/maxtext e591f30cb.

It needs grain 0.2.18. MaxText's own `_apply_mapdataset_transforms` is taken out of grain_data_processing.py, and its
sources are ranges of numbers. Writes hosts.json beside itself.
"""

import ast
import itertools
import json
import pathlib
import sys

import grain.python as grain

HERE = pathlib.Path(__file__).parent
FILE = "src/maxtext/input_pipeline/grain_data_processing.py"
CASES = [  # records of each source, weights, seed, hosts
    ([7], None, 3, 1),
    ([100], None, 0, 4),
    ([5, 9], [0.5, 0.5], 1, 2),
    ([30, 20, 10], [0.7, 0.2, 0.1], 42, 3),
    ([11, 400, 3], [1, 3, 0.35], 9, 2),
    ([1000, 2000, 17, 90], [0.333, 0.25, 0.017, 0.4], 77, 8),
]


def main():
    tree = ast.parse((pathlib.Path(sys.argv[1]) / FILE).read_text())
    wanted = "_apply_mapdataset_transforms"
    (function,) = [it for it in tree.body if getattr(it, "name", "") == wanted]
    scope = {"grain": grain}
    exec(compile(ast.Module([function], []), FILE, "exec"), scope)
    recorded = []
    for sizes, weights, seed, hosts in CASES:
        firsts = [sum(sizes[:source]) for source in range(len(sizes))]
        read = []
        for host in range(hosts):
            sources = [
                scope[wanted](
                    grain.MapDataset.range(first, first + size),
                    True,
                    seed,
                    None,
                    host,
                    hosts,
                    0,
                    0,
                )
                for first, size in zip(firsts, sizes, strict=True)
            ]
            total = sum(weights or [1])
            shares = [weight / total for weight in weights or [1]]
            mixed = grain.IterDataset.mix(sources, shares) if weights else sources[0]
            read.append([int(it) for it in itertools.islice(mixed, 200)])
        case = {
            "sizes": sizes,
            "weights": weights,
            "seed": seed,
            "hosts": hosts,
            "read": read,
        }
        recorded.append(case)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in recorded)
    (HERE / "hosts.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
