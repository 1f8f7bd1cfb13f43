"""The embedded corpus: 1,500,000 characters of text in three domains, and its tokenizer.

The package contains the files compressed (0.2 MB); `notebooks/corpus_generator` made them. Every
sum in the text is correct, and every program runs.
"""

import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from nanoset_ref.cli.command import run
from nanoset_ref.io.extras import extra
from nanoset_ref.io.files import make_folder, write_text
from nanoset_ref.io.paths import read_json
from nanoset_ref.io.urls import local_path

DATA = Path(__file__).with_name("corpus.json.zst")  # {path: content}


@dataclass(frozen=True, kw_only=True)
class TextCorpus:
    """The paths of the corpus: one .jsonl file per domain, and the folder of the tokenizer."""

    domains: dict[str, Path]
    tokenizer: Path


def prepare_corpus(folder: str | Path) -> TextCorpus:
    """Write the corpus and its tokenizer into a folder, unless they exist.

    Args:
        folder: the target; created if it is missing.

    Returns:
        The paths of all files, below `folder` as given.

    Raises:
        FileExistsError: a file with one of these names exists and does not belong to the corpus.
    """
    with extra("text", "the embedded corpus"):
        import zstandard
    texts = json.loads(zstandard.decompress(DATA.read_bytes()))
    folder = local_path(folder, "the folder of the corpus")
    files = {Path(folder, name): text for name, text in texts.items()}
    *_, stamp = files  # written last: if it exists, everything was written
    is_current = stamp.is_file() and stamp.read_bytes() == files[stamp].encode()
    if is_current:  # complete but for files that were removed since
        missing = {path: text for path, text in files.items() if not path.is_file()}
    else:
        missing = files
        _refuse_foreign(files, stamp)
    for path, text in missing.items():
        make_folder(path.parent)
        write_text(path, text)
    domains = {path.stem: path for path in files if path.suffix == ".jsonl"}
    return TextCorpus(domains=domains, tokenizer=Path(folder, "tokenizer"))


def _refuse_foreign(files: dict[Path, str], stamp: Path) -> None:
    """Raise FileExistsError if this would overwrite a file that no earlier call wrote."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        if set(read_json(stamp)) == set(json.loads(files[stamp])):
            return  # an earlier call wrote the files
    for path, text in files.items():
        if path.exists() and not (
            path.is_file() and path.read_bytes() == text.encode()
        ):
            raise FileExistsError(
                f"{path} exists and is not part of the corpus: choose another folder"
            )


def prepare_and_print(folder: Path, /) -> None:
    """Write the embedded corpus into a folder and print its paths.

    Args:
        folder: the target; a complete corpus stays as it is.
    """
    corpus = prepare_corpus(folder)
    for name, path in {**corpus.domains, "tokenizer": corpus.tokenizer}.items():
        print(f"{name}: {path}")


if __name__ == "__main__":
    sys.exit(run(prepare_and_print, None, "python -m nanoset_ref.chunks.corpus"))
