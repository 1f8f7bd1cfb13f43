"""A server of objects for tests and benchmarks: HTTP ranges, and as much of S3's protocol as obstore asks for.

    python tests/bucket_server.py FOLDER [LATENCY]      serves the files below a folder and prints its port

Every answer comes `latency` seconds late, and `faults` are put into the next answers to GET.
"""

import asyncio
import functools
import mmap
import sys
import threading
import urllib.parse
from pathlib import Path

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
XML = "<R><UploadId>u1</UploadId><ETag>e</ETag><Bucket>b</Bucket><Key>k</Key><Location>l</Location></R>"


class BucketServer(threading.Thread):
    """Answers in a thread, until the process ends.

    Attributes:
        objects: path ("/bucket/key", or "/bucket/key?query" if the query names the object) -> (content, ETag).
        faults: of the next answers to GET: a status, or "cut" (fewer bytes than announced), "half" (as well, and the
            connection stays open), "short" (fewer bytes than asked for), "whole" (the range is ignored), "stall" (no
            answer at all).
        log: "METHOD path" of every request, and bytes sent in `sent`.
        most: requests that waited for their answers at once.
        together: no answer is sent before so many requests have waited at once.
        denied: "METHOD path" of what answers 403.
        conditional: whether conditions (If-Match, If-Unmodified-Since) are looked at.
        told: which of "ETag" and "Last-Modified" an answer has.
        answered: the ETag of the answers to GET, if it is not that of the object.
        signed: "METHOD path?query" of what alone is answered, if there is any.
        conditions: of each GET, what If-Match or If-Unmodified-Since says, or None.
        stalled: connections whose request waits for an answer that never comes.
    """

    def __init__(self, latency=0.0):
        super().__init__(daemon=True)
        self.objects, self.parts, self.faults, self.log = {}, {}, [], []
        self.latency, self.sent, self.denied, self.ready = (
            latency,
            0,
            set(),
            threading.Event(),
        )
        self.waiting = self.most = 0
        self.held = []
        self.reset()
        self.loop = asyncio.new_event_loop()

    def reset(self):
        """Without faults."""
        self.faults.clear()
        self.denied.clear()
        self.latency, self.conditional, self.told, self.answered = (
            0.0,
            True,
            {"ETag", "Last-Modified"},
            None,
        )
        self.signed, self.conditions, self.stalled = set(), [], set()
        self.together = 0

    def run(self):
        server = self.loop.run_until_complete(
            self.loop.create_server(lambda: Connection(self), "127.0.0.1", 0)
        )
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        self.loop.run_forever()

    def cut_stalled(self):
        """Close the connections that stall: their clients ask again, or give up."""
        for connection in [*self.stalled]:
            self.loop.call_soon_threadsafe(connection.transport.abort)

    def started(self):
        self.start()
        self.ready.wait()
        return self

    def keep(self, path, content):
        self.objects[path] = (
            content,
            f'"{hash(bytes(content[:4096])) & 0xFFFFFFFF:x}-{len(content)}-{len(self.log)}"',
        )

    def answer(self, method, target, headers, body):
        """The status, further headers and content of an answer; a fault that is put in."""
        path, _, query = target.partition("?")
        path, asked = (
            urllib.parse.unquote(path),
            urllib.parse.parse_qs(query, keep_blank_values=True),
        )
        self.log.append(f"{method} {path}" + (f"?{sorted(asked)[0]}" if asked else ""))
        if f"{method} {path}" in self.denied:
            return (403, "", b"<Error><Code>AccessDenied</Code></Error>"), None
        if path == "/sent":
            return (200, "", str(self.sent).encode()), None
        if method in ("PUT", "POST"):
            return self.change(method, path, asked, body), None
        fault = self.faults.pop(0) if self.faults and method == "GET" else None
        if isinstance(fault, int):
            return (fault, "", b"<Error><Code>SlowDown</Code></Error>"), None
        if self.signed and f"{method} {target}" not in self.signed:
            return (403, "", b""), fault
        if target in self.objects:
            path = target
        if path not in self.objects:
            return (404, "", b"<Error><Code>NoSuchKey</Code></Error>"), fault
        content, etag = self.objects[path]
        if method == "GET":
            etag = self.answered or etag
            self.conditions.append(
                headers.get("if-match") or headers.get("if-unmodified-since")
            )
        wanted, since = (
            headers.get("if-match", etag),
            headers.get("if-unmodified-since", DATE),
        )
        if self.conditional and (wanted != etag or since != DATE):
            return (412, "", b""), fault
        known = {"ETag": etag, "Last-Modified": DATE}
        known = "".join(
            f"{name}: {value}\r\n" for name, value in known.items() if name in self.told
        )
        if "range" not in headers or fault == "whole":
            return (200, known, content), fault
        first, last = headers["range"].removeprefix("bytes=").split("-")
        if int(first) >= len(content):
            return (416, f"Content-Range: bytes */{len(content)}\r\n", b""), fault
        part = content[int(first) : int(last or len(content)) + 1]
        return (
            206,
            f"{known}Content-Range: bytes {first}-{int(first) + len(part) - 1}/{len(content)}\r\n",
            part,
        ), fault

    def change(self, method, path, asked, body):
        if "delete" in asked:
            key = body.decode().partition("<Key>")[2].partition("</Key>")[0]
            self.log[-1] = f"DELETE {path}/{key}"
            self.objects.pop(f"{path}/{key}", None)
            return (
                200,
                "",
                f"<DeleteResult><Deleted><Key>{key}</Key></Deleted></DeleteResult>".encode(),
            )
        if "uploads" in asked:
            self.parts[path] = {}
        elif "partNumber" in asked:
            self.parts[path][int(asked["partNumber"][0])] = body
            return 200, 'ETag: "part"\r\n', b""
        elif "uploadId" in asked:
            parts = self.parts.pop(path)
            self.keep(path, b"".join(parts[number] for number in sorted(parts)))
        else:
            self.keep(path, body)
            return 200, f"ETag: {self.objects[path][1]}\r\n", b""
        return 200, "", XML.encode()


