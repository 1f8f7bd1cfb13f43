"""The real text of `benchmarks.order_matters`: `python -m benchmarks.real_text FOLDER` fetches and cuts it.

1. Download five files from pinned commits: WikiText-2's validation and test parts (Merity et al., 2016, CC BY-SA)
   and Tiny Shakespeare (public domain); for `benchmarks.order_unread` also a novel (Natsume's Botchan, translated;
   public domain) and C++ (sentencepiece, Apache license). The SHA-256 of each has to be the one written here.
2. Cut them into documents: articles begin at a line "= Title =", speeches end at an empty line, chapters begin with
   their number, functions end at a line "}".
3. Write one JSON line, {"text": ...}, for each document.

`documents_of_file` reads such a file and refuses one with other documents.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

GITHUB = "https://raw.githubusercontent.com"
EXAMPLES = f"{GITHUB}/pytorch/examples/77f55b912142e11fcfdf5b530231fb9c52f181e8"
CHAR_RNN = f"{GITHUB}/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e"
SENTENCEPIECE = (
    f"{GITHUB}/google/sentencepiece/273449044caa593c2fd7eb7550cb3ab2cff93f1a"
)
ARTICLE = re.compile(r"^(?= = [^=].* = \s*$)", re.MULTILINE)
SPEECH = re.compile(r"\n\n")
CHAPTER = re.compile(r"^(?=CHAPTER [IVX]+)", re.MULTILINE)
FUNCTION = re.compile(r"(?<=^}\n)", re.MULTILINE)


class Source(NamedTuple):
    """Where a file of documents comes from.

    Attributes:
        url: of the raw text.
        raw: its SHA-256.
        between: what lies between two documents.
        documents: the SHA-256 of all documents, each followed by a zero byte.
    """

    url: str
    raw: str
    between: re.Pattern[str]
    documents: str


SOURCES = {
    "wikitext2-valid.jsonl": Source(
        f"{EXAMPLES}/word_language_model/data/wikitext-2/valid.txt",
        "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
        ARTICLE,
        "2bd67d9e6adc68a0f854bbd786b7c179c4f799b23c4ceeceed5a0e5a88f1ee06",
    ),
    "wikitext2-test.jsonl": Source(
        f"{EXAMPLES}/word_language_model/data/wikitext-2/test.txt",
        "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        ARTICLE,
        "8afcf1e3479c7399a5e24c00704636c221d413124aa4cd961ad45858f531409b",
    ),
    "shakespeare.jsonl": Source(
        f"{CHAR_RNN}/data/tinyshakespeare/input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        SPEECH,
        "7af60f47c2110cf68aa615687ced60d64bffce99d54fd7b5f46d011fb251b174",
    ),
    "botchan.jsonl": Source(
        f"{SENTENCEPIECE}/data/botchan.txt",
        "464bd5300c24fce16fcc4555d4231a57632caae4d0090ad6aa92854a3b227ba7",
        CHAPTER,
        "64dac595a79bd3e26c81f836202334d4bbf6b1568177e26b464cc57ffb35ce26",
    ),
    "sentencepiece.jsonl": Source(
        f"{SENTENCEPIECE}/src/sentencepiece_processor.cc",
        "0cccf9d157ab27958afbd4081ae7c8a6ab4f2bfbaf4b8d6b311e0acb8e376be3",
        FUNCTION,
        "d8b2c3cae1d28158d095ae26dfa126fa3d78927c8d575523cf03f3e2910c6e8c",
    ),
}


def cut(raw: str, between: re.Pattern[str]) -> list[str]:
    """The documents of a raw text, without the white space around them.

    >>> cut("A: yes.\\n\\nB: no.\\n", SPEECH)
    ['A: yes.', 'B: no.']
    """
    parts = [part.strip() for part in between.split(raw)]
    return [part for part in parts if part]


def digest(documents: Sequence[str]) -> str:
    """The SHA-256 of documents, each followed by a zero byte."""
    found = hashlib.sha256()
    for document in documents:
        found.update(document.encode() + b"\0")
    return found.hexdigest()


def documents_of_file(path: Path) -> list[str]:
    """The documents of a file that `main` wrote.

    Raises:
        ValueError: the documents are not those of the committed results.
    """
    lines = path.read_text("utf-8").splitlines()
    documents = [json.loads(line)["text"] for line in lines]
    wanted = SOURCES[path.name].documents
    if digest(documents) != wanted:
        raise ValueError(
            f"{path} holds other documents than the committed results (SHA-256 {digest(documents)}, "
            f"expected {wanted}): write it with `python -m benchmarks.real_text {path.parent}`"
        )
    return documents


def write(raw: bytes, path: Path) -> None:
    """Check a raw text, cut it and write its documents.

    Raises:
        ValueError: the raw text is not the pinned one.
    """
    source = SOURCES[path.name]
    found = hashlib.sha256(raw).hexdigest()
    if found != source.raw:
        raise ValueError(f"{source.url} has the SHA-256 {found}, expected {source.raw}")
    text = raw.decode("utf-8").replace("\r\n", "\n")
    documents = cut(text, source.between)
    lines = [
        json.dumps({"text": document}, ensure_ascii=False) for document in documents
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in SOURCES.items():
        with urllib.request.urlopen(source.url, timeout=60) as response:
            write(response.read(), folder / name)
        print(f"{folder / name}: {len(documents_of_file(folder / name)):,} documents")


if __name__ == "__main__":
    main(sys.argv[1:])
