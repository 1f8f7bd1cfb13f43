"""Who reads a corpus out of a bucket how: this package and those who copy shards: `python -m benchmarks.streamers`.

A server of its own process (tests/bucket_server.py) speaks as much of S3 as all of them ask for, answers every request
`--latency` milliseconds late and counts the bytes that it sends. The same `--megabytes` of tokens lie there in the
format of each; samples have 2,048 tokens, batches 8 of them. Each candidate runs in a process of its own and begins
with an empty folder:

    nanoset_ref               build_nanoset_dataloader with read_ahead=2, stateless order; nothing on the disk
    nanoset_ref, cached       the same with NANOSET_REF_CACHE
    litdata, mosaicml         StreamingDataset with shuffle=True behind its StreamingDataLoader, without workers
    ..., 2 workers            with 2 workers

    million_tokens_per_second            over a whole epoch
    fetched_per_byte_first_256_batches   bytes that the server sent per byte of ids delivered (2 for each)
    fetched_per_byte_of_the_epoch
    disk_mib                             what the folder holds after the epoch
    places                               of 256 equal parts of the corpus, those that the first 256 samples come from;
                                         162 are expected of a global shuffle
    seconds_to_first_batch               after 0, 50 and 90% of an epoch, again with an empty folder, from the building
                                         of the loader; its state is what `state_dict` gave there
    exact                                whether the 64 batches that follow are those that followed in the first run

What does not run is reported with its error. `--output` keeps the result as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import CHUNK, PEERS, VOCABULARY, Tokens
from benchmarks.record import bucket, bytes_sent, command, machine, save

LENGTH, BATCH, FOLLOWING, FIRST = 2048, 8, 64, 256
OTHERS = ("litdata", "litdata, 2 workers", "mosaicml", "mosaicml, 2 workers")
CANDIDATES = ("nanoset_ref", "nanoset_ref, cached", *OTHERS)
SHARES = (0, 50, 90)  # percent of an epoch
PATIENCE = 120  # seconds that a candidate may take


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=256, help="of tokens")
    parser.add_argument("--latency", type=int, default=20, help="milliseconds")
    parser.add_argument("--only", nargs="+", default=CANDIDATES, help="candidates")
    parser.add_argument("--output", type=Path, help="write the result here, as JSON")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, url, folder, num_tokens = options.child
        warnings.simplefilter("ignore")
        print(
            "\n" + json.dumps(measure(name, url, Path(folder), int(num_tokens))),
            flush=True,
        )
        os._exit(0)  # threads of others need not be waited for
    result: dict[str, Any] = {
        "command": command("streamers"),
        "machine": machine(),
        "streamers": {},
    }
    result |= {"megabytes": options.megabytes, "latency_ms": options.latency}
    with tempfile.TemporaryDirectory() as temporary:
        (folder := Path(temporary) / "bucket").mkdir()
        tokens = Tokens(folder, options.megabytes << 19)
        for name in ("litdata", "mosaicml"):
            PEERS[name](tokens, LENGTH, BATCH, 0)  # makes its copy of the tokens
        with bucket(Path(temporary), options.latency) as url:
            for name in options.only:
                result["streamers"][name] = found = in_child(name, url, tokens)
                print(name, json.dumps(found, indent=1), flush=True)
    save(result, options.output)


def in_child(name: str, url: str, tokens: Tokens) -> dict[str, Any]:
    environment = dict.fromkeys(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], "test")
    environment |= {
        "AWS_ENDPOINT_URL": url,
        "S3_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
    }
    environment["AWS_DEFAULT_REGION"] = "us-east-1"
    child = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "benchmarks.streamers",
        "--child",
        name,
        url,
    ]
    with tempfile.TemporaryDirectory() as folder:
        words = [*child, folder, str(tokens.num_tokens)]
        options: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        run = subprocess.Popen(
            words, env={**os.environ, **environment}, start_new_session=True, **options
        )
        try:
            output, errors = run.communicate(timeout=PATIENCE)
            return dict(json.loads(output.strip().splitlines()[-1]))
        except subprocess.TimeoutExpired:
            return {"error": f"not done after {PATIENCE} s"}
        except (IndexError, json.JSONDecodeError):
            lines = [
                line
                for line in errors.splitlines()
                if re.match(r"[\w.]*(Error|Exception)\b", line)
            ]
            return {"error": (lines or [errors])[-1][:300]}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)  # its workers as well


def loader_of(
    name: str, url: str, folder: Path, num_tokens: int
) -> tuple[Any, Callable[[Any], np.ndarray[Any, Any]]]:
    """A loader with `state_dict` and `load_state_dict`, and how the ids of a batch are found in what it returns."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    candidate, _, how = name.partition(", ")
    workers = 2 if how == "2 workers" else 0
    if candidate == "nanoset_ref":
        from nanoset_ref import Nanoset, build_nanoset_dataloader

        if how == "cached":
            os.environ["NANOSET_REF_CACHE"] = str(folder)
        rows = Nanoset(
            "s3://bucket/tokens_input_ids.npy",
            None,
            LENGTH,
            num_tokens // LENGTH,
            order="stateless",
        )
        loader = build_nanoset_dataloader(rows, micro_batch_size=BATCH, read_ahead=2)
        return loader, lambda batch: batch["input_ids"].numpy()
    if candidate == "litdata":
        from litdata import StreamingDataLoader, StreamingDataset, TokensLoader
        from litdata.streaming import downloader

        downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = (
            True  # which it has no option for
        )
        place = {"input_dir": f"s3://bucket/litdata-{LENGTH}", "cache_dir": str(folder)}
        place["storage_options"] = {"endpoint_url": url}
        dataset = StreamingDataset(
            **place, item_loader=TokensLoader(LENGTH + 1), shuffle=True, drop_last=True
        )
        return StreamingDataLoader(
            dataset, batch_size=BATCH, num_workers=workers
        ), lambda batch: batch.numpy()
    import streaming

    streaming.base.util.clean_stale_shared_memory()
    remote = {"remote": f"s3://bucket/mosaicml-{LENGTH}", "local": str(folder)}
    dataset = streaming.StreamingDataset(**remote, shuffle=True, batch_size=BATCH)
    loader = streaming.StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=workers, drop_last=True
    )
    return loader, lambda batch: batch["tokens"].numpy()