@functools.cache
def server_of_process() -> BucketServer:
    """One for all tests of s3:// in a process."""
    return BucketServer().started()


class Connection(asyncio.Protocol):
    def __init__(self, server):
        self.server, self.buffer = server, b""

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, error):
        self.server.stalled.discard(self)

    def data_received(self, data):
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            first, *lines = self.buffer[:end].decode().split("\r\n")
            headers = {
                name.lower(): value
                for name, value in (line.split(": ", 1) for line in lines)
            }
            stop = end + 4 + int(headers.get("content-length", 0))
            if len(self.buffer) < stop:
                return
            body, self.buffer = self.buffer[end + 4 : stop], self.buffer[stop:]
            method, target, _ = first.split(" ")
            answer = self.server.answer(method, target, headers, body)
            self.server.waiting += 1
            self.server.most = max(self.server.most, self.server.waiting)
            self.server.held.append(functools.partial(self.send, method, *answer))
            if self.server.most >= self.server.together:
                for send in self.server.held:
                    self.server.loop.call_later(self.server.latency, send)
                self.server.held.clear()

    def send(self, method, answer, fault):
        status, extra, content = answer
        self.server.waiting -= 1
        if fault == "stall":
            self.server.stalled.add(self)
            return
        if fault == "short":
            content = content[: len(content) // 2]
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n{extra}\r\n".encode()
        if fault in ("cut", "half"):
            content = content[: len(content) // 2]
        self.server.sent += len(content) if method == "GET" else 0
        self.transport.write(head if method == "HEAD" else head + content)
        if fault == "cut":
            self.transport.close()


if __name__ == "__main__":
    server = BucketServer(float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
    for path in Path(sys.argv[1]).rglob("*"):
        if path.is_file() and path.stat().st_size:
            with open(path, "rb") as file:
                server.keep(
                    f"/{path.relative_to(sys.argv[1])}",
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ),
                )
    server.started()
    print(server.port, flush=True)  # noqa: T201
    server.join()
