"""Tokenise subsets and concatenate their documents into rows of equal length.

Every folder below the input root that holds text files is a subset, named by its path. For each of them, in sorted
order:

1. A subset that is complete is skipped, before a tokenizer is loaded; an unfinished one starts over (its output appears
   when it is whole).
2. `nanoset_ref.preprocess` turns the files into a token file, with any number of processes or ranks: the documents in
   their order, each [BOS] ids [EOS].
3. The token file is packed into rows, <subset>/train.jsonl, and removed; or it is what was asked for; or both stay.
4. The tail, fewer tokens than a row, is dropped, kept in a last row filled up with padding, or carried over to the next
   subset. All of it is counted. With `best_fit` there is no tail: rows hold whole documents, and padding.

JSON takes 5 to 6 bytes per token, a token file 2: take `jsonl` for the chunks of `mix`, for other programs and for
eyes; take `tokens` to train directly, where a Nanoset mixes the files by weights, reshuffles every epoch, and a new
mixture costs nothing.

The rows do not depend on the number of workers. With `worker_packing` they are those of the original script, whose
every worker packs and drops its own tail; then they do.
"""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nanoset_ref.chunks.chunk_manifest import (
    ROWS,
    Account,
    ChunkManifest,
    FileEntry,
    RowFacts,
    above,
    begin,
    complete,
)
from nanoset_ref.chunks.chunk_rows import format_row
from nanoset_ref.chunks.packing import PackedRow, Packer, best_fit_rows, interleave_workers
from nanoset_ref.chunks.tokenize_config import TokenizeConfig
from nanoset_ref.io.files import PathLike, atomic_write, checksum
from nanoset_ref.preprocess import (
    Encoder,
    in_rank_0,
    load_tokenizer,
    tokenise,
)
from nanoset_ref.preprocess.text import (
    SUFFIXES,
    InputError,
    TextSource,
    open_text,
    text_files,
)
from nanoset_ref.tokens import TokenFile, TokenFileWriter

TOKEN_FILES = "train*_input_ids*"
COLUMNS = (
    "text",
    "content",
)  # of each document, in this order: RedPajama has the first, RefinedWeb and StarCoderData the second


def find_subsets(input_root: PathLike, out_root: PathLike) -> dict[str, list[Path]]:
    """{name: its text files, sorted} for every folder below `input_root` that holds some, prepared ones left out.

    Raises:
        InputError: there is none; or both folders are one.
    """
    root, out = Path(input_root).resolve(), Path(out_root).resolve()
    if root == out:
        raise InputError(
            f"{out} is the input, and the next run would take the output for input: give another out_root"
        )
    files = [file for file in text_files(root) if file.parent != root and out not in file.parents]
    prepared = above(files)
    subsets = defaultdict(list)
    for file in files:
        if prepared.keys().isdisjoint(file.parents):
            subsets[file.parent.relative_to(root).as_posix()].append(file)
    if not subsets:
        raise InputError(
            f"no folder below {input_root} holds a file ending in {', '.join(SUFFIXES)}"
        )
    return dict(sorted(subsets.items()))


@in_rank_0
def tokenize(
    input_root: PathLike,
    out_root: PathLike,
    config: TokenizeConfig,
    *,
    num_workers: int = 1,
    subfolders: str | None = None,
    overwrite: bool = False,
) -> dict[str, ChunkManifest]:
    """Tokenise all subsets below `input_root` into `out_root`/<subset>.

    Args:
        input_root: its subfolders hold .jsonl, .json (also .gz, .zst) or .parquet files.
        out_root: may lie below `input_root`.
        config: what to make.
        num_workers: processes; under torchrun its ranks are the workers, on as many nodes as it has. No influence on
            the result.
        subfolders: comma separated, to take only these.
        overwrite: whether what other settings made may be replaced.

    Returns:
        The manifest of each subset, with its `Account`. None in the ranks of torchrun other than 0.

    Raises:
        ValueError: nothing separates the documents; and what `TokenizeConfig` raises. InputError: no subset; and what
            `nanoset_ref.preprocess.text` raises. ManifestError: a subset was made with other settings.

    Source: convert_dataset_hf_refinedpajama_json.py of https://github.com/LLM360/amber-data-prep.
    """
    subsets = find_subsets(input_root, out_root)
    names = (
        subsets
        if subfolders is None
        else [name.strip().strip("/") for name in subfolders.split(",")]
    )
    if unknown := [name for name in names if name not in subsets]:
        raise InputError(
            f"there is no subset {unknown[0]!r} below {input_root}; there are {list(subsets)}"
        )
    if num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, got {num_workers}")
    found: dict[str, ChunkManifest] = {}
    carried: list[int] = []
    for name in names:
        subset = _Subset(name, subsets[name], Path(out_root, name), config, carried)
        found[name] = subset.make(num_workers, overwrite)
        carried = found[name].carried_tail
    return found


