"""Record what llm.c reads: python record.py SOURCE, a checkout of f1e2ace, with gcc and NumPy. Writes batches.json.

Its own `llmc/dataloader.h` is compiled. Token i of file f is 10000 f + i, so that the first token of a row
says where it was read.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).parent
PROGRAM = """
#include "llmc/dataloader.h"
int main(int argc, char** argv) {
    int B = atoi(argv[2]), T = atoi(argv[3]), shuffle = atoi(argv[6]), steps = atoi(argv[7]);
    DataLoader loader;
    dataloader_init(&loader, argv[1], B, T, atoi(argv[4]), atoi(argv[5]), shuffle);
    for (int step = 0; step < steps; step++) {
        dataloader_next_batch(&loader);
        for (int b = 0; b < B; b++) printf("%d ", loader.inputs[b * T]);
    }
}
"""
CASES = [  # tokens of the files, T, B, ranks, shuffle, steps
    ([500], 4, 3, 1, 1, 130),
    ([300, 250, 431, 97], 3, 2, 2, 1, 200),
    ([300, 250, 431, 97], 3, 2, 2, 0, 200),
    ([801, 800, 802, 5000, 1000], 10, 1, 8, 1, 200),
    ([1024] * 6, 8, 4, 4, 1, 60),
]


def main():
    source = sys.argv[1]
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(f"{folder}/main.c").write_text(PROGRAM)
        built = [f"{folder}/main.c", f"-I{source}", "-o", f"{folder}/main", "-lm"]
        subprocess.check_call(["gcc", "-O1", "-w", *built])
        for number, (sizes, length, batch, ranks, shuffle, steps) in enumerate(CASES):
            data = pathlib.Path(f"{folder}/{number}")
            data.mkdir()
            for file, size in enumerate(sizes):
                header = np.zeros(256, dtype="<i4")
                header[:3] = 20240520, 1, size
                tokens = 10000 * file + np.arange(size)
                content = header.tobytes() + tokens.astype("<u2").tobytes()
                (data / f"{file}.bin").write_bytes(content)
            read = []
            for rank in range(ranks):
                numbers = (batch, length, rank, ranks, shuffle, steps)
                call = [f"{folder}/main", f"{data}/*.bin", *map(str, numbers)]
                read.append(
                    [*map(int, subprocess.check_output(call, text=True).split())]
                )
            names = (
                "tokens",
                "sequence_length",
                "micro_batch_size",
                "ranks",
                "shuffle",
                "steps",
            )
            case = dict(zip(names, CASES[number], strict=True))
            cases.append(
                json.dumps(case | {"first_tokens": read}, separators=(",", ":"))
            )
    (HERE / "batches.json").write_text("[\n" + ",\n".join(cases) + "\n]\n")


if __name__ == "__main__":
    main()
