"""Tokenize subsets and pack their documents into rows of equal length.

Every folder below the input root with text files is a subset, named by its path. For each subset,
in sorted order:

1. Skip a subset that is complete with these files, these options and a tokenizer that encodes as
   this one. An unfinished one starts over, because its output is complete or absent.
2. Write a token file with `nanoset_ref.preprocess`, with any number of processes or ranks: the
   documents in order, each as [BOS] ids [EOS].
3. Pack the token file into rows, <subset>/train.jsonl. `format` decides which of the two files
   stay.
4. Drop the tail (fewer tokens than a row), pad it into a last row, or carry it over to the next
   subset; count all of it. With `best_fit` there is no tail: rows contain whole documents and
   padding.

JSON takes 5 to 6 bytes per token, a token file 2. Use `jsonl` for the chunks of `mix`, for other
programs and to inspect rows. Use `tokens` to train directly: a Nanoset mixes the files by weights
and reshuffles every epoch, so a new mixture does not need new files.

The rows do not depend on the number of workers, unless `worker_packing` reproduces the original
script, in which every worker packs its own files and drops its own tail.
"""

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nanoset_ref.chunks.chunk_manifest import (
    ROWS_NAME,
    Account,
    ChunkManifest,
    FileEntry,
    RowFacts,
    manifests_above,
)
from nanoset_ref.chunks.output_folder import OWN_FILES, claim_folder, finished_manifest
from nanoset_ref.chunks.packing import (
    PackedRow,
    Packer,
    best_fit_rows,
    interleave_workers,
)
from nanoset_ref.chunks.row_format import format_row
from nanoset_ref.chunks.tokenize_config import TEXT_COLUMNS, TokenizeConfig
from nanoset_ref.io.checks import whole_number
from nanoset_ref.io.files import atomic_write
from nanoset_ref.io.paths import PathLike, checksum
from nanoset_ref.io.types import Json
from nanoset_ref.io.urls import local_path
from nanoset_ref.preprocess import (
    Encoder,
    in_rank_0,
    open_tokenizer,
    tokenize_documents,
)
from nanoset_ref.preprocess.json_lines import InputError
from nanoset_ref.preprocess.text import TextSource, open_text, text_files
from nanoset_ref.preprocess.text_formats import SUFFIXES
from nanoset_ref.tokens import TokenFile, TokenFileWriter
from nanoset_ref.tokens.document_blocks import document_blocks

TOKEN_FILES = "train*_input_ids*"


