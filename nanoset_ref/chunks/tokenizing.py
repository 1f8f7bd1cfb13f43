"""Tokenise subsets and concatenate their documents into rows of equal length.

Every folder below the input root that holds text files is a subset, named by its path. For each of them, in sorted
order:

1. `begin`: a finished subset is skipped, an unfinished one starts over (its output is not there before it is whole).
2. The files are tokenised by `nanoset_ref.tokenise`, with any number of processes or ranks: documents arrive in their
   order, [BOS] ids [EOS], and a huge one holds up nobody.
3. They go straight into the packer and its rows into <subset>/train.jsonl, or as they are into a token file, or both.
4. The tail, fewer tokens than a row, is dropped, kept in a last row filled up with padding, or carried over to the next
   subset. All of it is counted.

JSON takes 5 to 6 bytes per token, a token file 2: take `jsonl` for the chunks of `mix`, for other programs and for
eyes; take `tokens` to train directly, where a Nanoset mixes the files by weights, reshuffles every epoch, and a new
mixture costs nothing.

The rows do not depend on the number of workers. With `worker_packing` they are those of the original script, whose
every worker packs and drops a tail of its own; then they do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from nanoset_ref.chunks.manifest import FileEntry, Manifest, TokenConservation, begin
from nanoset_ref.chunks.packing import Packer, interleave_workers
from nanoset_ref.chunks.sinks import RowsWriter, Spool, Tee
from nanoset_ref.chunks.subsets import TokenizeConfig, find_subsets
from nanoset_ref.text import InputError, open_text
from nanoset_ref.tokenise import Counts, EncoderConfig, Ranks, Sink, tokenise
from nanoset_ref.tokenise.encode import Encoder
from nanoset_ref.tokens import TokenFileWriter, documents_path, manifest_path

ROWS, TOKENS = "train.jsonl", "train_input_ids.npy"  # what a subset's folder holds
TOKEN_FILES = tuple(path.name for path in (Path(TOKENS), documents_path(TOKENS), manifest_path(TOKENS)))
COLUMNS = ("text", "content")  # tried in this order: RedPajama has the first, RefinedWeb and StarCoderData the second


def tokenize(
    input_root: str | os.PathLike[str],
    out_root: str | os.PathLike[str],
    config: TokenizeConfig,
    *,
    num_workers: int = 1,
    subfolders: str | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
) -> dict[str, Manifest]:
    """Tokenise all subsets below `input_root` into `out_root`/<subset>.

    Args:
        input_root: its subfolders hold .jsonl, .json (also .gz, .zst) or .parquet files.
        out_root: may lie below `input_root`.
        config: what to make.
        num_workers: processes; under torchrun its ranks are the workers, on as many nodes as it has. No influence on
            the result.
        subfolders: comma separated, to take only these.
        overwrite: whether what other settings made may be replaced.
        progress: show a bar; None: if standard error is a terminal.

    Returns:
        The manifest of each subset, with its `TokenConservation`. Empty in the ranks of torchrun other than 0.

    Raises:
        ValueError: nothing separates the documents; and what `TokenizeConfig` raises. InputError: no subset; and what
            `nanoset_ref.text` raises. ManifestError: a subset was made with other settings.

    Source: convert_dataset_hf_refinedpajama_json.py of https://github.com/LLM360/amber-data-prep.
    """
    if num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, got {num_workers}")
    subsets = find_subsets(input_root, out_root)
    if subfolders is not None:
        wanted = [name.strip().strip("/") for name in subfolders.split(",")]
        if missing := [name for name in wanted if name not in subsets]:
            raise InputError(f"there is no subset {missing[0]!r} below {input_root}; there are {list(subsets)}")
        subsets = {name: subsets[name] for name in wanted}
    encoder_config = EncoderConfig(
        tokenizer=config.tokenizer,
        backend=config.backend,
        add_special_tokens=config.add_special_tokens,
        bos_text=config.bos_text,
        eos_text=config.eos_text,
    )
    encoder = dataclasses.replace(encoder_config, backend="hf").build()
    if not encoder.prefix and not encoder.suffix:
        raise ValueError(
            f"nothing separates the documents: {config.tokenizer} adds neither BOS nor EOS; "
            f"give eos_text (or bos_text), for example {encoder.tokenizer.eos_token or '</s>'!r}"
        )
    found: dict[str, Manifest] = {}
    carried: list[int] = []
    for name, files in subsets.items():
        job = _Job(
            name=name,
            files=files,
            folder=Path(out_root) / name,
            config=config,
            encoder_config=encoder_config,
            encoder=encoder,
            carried=carried,
            num_workers=num_workers,
            progress=progress,
        )
        done, manifest = _begin(job, overwrite)
        if not done:
            manifest = job.run_like_workers() if config.worker_packing else job.run()
        if manifest is not None:
            found[name], carried = manifest, manifest.carried_tail
    return found


def _begin(job: _Job, overwrite: bool) -> tuple[bool, Manifest | None]:
    """Whether the subset is finished, and its manifest. Rank 0 decides for all, before any of them goes on."""
    found: list[Manifest | None] = []

    def decide() -> str:
        found.append(begin(job.folder, job.settings, [ROWS, *TOKEN_FILES], overwrite=overwrite))
        return "no" if found[0] is None else "yes"

    return Ranks().agree(decide) == "yes", found[0] if found else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Job:
    """One subset: what is to be made of which files, and the making."""

    name: str
    files: list[Path]
    folder: Path
    config: TokenizeConfig
    encoder_config: EncoderConfig
    encoder: Encoder
    carried: list[int]
    num_workers: int
    progress: bool | None

    @cached_property
    def column(self) -> str:
        """The column given, or the first of `COLUMNS` that the first document has."""
        for column in () if self.config.column else COLUMNS:
            with contextlib.suppress(InputError):
                source = open_text(self.files, column=column, on_error=self.config.on_error)
                if next(source.documents(), None) is not None:
                    return column
        return self.config.column or COLUMNS[0]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that the output depends on."""
        of_config = {
            k: v for k, v in dataclasses.asdict(self.config).items() if k not in ("backend", "bos_text", "eos_text")
        }
        return {
            "command": "tokenize",
            "subset": self.name,
            "files": [[file.name, file.stat().st_size] for file in self.files],
            **of_config,
            "column": self.column,
            "before_document": self.encoder.prefix,
            "after_document": self.encoder.suffix,
            "vocab_size": self.encoder.vocab_size,
            "eos_token_id": self.encoder.eos_token_id,
            "carried_in": self.carried,
        }

    def run(self) -> Manifest | None:
        """Tokenise into rows, a token file or both; None in a rank that has no output."""
        config, has_rows = self.config, self.config.format != "tokens"
        writer = RowsWriter(self._packer(self.carried), self.name)

        @contextlib.contextmanager
        def open_sink(encoder: Encoder) -> Iterator[Sink]:
            with ExitStack() as stack:
                sinks: list[Sink] = []
                if has_rows:
                    sinks.append(stack.enter_context(writer.open(self.folder / ROWS, self._pad_id)))
                if config.format != "jsonl":
                    sinks.append(stack.enter_context(self._token_file(encoder)))
                yield Tee(sinks)

        counts = self._tokenise(self.files, open_sink)
        if counts is None:
            return None
        tail = writer.packer.tail.tolist() if has_rows else []
        carried = tail if config.tail == "carry" else []
        entries = {}
        if has_rows:
            entries[ROWS] = FileEntry.of(self.folder / ROWS, writer.samples)
        if config.format != "jsonl":
            entries[TOKENS] = FileEntry.of(self.folder / TOKENS, counts.documents)
        return self._finish(
            [counts],
            entries,
            carried,
            carried_in_tokens=len(self.carried) if has_rows else 0,
            padding_tokens=writer.padding,
            samples=writer.samples,
            written_tokens=writer.samples * config.concat_tokens if has_rows else counts.tokens,
            cut_tokens=writer.packer.cut_tokens,
            tail_tokens=len(tail) - len(carried),
            carried_out_tokens=len(carried),
        )

    def run_like_workers(self) -> Manifest | None:
        """Worker w of W of the original script packs files w, w + W, w + 2W, ...; see `packing.interleave_workers`."""
        workers = min(self.config.worker_packing, len(self.files))
        spools: list[Spool] = []
        with ExitStack() as files:

            @contextlib.contextmanager
            def open_sink(encoder: Encoder) -> Iterator[Sink]:
                file = files.enter_context(tempfile.TemporaryFile(dir=self.folder))
                spools.append(Spool(self._packer([]), encoder.dtype, file))
                yield spools[-1]

            counts = [self._tokenise(self.files[worker::workers], open_sink) for worker in range(workers)]
            if not spools:
                return None
            writer = RowsWriter(self._packer([]), self.name)
            with writer.open(self.folder / ROWS, None):
                for rows in interleave_workers([spool.rows() for spool in spools]):
                    writer.write_rows(rows)
        return self._finish(
            [count for count in counts if count is not None],
            {ROWS: FileEntry.of(self.folder / ROWS, writer.samples)},
            [],
            samples=writer.samples,
            written_tokens=writer.samples * self.config.concat_tokens,
            cut_tokens=sum(spool.packer.cut_tokens for spool in spools),
            tail_tokens=sum(len(spool.packer.tail) for spool in spools),
        )

    def _packer(self, carried: list[int]) -> Packer:
        return Packer(self.config.concat_tokens, wrap=not self.config.no_wrap, carried=carried)

    @property
    def _pad_id(self) -> int | None:
        """The id that fills up the last row; None for another treatment of the tail."""
        tokenizer = self.encoder.tokenizer
        pad_id = self.encoder.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        if self.config.tail == "pad" and pad_id is None:
            raise ValueError(f'tail="pad" needs a padding or EOS token, and {self.config.tokenizer} has neither')
        return pad_id if self.config.tail == "pad" else None

    def _token_file(self, encoder: Encoder) -> TokenFileWriter:
        return TokenFileWriter(
            self.folder / TOKENS,
            dtype=encoder.dtype,
            overwrite=True,
            tokenizer=self.config.tokenizer,
            vocab_size=encoder.vocab_size,
            eos_token_id=encoder.eos_token_id,
            appended_eod=encoder.suffix[-1:] == [encoder.eos_token_id],
            added_special_tokens=self.config.add_special_tokens,
        )

    def _tokenise(
        self, files: list[Path], open_sink: Callable[[Encoder], AbstractContextManager[Sink]]
    ) -> Counts | None:
        return tokenise(
            partial(open_text, files, column=self.column, on_error=self.config.on_error),
            self.encoder_config,
            open_sink,
            self.folder / ROWS,
            workers=self.num_workers,
            progress=self.progress,
        )

    def _finish(self, counts: list[Counts], files: dict[str, FileEntry], carried: list[int], **tokens: int) -> Manifest:
        documents = sum(count.documents for count in counts)
        separators = documents * (len(self.encoder.prefix) + len(self.encoder.suffix))
        conservation = TokenConservation(
            subset=self.name,
            documents=documents,
            skipped_documents=sum(sum(count.skipped.values()) for count in counts),
            document_tokens=sum(count.tokens for count in counts) - separators,
            separator_tokens=separators,
            **tokens,
        )
        settings = json.loads(json.dumps(self.settings))
        manifest = Manifest(
            settings=settings, complete=True, files=files, conservation=[conservation], carried_tail=carried
        )
        manifest.write(self.folder)
        return manifest
