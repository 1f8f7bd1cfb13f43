"""Requests to buckets: s3://, gs://, az:// and http(s)://, through the obstore library.

If a server fails, stalls or truncates its answers, the request is repeated with growing pauses for
NANOSET_REF_TIMEOUT seconds (default 60), or up to twice as long if the last answer is slow; the
log has a line about it, at most one per bucket in ten seconds. obstore finds credentials:
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_ENDPOINT_URL for a server other than Amazon's,
AWS_SKIP_SIGNATURE=true for a public bucket), GOOGLE_APPLICATION_CREDENTIALS,
AZURE_STORAGE_ACCOUNT_NAME and _KEY, or the machine's own role. A URL may contain a password or a
signed query; messages never show either.

Which version of an object is read: `io.object_versions`. Reading it as an array of ids:
`io.bucket_ranges`. Caching pieces of it: `io.object_cache`. Writing: `io.uploads`.
"""

import base64
import contextlib
import functools
import logging
import os
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from nanoset_ref.io.error_text import shorten
from nanoset_ref.io.extras import extra
from nanoset_ref.io.urls import (
    HTTP,
    BucketPath,
    DeniedError,
    StorageError,
)

CLOUD_METADATA_ADDRESS = "169.254.169.254"  # asked for credentials where none are set
FIRST_PAUSE = 0.1  # seconds
CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a "
    "public bucket",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or GOOGLE_SKIP_SIGNATURE=true for a public bucket",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or "
    "AZURE_SKIP_SIGNATURE=true for a public container",
}
HTTP_CREDENTIALS = (
    "an http(s) URL is read without the credentials of a cloud, so sign it, or name the object "
    "as s3://bucket/key, gs:// or az://"
)
NO_RANGES = "the server does not support ranges, only whole objects; use another server"
# {a part of obstore's message: what is wrong; no retry helps}
REFUSALS = {
    "Range request not supported": NO_RANGES,
    "non-partial response": NO_RANGES,
    "redirect without LOCATION": "the bucket is in another region: set AWS_REGION to it",
    "InvalidUri": "AWS_ENDPOINT_URL must begin with http:// or https://",
    "code: AccessDenied": "writing a set needs the right to delete objects, too",
}
SECONDS_PER_WARNING = 10  # of one bucket
# of the variables that obstore reads when it connects
SETTING_PREFIXES = "AWS_", "AZURE_", "GOOGLE_"
# a fork breaks connections
WITHOUT_FORK = "use 0 workers and read_ahead=2, which prefetches in a thread"

logger = logging.getLogger(__name__)
# by bucket
_next_warning: defaultdict[str, float] = defaultdict(float)


class ReplacedError(StorageError):
    """The object is not the version that was opened."""


class MethodError(StorageError):
    """The server does not support the method of the request, such as HEAD."""


class TryAgainError(StorageError):
    """The server may answer later."""


# ---- requests, repeated while the server fails


def call_obstore(
    path: BucketPath, function: str, *arguments: Any, **options: Any
) -> Any:
    """Call a function of obstore for one object.

    Raises:
        OSError: see `request`.
    """
    retries = 99 if function == "put" else 0  # obstore retries each part of an upload

    def send(store: Any) -> Any:
        return obstore_function(function)(store, path.key, *arguments, **options)

    return request(path, send, retries)


def request(path: BucketPath, send: Callable[[Any], Any], retries: int = 0) -> Any:
    """Return `send(store)`, called again while the server fails.

    Args:
        send: sends a request through obstore's store, the connection to the bucket.
        retries: how often obstore repeats each HTTP request.

    Raises:
        FileNotFoundError: the object or the bucket does not exist.
        ReplacedError: the object is not the requested version.
        DeniedError: access is denied.
        StorageError: the extra is not installed, the process was forked, or the server does not
            answer in time.
    """
    check_not_forked()
    limit = timeout()
    deadline = time.monotonic() + limit
    settings = tuple(
        item for item in os.environ.items() if item[0].startswith(SETTING_PREFIXES)
    )
    store, error = try_once(path, _store, path.root, limit, retries, settings)
    if error is not None:
        raise error
    pause = FIRST_PAUSE
    while True:
        result, error = try_once(path, send, store)
        if error is None:
            return result
        if not isinstance(error, TryAgainError):
            raise error
        if time.monotonic() + pause > deadline:
            raise StorageError(
                f"{error}; given up after NANOSET_REF_TIMEOUT={limit:g} seconds"
            )
        if pause == FIRST_PAUSE and time.monotonic() >= _next_warning[path.root]:
            _next_warning[path.root] = time.monotonic() + SECONDS_PER_WARNING
            logger.warning("%s; retrying for up to %g s", error, limit)
        time.sleep(pause * random.uniform(0.5, 1))
        pause = min(2 * pause, limit / 4)