@dataclasses.dataclass(frozen=True)
class _Subset:
    """One subset: what is to be made of which files in which folder, and the tail of the subset before."""

    name: str
    files: list[Path]
    folder: Path
    config: TokenizeConfig
    carried: list[int]

    def make(self, num_workers: int, overwrite: bool) -> ChunkManifest:
        """Make the subset, if it is not there."""
        config, folder = self.config, self.folder
        settings = {  # all that the output depends on
            "command": "tokenize",
            "subset": self.name,
            "files": [[file.name, checksum(file)] for file in self.files],
            **dataclasses.asdict(dataclasses.replace(config, backend="auto")),
            "carried_in": self.carried,
        }
        outputs = [ROWS, TOKEN_FILES]
        if made := complete(folder, settings, outputs, overwrite):
            return made
        workers = min(config.worker_packing, len(self.files)) or 1
        sources = [self._open(self.files[worker::workers]) for worker in range(workers)]
        encoder = self._encoder(sources[0])
        facts = RowFacts(
            concat_tokens=config.concat_tokens, tokenizer=config.tokenizer, **encoder.facts
        )
        manifest = begin(folder, settings, outputs, facts)
        paths = [folder / f"train{worker or ''}_input_ids.npy" for worker in range(workers)]
        counts: Counter[str] = Counter()
        for source, path in zip(sources, paths, strict=True):
            sink = TokenFileWriter(
                path, overwrite=True, tokenizer=config.tokenizer, **encoder.facts
            )
            counted = tokenise(source, encoder, sink, path, num_workers=num_workers)
            counts.update(
                documents=counted.documents,
                tokens=counted.tokens,
                skipped=sum(counted.skipped.values()),
            )
            counts.update(special_documents=counted.special_documents)
            counts.update(special_tokens=sum(counted.special_tokens.values()))
        return manifest.finish(folder, **self._pack(paths, encoder, counts))

    def _open(self, files: list[Path]) -> TextSource:
        return open_text(files, column=self.config.column or COLUMNS, on_error=self.config.on_error)

    def _encoder(self, source: TextSource) -> Encoder:
        config = self.config
        encoder = Encoder(
            load_tokenizer(config.tokenizer),
            backend=config.backend,
            add_special_tokens=True,
            bos_text=config.bos_text,
            eos_text=config.eos_text,
            probe=source.beginning(),
            special_tokens=config.special_tokens,
        )
        if not encoder.prefix and not encoder.suffix:
            raise ValueError(
                f"nothing separates the documents: {config.tokenizer} adds neither BOS nor EOS; "
                f"give eos_text (or bos_text), for example {encoder.tokenizer.eos_token or '</s>'!r}"
            )
        return encoder

    def _pack(self, paths: list[Path], encoder: Encoder, counts: Counter[str]) -> dict[str, Any]:
        """Pack the token files into rows, remove them if they are not asked for, and account for every token."""
        config, documents, tokens = self.config, counts["documents"], counts["tokens"]
        files = {}
        samples = 0
        packers = [Packer(config.concat_tokens, wrap=not config.no_wrap) for _ in paths]
        packers[0].add(np.array(self.carried, dtype=encoder.dtype), [len(self.carried)])
        if config.format != "tokens":
            rows = [
                self._rows(path, packer, encoder)
                for path, packer in zip(paths, packers, strict=True)
            ]
            with atomic_write(self.folder / ROWS) as file:
                for row, lengths in interleave_workers(rows):
                    file.write(format_row(row, self.name, lengths))
                    samples += 1
            files[ROWS] = FileEntry.of(self.folder / ROWS, samples)
        if config.format != "jsonl":
            files[paths[0].name] = FileEntry.of(paths[0], documents)
        else:
            for path in self.folder.glob(TOKEN_FILES):
                path.unlink()
        written = tokens if config.format == "tokens" else samples * config.concat_tokens
        carried = packers[0].tail.tolist() if config.tail == "carry" else []
        cut = sum(packer.cut_tokens for packer in packers)
        left = sum(len(packer.tail) for packer in packers)
        separators = documents * len(encoder.prefix + encoder.suffix)
        account = {
            "subset": self.name,
            "documents": documents,
            "skipped_documents": counts["skipped"],
            "special_documents": counts["special_documents"],
            "special_tokens": counts["special_tokens"],
            "document_tokens": tokens - separators,
            "separator_tokens": separators,
            "carried_in_tokens": len(self.carried),
            "padding_tokens": written + cut + left - tokens - len(self.carried),
            "samples": samples,
            "written_tokens": written,
            "cut_tokens": cut,
            "tail_tokens": left - len(carried),
            "carried_out_tokens": len(carried),
        }
        return {
            "files": files,
            "conservation": [Account.model_validate(account)],
            "carried_tail": carried,
        }

    def _rows(self, path: Path, packer: Packer, encoder: Encoder) -> Iterator[PackedRow]:
        padding = [
            encoder.tokenizer.pad_token_id,
            encoder.eos_token_id,
            *encoder.suffix,
            *encoder.prefix,
        ]
        fill = next(number for number in padding if number is not None)
        if self.config.best_fit:
            yield from best_fit_rows(TokenFile(path), self.config.concat_tokens, fill)
            return
        for ids, lengths in TokenFile(path).blocks():
            yield from ((row, None) for row in packer.add(ids, lengths))
        if self.config.tail == "pad":
            missing = -len(packer.tail) % self.config.concat_tokens
            yield from ((row, None) for row in packer.add(np.full(missing, fill), [missing]))