def find_subsets(input_root: PathLike, out_root: PathLike) -> dict[str, list[Path]]:
    """Find the subsets: the folders below `input_root` with text files, except prepared folders.

    Returns:
        {name: its text files, sorted}.

    Raises:
        InputError: there is no subset, a name is not UTF-8, or both folders are the same.
    """
    root = local_path(input_root, "input_root").resolve()
    out = local_path(out_root, "out_root").resolve()
    if root == out:
        raise InputError(
            f"{out} is the input, and the next run would read the output as input: "
            "give another out_root"
        )
    files = [
        file
        for file in text_files(root)
        if file.parent != root and out not in file.parents
    ]
    prepared = [
        folder for folder in manifests_above(files) if folder.is_relative_to(root)
    ]
    subsets = defaultdict(list)
    for file in files:
        if not set(prepared) & set(file.parents):
            name = file.relative_to(root)
            if re.search("[\udc80-\udcff]", str(name)):  # bytes that are not UTF-8
                raise InputError(
                    f"{file} has a name that is not UTF-8, which rows and a manifest cannot "
                    "record; rename it"
                )
            subsets[name.parent.as_posix()].append(file)
    if not subsets:
        suffixes = ", ".join(SUFFIXES)
        raise InputError(
            f"no folder below {input_root} has a file that ends in {suffixes}"
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
    """Tokenize all subsets below `input_root` into `out_root`/<subset>.

    Args:
        input_root: its subfolders contain .jsonl, .json (also .gz, .zst) or .parquet files.
        out_root: the folder to write to; it may be below `input_root`.
        config: the options.
        num_workers: processes; under torchrun its ranks, on any number of nodes, are the workers.
            The result is the same for any number.
        subfolders: tokenize only these subsets, comma separated.
        overwrite: whether the output of other settings may be replaced.

    Returns:
        The manifest of each subset, with its `Account`. None in the ranks of torchrun other than 0.

    Raises:
        ValueError: nothing separates the documents; see also `TokenizeConfig`.
        InputError: there is no subset; see also `nanoset_ref.preprocess.text`.
        ManifestError: a subset has other settings.

    Source: convert_dataset_hf_refinedpajama_json.py of https://github.com/LLM360/amber-data-prep.
    """
    subsets = find_subsets(input_root, out_root)
    names = list(subsets)
    if subfolders is not None:
        names = [name.strip().strip("/") for name in subfolders.split(",")]
    for name in names:
        if name not in subsets:
            raise InputError(
                f"there is no subset {name!r} below {input_root}; there are {list(subsets)}"
            )
    whole_number(num_workers, "num_workers", 1)
    manifests = {}
    carried: list[int] = []
    for name in names:
        job = _TokenizeJob(name, subsets[name], Path(out_root, name), config, carried)
        manifests[name] = job.run(num_workers, overwrite)
        carried = manifests[name].carried_tail
    return manifests


@dataclasses.dataclass(frozen=True)
class _TokenizeJob:
    """The work on one subset.

    Attributes:
        name: the subset's path below the input root.
        files: its text files.
        folder: the output folder.
        config: the options.
        carried: the ids of the previous subset's tail.
    """

    name: str
    files: list[Path]
    folder: Path
    config: TokenizeConfig
    carried: list[int]

    def run(self, num_workers: int, overwrite: bool) -> ChunkManifest:
        """Tokenize and pack the subset unless it is complete."""
        workers = max(1, min(self.config.worker_packing, len(self.files)))
        sources = [
            open_text(
                self.files[worker::workers],
                column=self.config.column or TEXT_COLUMNS,
                on_error=self.config.on_error,
            )
            for worker in range(workers)
        ]
        encoder = self._encoder(sources[0])
        identity = encoder.identity
        settings = {  # they determine the content of the folder
            "command": "tokenize",
            "subset": self.name,
            "files": [[file.name, checksum(file)] for file in self.files],
            **dataclasses.asdict(dataclasses.replace(self.config, backend="auto")),
            "carried_in": self.carried,
            "encodes_as": identity | {"padding": _padding_id(encoder)},
        }
        outputs = [ROWS_NAME, TOKEN_FILES]
        existing = finished_manifest(self.folder, settings, outputs, overwrite)
        if existing:
            return existing
        facts = {"tokenizer": self.config.tokenizer, **encoder.facts}
        row_facts = RowFacts(
            concat_tokens=self.config.concat_tokens,
            tokenizer_identity=identity["tokenizer"],
            **facts,
        )
        with claim_folder(
            self.folder, settings, outputs, row_facts, overwrite
        ) as manifest:
            paths, counts = self._tokenize(sources, encoder, facts, num_workers)
            return manifest.finish(self.folder, **self._pack(paths, encoder, counts))

    def _tokenize(
        self,
        sources: list[TextSource],
        encoder: Encoder,
        facts: Json,
        num_workers: int,
    ) -> tuple[list[Path], Counter[str]]:
        """Write a token file per source; return their paths and the counts of all."""
        paths = []
        counts: Counter[str] = Counter()
        for worker, source in enumerate(sources):
            path = self.folder / f"train{worker or ''}_input_ids.npy"
            sink = TokenFileWriter(path, overwrite=True, **facts)
            counted = tokenize_documents(
                source, encoder, sink, path, num_workers=num_workers
            )
            paths.append(path)
            counts.update(
                tokens=counted.tokens,
                documents=counted.documents,
                skipped_documents=sum(counted.skipped.values()),
                special_documents=counted.special_documents,
                special_tokens=sum(counted.special_tokens.values()),
            )
        return paths, counts

    def _encoder(self, source: TextSource) -> Encoder:
        """Make the encoder; ValueError if it would separate no documents."""
        config = self.config
        encoder = Encoder(
            open_tokenizer(config.tokenizer),
            backend=config.backend,
            add_special_tokens=True,
            bos_text=config.bos_text,
            eos_text=config.eos_text,
            probe_texts=source.probe_texts(),
            special_tokens=config.special_tokens,
        )
        if not encoder.prefix and not encoder.suffix:
            example = encoder.tokenizer.eos_token or "</s>"
            raise ValueError(
                f"nothing separates the documents: {config.tokenizer} adds neither BOS nor EOS; "
                f"give eos_text (or bos_text), for example {example!r}"
            )
        return encoder

    def _pack(self, paths: list[Path], encoder: Encoder, counts: Counter[str]) -> Json:
        """Pack the token files into rows, and remove the files that `format` leaves out.

        Returns:
            The content of the manifest.
        """
        config = self.config
        packers = [Packer(config.concat_tokens, wrap=not config.no_wrap) for _ in paths]
        packers[0].add(np.array(self.carried, dtype=encoder.dtype), [len(self.carried)])
        files = {}
        samples = 0
        tokens = written = counts.pop("tokens")
        if config.format != "tokens":
            samples = self._write_rows(paths, packers, encoder)
            written = samples * config.concat_tokens
            files[ROWS_NAME] = FileEntry.of(self.folder / ROWS_NAME, samples)
        if config.format != "jsonl":
            files[paths[0].name] = FileEntry.of(paths[0], counts["documents"])
        else:
            for path in self.folder.glob(TOKEN_FILES):
                if OWN_FILES.fullmatch(path.name):
                    path.unlink()
        separators = counts["documents"] * len(encoder.prefix + encoder.suffix)
        carried = packers[0].tail.tolist() if config.tail == "carry" else []
        cut = sum(packer.cut_tokens for packer in packers)
        left = sum(len(packer.tail) for packer in packers)
        account = {
            "subset": self.name,
            **counts,
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
        conservation = [Account.model_validate(account)]
        return {"files": files, "conservation": conservation, "carried_tail": carried}

    def _write_rows(
        self, paths: list[Path], packers: list[Packer], encoder: Encoder
    ) -> int:
        """Write train.jsonl from a token file per packer; return the number of rows."""
        rows = [
            self._rows(TokenFile(path), packer, encoder)
            for path, packer in zip(paths, packers, strict=True)
        ]
        samples = 0
        with atomic_write(self.folder / ROWS_NAME) as file:
            for row, lengths in interleave_workers(rows):
                file.write(format_row(row, self.name, lengths))
                samples += 1
        return samples

    def _rows(
        self, file: TokenFile, packer: Packer, encoder: Encoder
    ) -> Iterator[PackedRow]:
        """Yield the rows of one token file, each with its document lengths or None."""
        padding = _padding_id(encoder)
        row_length = self.config.concat_tokens
        if self.config.best_fit:
            yield from best_fit_rows(file, row_length, padding)
            return
        for ids, lengths in document_blocks(file):
            yield from ((row, None) for row in packer.add(ids, lengths))
        if self.config.tail == "pad":
            missing = -len(packer.tail) % row_length
            yield from (
                (row, None) for row in packer.add(np.full(missing, padding), [missing])
            )


def _padding_id(encoder: Encoder) -> int:
    """The id that fills up rows: the tokenizer's for padding, EOS, or another separator."""
    candidates = [encoder.tokenizer.pad_token_id, encoder.eos_token_id]
    candidates += encoder.suffix + encoder.prefix
    return next(number for number in candidates if number is not None)