def try_once(
    path: BucketPath, function: Callable[..., Any], *arguments: Any
) -> tuple[Any, OSError | None]:
    """Return (`function(*arguments)`, None), or (None, its error as an error of this package).

    obstore's error shows the URL and must not become the context of another error, so nothing is
    raised while it is handled.
    """
    try:
        return function(*arguments), None
    except ModuleNotFoundError as error:
        return None, StorageError(f"{path}: {error}")
    except StorageError as error:
        return None, error
    except BaseException as error:  # a panic in obstore is not an Exception
        error_type = type(error).__name__
        if not isinstance(error, Exception) and error_type != "PanicException":
            raise
        return None, _translate(path, error_type, shorten(str(error).split("\n")[0]))


def _translate(path: BucketPath, error_type: str, line: str) -> OSError:
    """Convert obstore's error, given its type and the first line of its message."""
    match = re.search(r"status code: (\d+)", line)
    status = match[1] if match else ""
    if error_type == "PreconditionError" or status == "416":
        return replaced_error(path)
    if status in ("405", "501"):
        return MethodError(f"{path}: the server does not support this request ({line})")
    if error_type == "FileNotFoundError":
        return FileNotFoundError(f"{path} does not exist")
    for text, why in REFUSALS.items():
        if text in line:
            return StorageError(f"{path}: {why} ({line})")
    advice = CREDENTIALS.get(path.scheme, HTTP_CREDENTIALS)
    credentials = f"credentials are missing: {advice}"
    if error_type in ("PermissionDeniedError", "UnauthenticatedError"):
        why = f"access is denied, or {credentials}"
        if path.query:
            why = (
                "access is denied: a signed query opens one object, not its companions, "
                "and only for a limited time"
            )
        return DeniedError(f"{path}: {why} ({line})")
    why = "the server cannot be reached, fails or stalls, or the URL is wrong"
    if CLOUD_METADATA_ADDRESS in line:
        why = credentials
    elif "body error" in line:
        why = "the server truncates its answers, or stalls while it sends them"
    message = f"{path}: {why} ({line})"
    if status.startswith("4") and status not in ("408", "429"):
        return StorageError(message)
    return TryAgainError(message)


def replaced_error(path: BucketPath) -> ReplacedError:
    """The error for an object that is not the version that was opened."""
    return ReplacedError(
        f"{path} was replaced after it was opened; build the dataset again"
    )


# ---- connections


def positive_setting(variable: str, default: float) -> float:
    """Read a positive number from an environment variable."""
    setting = os.environ.get(variable) or default
    with contextlib.suppress(ValueError):
        if 0 < float(setting) < float("inf"):
            return float(setting)
    raise StorageError(
        f"{variable} must be a positive number, such as {default}; got {setting!r}"
    )


def timeout() -> float:
    """Seconds after which requests to a server are no longer repeated."""
    return positive_setting("NANOSET_REF_TIMEOUT", 60)


# the id of the process that connected first; forked processes inherit the answer
_connected_process = functools.cache(os.getpid)


def check_not_forked() -> None:
    """Raise StorageError in a forked process."""
    if _connected_process() != os.getpid():
        raise StorageError(
            f"a forked process cannot read from the bucket that its parent reads; {WITHOUT_FORK}"
        )


def refuse_fork_workers(paths: Iterable[Path], start_method: str) -> None:
    """Raise StorageError if forked workers would read from a bucket."""
    objects = [path for path in paths if isinstance(path, BucketPath)]
    if start_method == "fork" and objects:
        raise StorageError(
            f"{objects[0]}: forked workers cannot read from a bucket; {WITHOUT_FORK}"
        )


def obstore_function(name: str) -> Any:
    """A function of obstore by its name; imports obstore."""
    with extra("bucket", "reading a bucket"):
        import obstore

    return getattr(obstore, name)


def connect(root: str, seconds: float, retries: int = 0, **headers: str) -> Any:
    """Connect to a bucket.

    Args:
        root: the bucket's URL.
        seconds: for a whole answer; the server may stall for a quarter of that.
        retries: how often obstore repeats a request.
        **headers: added to each request after it is signed; "_" stands for "-".
    """
    with extra("bucket", "reading a bucket"):
        from obstore.store import HTTPStore, from_url

    all_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    parts = urlsplit(root)
    is_http = parts.scheme in HTTP
    if parts.username and is_http:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        all_headers["authorization"] = (
            f"Basic {base64.b64encode(pair.encode()).decode()}"
        )
    time_limit = timedelta(seconds=seconds)
    stall_limit = time_limit / 4
    client_options: Any = {
        "timeout": time_limit,
        "read_timeout": stall_limit,
        "connect_timeout": stall_limit,
        "allow_http": True,
        "default_headers": all_headers,
    }
    retry_config: Any = {
        "max_retries": retries,
        "retry_timeout": time_limit,
        "backoff": {"max_backoff": stall_limit},
    }
    # `from_url` would take https://bucket.s3.amazonaws.com for s3://bucket, and drop its signature
    open_store = HTTPStore.from_url if is_http else from_url
    return open_store(root, client_options=client_options, retry_config=retry_config)


@functools.cache
def _store(root: str, seconds: float, retries: int, _settings: object) -> Any:
    """`connect`, once for the same settings: other credentials connect again."""
    return connect(root, seconds, retries)
