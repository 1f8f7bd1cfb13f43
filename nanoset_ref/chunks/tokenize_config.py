"""The options of `tokenize`, in a separate module, so that --help does not need an extra."""

import dataclasses
from typing import Literal, get_args

from nanoset_ref.io.checks import refuses_unknown, whole_number
from nanoset_ref.preprocess import Backend, SpecialTokens
from nanoset_ref.preprocess.text_blocks import OnError

# columns of text, tried in this order: RedPajama has "text", RefinedWeb and StarCoderData "content"
TEXT_COLUMNS = ("text", "content")
PackerTail = Literal["drop", "pad", "carry"]
Format = Literal["jsonl", "tokens", "both"]
CHOICES = {
    "tail": PackerTail,
    "format": Format,
    "backend": Backend,
    "on_error": OnError,
    "special_tokens": SpecialTokens,
}


@refuses_unknown
@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizeConfig:
    """The options that determine the output.

    Args:
        tokenizer: name or folder for `AutoTokenizer.from_pretrained`.
        concat_tokens: tokens per row; sequence_length + 1.
        bos_text: text added before each document; one token.
        eos_text: text added after each document; one token.
        no_wrap: cut off the last document of a row, instead of continuing it in the next row.
        best_fit: fill rows with whole documents, each where it fits best; only documents longer
            than a row are cut. The rest of a row is padding, as with tail="pad".
        tail: "drop"; "pad", with the padding, EOS or separator token; "carry", into the first row
            of the next subset.
        format: what to write: rows as lines of JSON, a token file, or both.
        column: the column with the text; default: "text", or "content" if there is no "text".
        worker_packing: number of workers of the original script, to reproduce its rows; 0: off.
        backend: see `Encoder`; the ids are the same with every backend.
        on_error: for a document that cannot be read. raise: stop, and name file and line; skip:
            leave it out and count it. If more than 1 % of a subset is left out, the command warns
            and its exit code is 3 (0 under torchrun); the subset is complete nevertheless.
        special_tokens: for a document that contains a special token as text, such as </s>. keep: it
            becomes that token, as in the original script; split: it is encoded as plain text;
            refuse: stop at the first.

    Raises:
        ValueError: a value is out of range.
    """

    tokenizer: str
    concat_tokens: int = 2049
    bos_text: str = ""
    eos_text: str = ""
    no_wrap: bool = False
    best_fit: bool = False
    tail: PackerTail = "drop"
    format: Format = "jsonl"
    column: str | None = None
    worker_packing: int = 0
    backend: Backend = "auto"
    on_error: OnError = "raise"
    special_tokens: SpecialTokens = "keep"

    def __post_init__(self) -> None:
        whole_number(self.concat_tokens, "concat_tokens", 2)
        whole_number(self.worker_packing, "worker_packing", 0)
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in get_args(choices):
                raise ValueError(
                    f"{name} must be one of {get_args(choices)}, got {value!r}"
                )
        if self.worker_packing and (self.tail, self.format) != ("drop", "jsonl"):
            raise ValueError(
                'worker_packing goes with tail="drop" and format="jsonl": '
                "every worker drops its own tail"
            )
        if self.best_fit and (
            self.no_wrap
            or self.worker_packing
            or self.tail != "drop"
            or self.format == "tokens"
        ):
            raise ValueError(
                'best_fit goes without no_wrap, tail, worker_packing and format="tokens": '
                "it packs all documents of a subset into rows and does not leave a tail"
            )
