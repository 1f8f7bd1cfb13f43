"""What packing and document masks cost: `python -m benchmarks.packing [--documents 2e6] [--rounds 9] [--output FILE]`.

1. Documents packed per second of one core, for log-normal lengths (median 400, mean 666 tokens), by sequence length S.
2. Milliseconds of attention over one packed row of S = 2,048 on one core, forward and backward, 8 heads of 64 in
   float32, with documents of so many tokens each: `causal` (is_causal=True), `mask` (a causal bool mask by document),
   `cu_seqlens` (a call per document, in place of a kernel that takes these edges). Medians of interleaved rounds.

Times are those of the process, so that other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.record import command, machine, save
from nanoset_ref import pack_documents, plain

S, HEADS, WIDTH = 2048, 8, 64


def documents_per_second(documents: int, sequence_length: int) -> float:
    lengths = np.random.RandomState(0).lognormal(6, 1, documents).astype(np.int64) + 1
    offsets = np.append(0, np.cumsum(lengths))
    begun = time.process_time()
    pack_documents(offsets, sequence_length + 1)
    return documents / (time.process_time() - begun)


def attention_ways(document_length: int) -> dict[str, Callable[[], torch.Tensor]]:
    """Three ways to compute attention over a row; two of them give the same."""
    attention = torch.nn.functional.scaled_dot_product_attention
    starts = np.arange(S) % document_length == 0
    fields = plain.document_fields(starts)
    seen, edges = (
        torch.from_numpy(~fields["attention_mask"]),
        fields["cu_seqlens"].tolist(),
    )
    torch.manual_seed(0)
    query, key, value = (
        torch.randn(1, HEADS, S, WIDTH, requires_grad=True) for _ in range(3)
    )

    def apart() -> torch.Tensor:
        parts = [
            [it[:, :, begin:end] for it in (query, key, value)]
            for begin, end in itertools.pairwise(edges)
        ]
        return torch.cat([attention(*part, is_causal=True) for part in parts], dim=2)

    ways = {
        "causal": lambda: attention(query, key, value, is_causal=True),
        "mask": lambda: attention(query, key, value, attn_mask=seen),
        "cu_seqlens": apart,
    }
    assert torch.allclose(ways["mask"](), ways["cu_seqlens"](), atol=1e-5)
    return ways


def milliseconds(
    ways: dict[str, Callable[[], torch.Tensor]], rounds: int
) -> dict[str, float]:
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, attend in ways.items():
            begun = time.process_time()
            attend().sum().backward()
            times[way].append(1e3 * (time.process_time() - begun))
    return {way: statistics.median(values) for way, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=float, default=2e6)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pack_documents(np.array([0, 5, 9]), 4)  # compiles
    packed, attended = {}, {}
    for sequence_length in (512, 2048, 8192, 131_072):
        rates = [
            documents_per_second(int(options.documents), sequence_length)
            for _ in range(3)
        ]
        packed[sequence_length] = round(statistics.median(rates))
        print(
            f"S = {sequence_length:>7,}: {packed[sequence_length] / 1e6:.1f} million documents per second"
        )
    for document_length in (2048, 512, 128):
        found = milliseconds(attention_ways(document_length), options.rounds)
        print(
            f"documents of {document_length:>5,}: "
            + ", ".join(f"{way} {ms:.0f} ms" for way, ms in found.items())
        )
        attended[document_length] = {way: round(ms, 1) for way, ms in found.items()}
    head = {"command": command("packing"), "machine": machine()}
    rates_of = {"documents_per_second": packed, "milliseconds": attended}
    save(head | rates_of, options.output)


if __name__ == "__main__":
    main()
