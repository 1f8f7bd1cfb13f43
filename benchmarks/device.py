"""What share of a training step waits for data: `python -m benchmarks.device [--device cuda]`.

A GPT-2 trains on random ids (cross entropy, AdamW; on a GPU in bfloat16), fed by one loader after the other, in
interleaved rounds. Two figures per loader, medians and spread over the rounds:

    waiting     time of the training loop in `next(loader)` and in the call that starts the copy, of all its time
    slower      the time of a step, over that of the same step on a batch which never leaves the device

The first is what a trainer can measure itself (`data_wait` of nanoset_ref.train), the second also holds what the copy
and the loader's threads take from the step. On a GPU batches are pinned and copied without blocking; how fast blocks of
either kind are copied is told as well. Without `--device` it runs on the GPU if there is one, else a small model on the
CPU.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.peers import Tokens, endless, nanotron
from benchmarks.record import command, machine, save
from nanoset_ref.load.dataloader import build_nanoset_dataloader
from nanoset_ref.load.device import to_device
from nanoset_ref.load.nanoset import Nanoset

RUN = 10**9  # samples: no run ends
SIZES = {"cpu": (2, 64, 2), "cuda": (12, 768, 12)}  # layers, width, heads

Batches = Iterator[dict[str, Any]]
Step = Callable[[dict[str, Any]], None]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--sequence-length", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=8, help="samples per step")
    parser.add_argument("--steps", type=int, default=20, help="per loader and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--megabytes", type=int, default=256, help="size of the token file"
    )
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    options = parser.parse_args()
    device = torch.device(options.device)
    result = {
        "command": command("device"),
        "machine": machine(),
        "device": name_of(device),
    }
    print(result["device"])
    with tempfile.TemporaryDirectory() as folder:
        tokens = Tokens(Path(folder), options.megabytes << 19)
        loaders = open_loaders(
            tokens, options.sequence_length, options.batch_size, device.type == "cuda"
        )
        step = training_step(device, options.sequence_length)
        result["milliseconds"] = measure(
            loaders, step, device, options.rounds, options.steps
        )
    report(result["milliseconds"])
    if device.type == "cuda":
        result["gigabytes_per_second"] = copies(device)
    save(result, options.output)


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def open_loaders(
    tokens: Tokens, sequence_length: int, batch_size: int, pin: bool
) -> dict[str, Batches]:
    """Every loader, opened at its first batch."""

    def ours(**options: Any) -> Batches:
        nanoset = Nanoset(tokens.path, None, sequence_length, RUN, order="stateless")
        return endless(
            build_nanoset_dataloader(
                nanoset, micro_batch_size=batch_size, pin_memory=pin, **options
            )
        )

    return {
        "no workers": ours(),
        "a thread": ours(read_ahead=2),
        "2 workers": ours(num_loading_workers=2),
        "nanotron's way": endless(
            nanotron(tokens, sequence_length, batch_size, 0, pin)
        ),
        "nanotron's way, 2 workers": endless(
            nanotron(tokens, sequence_length, batch_size, 2, pin)
        ),
    }


def training_step(device: torch.device, sequence_length: int) -> Step:
    """Forward, backward and update on a batch that is on the device."""
    layers, width, heads = SIZES[device.type]
    config = GPT2Config(
        n_layer=layers,
        n_embd=width,
        n_head=heads,
        n_positions=sequence_length,
        vocab_size=50257,
    )
    model = GPT2LMHeadModel(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=device.type == "cuda")
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")

    def step(batch: dict[str, Any]) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(batch["input_ids"], use_cache=False).logits
            loss = cross_entropy(
                logits.flatten(0, 1), batch["label_ids"].flatten().long()
            )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure(
    loaders: dict[str, Batches],
    step: Step,
    device: torch.device,
    rounds: int,
    steps: int,
) -> dict[str, dict[str, list[float]]]:
    """Loader -> {"step", "waiting"}: milliseconds per step in each round; "resident" is the batch that stays."""
    resident = to_device(next(loaders["no workers"]), device)
    found: dict[str, dict[str, list[float]]] = {
        name: {"step": [], "waiting": []} for name in ("resident", *loaders)
    }
    for number in range(-1, rounds):  # the first one is to warm up
        for name in np.random.default_rng(number + 1).permutation(list(found)).tolist():
            times = found[name]
            finish(device)
            begun, waiting = time.perf_counter(), 0.0
            for _ in range(steps):
                asked = time.perf_counter()
                batch = (
                    resident
                    if name == "resident"
                    else to_device(next(loaders[name]), device)
                )
                waiting += time.perf_counter() - asked
                step(batch)
            finish(device)
            if number >= 0:
                times["step"].append(
                    round((time.perf_counter() - begun) / steps * 1e3, 4)
                )
                times["waiting"].append(round(waiting / steps * 1e3, 4))
    return found


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def report(found: dict[str, dict[str, list[float]]]) -> None:
    base = found["resident"]["step"]
    print(f"{'':<26} {'ms per step':>12} {'waiting':>20} {'slower':>22}")
    for name, times in found.items():
        waiting = [w / s for w, s in zip(times["waiting"], times["step"], strict=True)]
        slower = [s / b - 1 for s, b in zip(times["step"], base, strict=True)]
        print(
            f"{name:<26} {statistics.median(times['step']):>12.2f} {statistics.median(waiting):>8.2%}"
            f" ({min(waiting):.2%}-{max(waiting):.2%}) {statistics.median(slower):>8.2%}"
            f" ({min(slower):.2%} to {max(slower):.2%})"
        )


def copies(device: torch.device, megabytes: int = 64) -> dict[str, float]:
    """GB/s of copies to the device, from pinned and from other memory."""
    found = {}
    for name, block in (
        ("pinned", torch.zeros(megabytes << 18, dtype=torch.int32, pin_memory=True)),
        ("pageable", torch.zeros(megabytes << 18, dtype=torch.int32)),
    ):
        times = []
        for _ in range(20):
            finish(device)
            begun = time.perf_counter()
            block.to(device, non_blocking=True)
            finish(device)
            times.append(time.perf_counter() - begun)
        found[name] = round(block.nbytes / min(times) / 1e9, 2)
        print(f"copies from {name} memory: {found[name]} GB/s")
    return found


if __name__ == "__main__":
    main()
