"""What `tokenize` works on, and what it is asked for: subsets, the encoder with its separators, the configuration."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Literal, get_args

from nanoset_ref.chunks.manifest import Manifest, ManifestError
from nanoset_ref.text import SUFFIXES, InputError, OnError
from nanoset_ref.tokenise.encode import Backend

TailMode = Literal["drop", "pad", "carry"]
Format = Literal["jsonl", "tokens", "both"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizeConfig:
    """What decides the content of the output.

    Args:
        tokenizer: name or folder, as `AutoTokenizer.from_pretrained` takes it.
        concat_tokens: tokens per row; sequence_length + 1.
        bos_text, eos_text: put before and after each document; one token each.
        no_wrap: cut the document that a row ends in, instead of going on with it in the next row.
        tail: "drop"; "pad", with the padding or EOS token; "carry", into the first row of the next subset.
        format: "jsonl", "tokens" or "both".
        column: of the text; None: "text", or "content" where there is no "text".
        add_special_tokens: whether the tokenizer adds what it adds by itself (Llama's BOS), as the original script
            does.
        worker_packing: 0, or how many workers the original script had, to get its rows.
        backend: see `Encoder`; the ids are the same with all of them.
        on_error: "raise" or "skip", for a document that cannot be read.

    Raises:
        ValueError: a value out of its range.
    """

    tokenizer: str
    concat_tokens: int = 2049
    bos_text: str = ""
    eos_text: str = ""
    no_wrap: bool = False
    tail: TailMode = "drop"
    format: Format = "jsonl"
    column: str | None = None
    add_special_tokens: bool = True
    worker_packing: int = 0
    backend: Backend = "auto"
    on_error: OnError = "raise"

    def __post_init__(self) -> None:
        for name, kind in (("tail", TailMode), ("format", Format), ("on_error", OnError)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} must be one of {get_args(kind)}, got {getattr(self, name)!r}")
        if self.concat_tokens < 2 or self.worker_packing < 0:
            raise ValueError(
                f"concat_tokens must be at least 2, worker_packing at least 0, got {self.concat_tokens} and "
                f"{self.worker_packing}"
            )
        if self.worker_packing and (self.tail, self.format) != ("drop", "jsonl"):
            raise ValueError('worker_packing goes with tail="drop" and format="jsonl": every worker drops its own tail')


def _is_prepared(folder: Path) -> bool:
    try:
        return Manifest.read(folder) is not None
    except ManifestError:  # a manifest.json of somebody else's
        return False


def find_subsets(input_root: str | os.PathLike[str], out_root: str | os.PathLike[str]) -> dict[str, list[Path]]:
    """{name: its text files, sorted} for every folder below `input_root` that holds some, prepared ones left out.

    Raises:
        InputError: there is none; or both folders are one.
    """
    root, out = Path(input_root).resolve(), Path(out_root).resolve()
    if root == out:
        raise InputError(
            f"{out_root} is the input: the next run would take the output for input; give another out_root"
        )
    subsets = {}
    for folder, below, names in os.walk(root):
        here = Path(folder)
        prepared = here != root and _is_prepared(here)
        below[:] = [] if prepared else sorted(name for name in below if name[0] not in "._" and here / name != out)
        files = sorted(here / name for name in names if name.endswith(SUFFIXES) and name[0] not in "._")
        if files and not prepared:
            name = here.relative_to(root).as_posix() if here != root else root.name
            if name in subsets:
                raise InputError(
                    f"{root} holds text files itself and a folder of its name {name!r}, so two subsets would have one "
                    "name; move its own files into a folder"
                )
            subsets[name] = files
    if not subsets:
        raise InputError(f"{input_root} and its folders hold no file ending in {', '.join(SUFFIXES)}")
    return dict(sorted(subsets.items()))
