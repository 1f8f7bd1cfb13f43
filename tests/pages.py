"""Runs the script of a page in V8, with as much of a document as the script asks for, and tells what can be seen."""

import json
import re

from py_mini_racer import MiniRacer

DOCUMENT = """
class Element {
  constructor(tag) { Object.assign(this, { tag, attributes: {}, children: [], listeners: {}, text: "", value: "" }); }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  append(...added) {
    for (const it of added) {
      if (it instanceof Element) { it.parent = this; this.children.push(it); } else this.text += it;
    }
  }
  replaceChildren(...added) { this.children = []; this.append(...added); }
  remove() { this.parent.children = this.parent.children.filter((it) => it !== this); }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  get textContent() { return this.text; }
  set textContent(text) { this.text = String(text); }
  all(tag) { return this.children.flatMap((it) => [...(it.tag === tag ? [it] : []), ...it.all(tag)]); }
}
const root = new Element("figure");
root.querySelector = () => ({ textContent: embedded });
const document = {
  createElement: (tag) => new Element(tag),
  createElementNS: (space, tag) => new Element(tag),
  querySelectorAll: () => [root],
};
const controls = () => [...root.all("input"), ...root.all("select")];
const boxes = () => root.all("g").filter((it) => it.children.length === 2 && it.children[0].tag === "rect");
const seen = () => [root.all("p")[0].text, boxes().map((it) => it.children[1].text)];
const move = (name, value) => {
  const label = root.all("label").find((it) => it.text === name);
  const input = [...label.all("input"), ...label.all("select")][0];
  input.value = String(value);
  input.listeners.input();
};
"""


class Page:
    """A page whose script has run once."""

    def __init__(self, html: str) -> None:
        embedded, script = re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL)
        self.engine = MiniRacer()
        self.engine.eval(f"const embedded = {json.dumps(embedded)};{DOCUMENT}{script}")

    def move(self, name: str, end: int) -> None:
        self.engine.eval(f"move({json.dumps(name)}, {end})")

    def seen(self) -> list:
        return json.loads(self.engine.eval("JSON.stringify(seen())"))
