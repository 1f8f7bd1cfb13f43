"""Two ways to run the script of a page: V8 with as much of a document as the script asks for, and a real browser.

Both open the same HTML, move a control, and tell what can be seen. V8 comes with the test requirements and is always
there; Chromium or Chrome is driven where one is installed, through its own debugging port.
"""

import contextlib
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import websocket
from py_mini_racer import MiniRacer

DOCUMENT = """
class Element {
  constructor(tag) { Object.assign(this, { tag, children: [], listeners: {}, textContent: "", value: "" }); }
  setAttribute() {}
  append(...added) {
    for (const it of added) {
      if (it instanceof Element) { it.parent = this; this.children.push(it); } else this.textContent += it;
    }
  }
  replaceChildren(...added) { this.children = []; this.append(...added); }
  remove() { this.parent.children = this.parent.children.filter((it) => it !== this); }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  all(tag) { return this.children.flatMap((it) => [...(it.tag === tag ? [it] : []), ...it.all(tag)]); }
}
const root = new Element("div");
root.querySelector = () => ({ textContent: embedded });
const document = {
  createElement: (tag) => new Element(tag),
  createElementNS: (space, tag) => new Element(tag),
  querySelectorAll: () => [root],
};
const controls = () => [...root.all("input"), ...root.all("select")];
const boxes = () => root.all("g").filter((it) => it.children.length === 2 && it.children[0].tag === "rect");
const seen = () => [root.all("p")[0].textContent, boxes().map((it) => String(it.children[1].textContent))];
const move = (name, value) => {
  const label = root.all("label").find((it) => it.textContent === name);
  const input = [...label.all("input"), ...label.all("select")][0];
  input.value = String(value);
  input.listeners.input();
};
"""

# the same three questions, asked in a page
PAGE = """
const labelled = (name) => [...document.querySelectorAll("label")].find((it) => it.firstChild.data === name).control;
const seen = () => [
  document.querySelector(".moving p").textContent,
  [...document.querySelectorAll(".moving svg rect")].map((it) => it.nextSibling.textContent),
];
"""
PLACES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MACOS = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
BROWSER = next(filter(None, map(shutil.which, (*PLACES, MACOS))), None)
KEYS = {"ArrowRight": 39, "ArrowLeft": 37}


class V8:
    """The script of a page in an engine without a browser."""

    def open(self, html: str) -> None:
        embedded, script = re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL)
        self.engine = MiniRacer()
        self.engine.eval(f"const embedded = {json.dumps(embedded)};{DOCUMENT}{script}")

    def move(self, name: str, start: int, end: int) -> None:
        self.engine.eval(f"move({json.dumps(name)}, {end})")

    def seen(self) -> list:
        return json.loads(self.engine.eval("JSON.stringify(seen())"))

    def close(self) -> None: ...


class Chrome:
    """A page in a browser without a window, without a network, moved by the keyboard."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp()
        quiet = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "about:blank",
        ]
        opened = [
            "--remote-debugging-port=0",
            "--remote-allow-origins=*",
            f"--user-data-dir={self.folder}",
        ]
        nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([BROWSER, *opened, *quiet], **nowhere)
        port, self.number = Path(self.folder, "DevToolsActivePort"), 0
        while not (port.exists() and port.read_text().strip()):
            assert self.process.poll() is None, "the browser ended before it had begun"
            time.sleep(0.05)
        pages = []
        while not pages:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port.read_text().split()[0]}/json"
            ) as answer:
                pages = [it for it in json.load(answer) if it["type"] == "page"]
        self.socket = websocket.create_connection(pages[0]["webSocketDebuggerUrl"])
        self._ask("Network.enable")
        unplugged = {
            "offline": True,
            "latency": 0,
            "downloadThroughput": -1,
            "uploadThroughput": -1,
        }
        self._ask("Network.emulateNetworkConditions", **unplugged)

    def open(self, html: str) -> None:
        page = Path(self.folder, f"page-{self.number}.html")
        page.write_text(
            f'<!doctype html><meta charset="utf-8">{html}<script>{PAGE}</script>',
            encoding="utf-8",
        )
        self._ask("Page.navigate", url=page.as_uri())
        self.wait_for(
            "[location.href, document.readyState].join()", f"{page.as_uri()},complete"
        )

    def wait_for(self, expression: str, value: object) -> None:
        """Until an expression has a value; between two pages there is nowhere to evaluate it."""
        found = None
        while found != value:
            time.sleep(0.02)
            with contextlib.suppress(AssertionError):
                found = self._evaluate(expression)

    def move(self, name: str, start: int, end: int) -> None:
        control = f"labelled({json.dumps(name)})"
        if self._evaluate(f"{control}.type") == "range":
            self._evaluate(f"{control}.focus()")
            for _ in range(abs(end - start)):
                self._press("ArrowRight" if end > start else "ArrowLeft")
        else:  # what a key does to a list differs between systems
            self._evaluate(
                f"{control}.value = {end}; {control}.dispatchEvent(new Event('input'))"
            )

    def seen(self) -> list:
        return self._evaluate("seen()")

    def close(self) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self._ask(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=KEYS[key],
            )

    def _evaluate(self, expression: str):
        answer = self._ask(
            "Runtime.evaluate", expression=expression, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _ask(self, method: str, **parameters) -> dict:
        self.number += 1
        self.socket.send(
            json.dumps({"id": self.number, "method": method, "params": parameters})
        )
        while (answer := json.loads(self.socket.recv())).get("id") != self.number:
            pass
        assert "error" not in answer, answer
        return answer["result"]


ENGINES = [V8, Chrome] if BROWSER else [V8]
