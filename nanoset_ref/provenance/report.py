"""What an audit found: laws that hold or do not, and what every source contributes; for people and for machines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One law, whether it holds, and the figures that show it."""

    law: str
    holds: bool
    detail: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """What a leg reads of one file.

    Attributes:
        path: the file.
        num_samples: samples in it (Megatron-style: in one pass over its documents).
        read: samples that the leg reads, repetitions counted.
        epochs: read / num_samples (Megatron-style: tokens read / tokens in one pass).
        distinct: different samples read from the dataset's first position to the leg's end.
        repetitions: how often, in that time, the sample that is read most is read (Megatron-style: how often, at most,
            a document; samples are cut anew in every pass).
        weight: the share asked for.
        share: the share that the leg reads.
        tokens: tokens in the file (Megatron-style: in its documents of this split, all passes together).
        tail_tokens: tokens at its end that no sample holds; below 0: padding in the last sample.
    """

    path: str
    num_samples: int
    read: int
    distinct: int
    epochs: float
    repetitions: int
    weight: float
    share: float
    tokens: int
    tail_tokens: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class LegReport:
    """The laws and the sources of one leg."""

    name: str
    num_steps: int
    checks: Sequence[Check]
    sources: Sequence[Source]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What `audit` found. `ok`: every law holds. `str` is for people, `to_json` for machines."""

    legs: Sequence[LegReport]

    @property
    def ok(self) -> bool:
        return all(check.holds for leg in self.legs for check in leg.checks)

    def to_json(self) -> str:
        return json.dumps({"ok": self.ok, **dataclasses.asdict(self)}, indent=1)

    def __str__(self) -> str:
        lines = []
        for leg in self.legs:
            lines.append(f"{leg.name}: {leg.num_steps:,} steps")
            lines += [f"  {'holds ' if check.holds else 'BROKEN'}  {check.law}: {check.detail}" for check in leg.checks]
            lines.append(
                f"  {'file':<32} {'samples':>13} {'read':>13} {'distinct':>13} {'epochs':>8} {'at most':>7}"
                f"  {'weight':>7} {'share':>7}"
            )
            for source in leg.sources:
                lines.append(
                    f"  {source.path[-32:]:<32} {source.num_samples:>13,} {source.read:>13,} {source.distinct:>13,}"
                    f" {source.epochs:>8.3f} {source.repetitions:>6}x  {source.weight:>7.4f} {source.share:>7.4f}"
                )
        lines.append("every law holds" if self.ok else "NOT every law holds")
        return "\n".join(lines)
