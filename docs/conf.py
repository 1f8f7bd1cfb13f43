"""The site: `make site` writes it to build/site.

The sources are the repository itself: the notebooks as they were executed, and the pages of this folder. Three kinds of
pages are generated from the package before they are read: plain.py, function by function; the commands' help; and one
page for each public name.
"""

import ast
import contextlib
import importlib
import io
import shutil
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ROOT / "docs" / "generated"
MODULES = (
    "",
    ".megatron",
    ".streaming",
    ".chunks",
    ".tokens",
    ".load",
    ".train",
    ".provenance",
)
REPOSITORY = "https://github.com/nanoset-ref/nanoset_ref"
sys.path.insert(0, str(ROOT))

project = "nanoset_ref"
author = "the nanoset_ref authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "notebooks/*.ipynb",
    "notebooks/00_map.md",
    "CHANGELOG.md",
]
templates_path: list[str] = []
nb_execution_mode = "off"  # the committed outputs are what the tests compare
nb_merge_streams = True
nb_render_markdown_format = "myst"
nb_mime_priority_overrides = [("html", "text/html", 0), ("html", "image/png", 10)]
myst_enable_extensions = ["dollarmath", "colon_fence", "html_image"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_use_ivar = True
napoleon_use_rtype = False
# an attribute that several classes have is no mistake
suppress_warnings = ["mystnb.unknown_mime_type", "ref.python"]

html_math_renderer = "mathml"
html_theme = "sphinx_book_theme"
html_title = "nanoset_ref: how tokens reach the GPUs"
html_static_path = ["site.css", "site.js"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_theme_options = {
    "repository_url": REPOSITORY,
    "use_repository_button": True,
    "use_issues_button": True,
    "path_to_docs": ".",
    "repository_branch": "main",
    "launch_buttons": {
        "binderhub_url": "https://mybinder.org",
        "colab_url": "https://colab.research.google.com",
        "notebook_interface": "jupyterlab",
    },
    "show_navbar_depth": 1,
}


def plain_page() -> str:
    """plain.py as prose: the docstring of each function, its worked example, and the code."""
    source = (ROOT / "nanoset_ref" / "plain.py").read_text(encoding="utf-8")
    lines, tree = source.splitlines(), ast.parse(source)
    page = [
        "# plain.py: everything on one page",
        "",
        *_prose(ast.get_docstring(tree) or ""),
    ]
    last = 0
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        for line in lines[last : function.lineno - 1]:
            if line.startswith("# ---- "):
                page += ["", f"## {line[7:]}", ""]
        docstring = function.body[0]
        code = (
            lines[function.lineno - 1 : docstring.lineno - 1]
            + lines[docstring.end_lineno : function.end_lineno]
        )
        page += [
            "",
            f"### {function.name}",
            "",
            *_prose(ast.get_docstring(function) or ""),
        ]
        page += ["", "```python", *code, "```"]
        last = function.end_lineno or 0
    return "\n".join(page)


def _prose(docstring: str) -> list[str]:
    """Paragraphs as they are, indented ones and examples as code."""
    page: list[str] = []
    for paragraph in docstring.split("\n\n"):
        is_code = paragraph.startswith((">>>", "    "))
        kind = "python" if paragraph.startswith(">>>") else "text"
        page += [
            "",
            *([f"```{kind}", dedent(paragraph), "```"] if is_code else [paragraph]),
        ]
    return page


def commands_page() -> str:
    """What every command says when it is asked for help."""
    from nanoset_ref.cli import COMMANDS, main

    page = ["# The command line"]
    for name in COMMANDS:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            main([name, "--help"])
        page += ["", f"## {name}", "", "```text", said.getvalue().rstrip(), "```"]
    return "\n".join(page)


def api_pages() -> dict[str, str]:
    """A page for each public name, and one that lists them, by file name."""
    pages, index = {}, ["# The Python interface"]
    for suffix in MODULES:
        module = importlib.import_module(f"nanoset_ref{suffix}")
        names = sorted(name for name in module.__all__ if f"api/{name}" not in pages)
        index += ["", f"## {module.__name__}", "", "```{toctree}", ":maxdepth: 1", ""]
        for name in names:
            what = getattr(module, name)
            kind = (
                "class"
                if isinstance(what, type)
                else "function"
                if callable(what)
                else "data"
            )
            members = (
                ["   :members:", "   :show-inheritance:"] if kind == "class" else []
            )
            directive = [f".. auto{kind}:: {module.__name__}.{name}", *members]
            pages[f"api/{name}"] = "\n".join(
                [f"# {name}", "", "```{eval-rst}", *directive, "```"]
            )
            index.append(f"api/{name}")
        index.append("```")
    return pages | {"api": "\n".join(index)}


def generate(app: Any, config: Any) -> None:
    """Write the pages that come out of the package."""
    shutil.rmtree(GENERATED, ignore_errors=True)
    pages = {"plain": plain_page(), "commands": commands_page(), **api_pages()}
    for name, text in pages.items():
        path = GENERATED / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")


# what a page on GitHub links to, and the page of the site that shows it better
INSTEAD = {
    "(../nanoset_ref/plain.py)": "(generated/plain.md)",
    "(../README.md#the-command-line-tool)": "(generated/commands.md)",
    "(../nanoset_ref/__init__.py)": "(generated/api.md)",
}


def as_on_the_site(app: Any, page: str, source: list[str]) -> None:
    """Lead to generated pages, and give the first page the tables of contents that GitHub would show as they are."""
    if page.startswith("docs/"):
        for link, better in INSTEAD.items():
            source[0] = source[0].replace(link, better)
    if page == root_doc:
        source[0] += "\n" + (ROOT / "docs" / "contents.txt").read_text(encoding="utf-8")


def describe_pictures(app: Any, doctree: nodes.document) -> None:
    """Give every picture of a notebook its words, which are the text form of the same output."""
    for bundle in doctree.findall(nodes.container):
        if bundle.get("nb_element") == "mime_bundle":
            texts = [text.astext() for text in bundle.findall(nodes.literal_block)]
            for image in bundle.findall(nodes.image):
                image["alt"] = texts[0].removeprefix("Picture: ") if texts else ""


def write_formula(writer: Any, node: nodes.math | nodes.math_block) -> None:
    """A formula as MathML, which browsers draw themselves, without a network."""
    writer.body.append(
        tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block))
    )
    raise nodes.SkipNode


def lead_to_the_first_page(app: Any, exception: Exception | None) -> None:
    """The address of the site without a page shows docs/index.html."""
    link = '<meta http-equiv="refresh" content="0; url=docs/index.html"><a href="docs/index.html">nanoset_ref</a>'
    page = f'<!doctype html><html lang="en"><title>nanoset_ref</title>{link}</html>'
    Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


def add_the_planner(app: Any, exception: Exception | None) -> None:
    """The planner is a page of its own: it stands beside the others as it is."""
    shutil.copy(ROOT / "docs" / "planner.html", Path(app.outdir, "docs"))


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("config-inited", generate)
    app.connect("source-read", as_on_the_site)
    app.connect("doctree-read", describe_pictures)
    app.connect("build-finished", lead_to_the_first_page)
    app.connect("build-finished", add_the_planner)