def measure(name: str, url: str, folder: Path, num_tokens: int) -> dict[str, Any]:
    """The figures of one candidate, or the error that ends it."""
    found: dict[str, Any] = {}
    batches = num_tokens // (LENGTH + 1) // BATCH  # of an epoch
    loader, ids = loader_of(name, url, folder / "pieces", num_tokens)
    states: dict[int, Any] = {}
    digests: list[str] = []
    rows: list[np.ndarray[Any, Any]] = []
    begun, before = time.perf_counter(), bytes_sent(url)
    for count, batch in enumerate(loader, 1):
        digests.append(digest(ids(batch)))
        if count <= FIRST // BATCH:
            rows.append(np.array(ids(batch)[:, :8], dtype="<u2"))
        if count == 256:
            found["fetched_per_byte_first_256_batches"] = (bytes_sent(url) - before) / (
                2 * BATCH * LENGTH * count
            )
        for share in SHARES[1:]:
            if count == batches * share // 100:
                states[share] = loader.state_dict()
        if count == batches:
            break
    taken = time.perf_counter() - begun
    used = 2 * BATCH * LENGTH * count
    found |= {"batches": count, "million_tokens_per_second": used / 2 / taken / 1e6}
    found["fetched_per_byte_of_the_epoch"] = (bytes_sent(url) - before) / used
    found["disk_mib"] = (
        sum(
            path.stat().st_size
            for path in (folder / "pieces").rglob("*")
            if path.is_file()
        )
        / 2**20
    )
    found["places"] = places(np.concatenate(rows), num_tokens)
    del loader
    for share in SHARES:
        begun = time.perf_counter()
        loader, ids = loader_of(name, url, folder / "pieces", num_tokens)
        if share:
            loader.load_state_dict(states[share])
        iterator = iter(loader)
        following = [digest(ids(next(iterator)))]
        found[f"seconds_to_first_batch_at_{share}"] = time.perf_counter() - begun
        following += [
            digest(ids(batch)) for batch in itertools.islice(iterator, FOLLOWING - 1)
        ]
        first = batches * share // 100
        expected = digests[first : first + FOLLOWING]  # fewer where the epoch ends
        found[f"exact_at_{share}"] = following[: len(expected)] == expected
        del iterator, loader
    return {
        key: round(value, 4) if isinstance(value, float) else value
        for key, value in found.items()
    }


def digest(ids: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(ids, dtype="<u2").tobytes()).hexdigest()[
        :16
    ]


def places(begins: np.ndarray[Any, Any], num_tokens: int) -> int:
    """Of 256 parts of the corpus, those in which rows begin, which are known by their first 8 ids."""
    tokens = np.random.default_rng(0)  # as benchmarks.peers.Tokens draws them
    ids = np.concatenate(
        [
            tokens.integers(
                0, VOCABULARY, min(CHUNK, num_tokens - start), dtype=np.uint16
            )
            for start in range(0, num_tokens, CHUNK)
        ]
    )
    known = {
        ids[start : start + 8].tobytes(): start
        for stride in (LENGTH, LENGTH + 1)
        for start in range(0, num_tokens - 8, stride)
    }
    return len({known[row.tobytes()] * 256 // num_tokens for row in begins})


if __name__ == "__main__":
    main()
