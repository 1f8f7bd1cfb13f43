"""Kernels that are forked from one process with the slow imports done: seconds less for each notebook.

    python tests/forked_kernels.py SOCKET                   the nursery
    python tests/forked_kernels.py SOCKET CONNECTION_FILE   what a kernel specification starts: asks for a kernel

Whoever asks stays until its kernel has ended, as a client of Jupyter expects of a kernel's process.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def nursery(folder: Path) -> Iterator[str]:
    """Run a nursery; its kernels are called as said, for which JUPYTER_PATH has to name the folder."""
    # the path of a socket has at most 104 characters, and that of the folder may have as many
    short = tempfile.mkdtemp(dir="/tmp")
    address = f"{short}/nursery"
    spec = folder / "kernels" / "forked" / "kernel.json"
    spec.parent.mkdir(parents=True)
    command = [sys.executable, __file__, address]
    asking = [sys.executable, "-I", "-S", __file__, address, "{connection_file}"]
    spec.write_text(
        json.dumps({"argv": asking, "display_name": "forked", "language": "python"})
    )
    process = subprocess.Popen(command)
    try:
        while not os.path.exists(address):
            assert process.poll() is None
            time.sleep(0.05)
        yield "forked"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(short)


def serve(address: str) -> None:
    """Import what takes long, then fork a kernel for each that asks."""
    sys.path.pop(0)  # this file's; a kernel puts its own folder there
    import matplotlib.pyplot  # noqa: F401
    import transformers.models.llama.modeling_llama  # noqa: F401
    from ipykernel.kernelapp import IPKernelApp

    import nanoset_ref.io.compilation  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a kernel
    server = socket.socket(socket.AF_UNIX)
    server.bind(address + ".tmp")
    server.listen()
    os.rename(address + ".tmp", address)
    while True:
        asking, _ = server.accept()
        if os.fork():
            asking.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        server.close()
        request = json.loads(asking.makefile().readline())
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        with_nursery = f"--IPKernelApp.parent_handle={os.getppid()}"  # it ends with it
        IPKernelApp.launch_instance(
            argv=["-f", request["connection_file"], with_nursery]
        )
        os._exit(0)


def ask(address: str, connection_file: str) -> None:
    """Ask for a kernel, and wait until its end of the socket is closed."""
    request = {
        "connection_file": connection_file,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
    }
    with socket.socket(socket.AF_UNIX) as kernel:
        kernel.connect(address)
        kernel.sendall(json.dumps(request).encode() + b"\n")
        kernel.recv(1)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        ask(*sys.argv[1:])
