"""Extensions of MkDocs for our site: pages from outside docs/, pages of the API, links to sources, and diagrams.

GitHub shows the same files, so each page must stay plain Markdown with links between files of the repository."""

from __future__ import annotations

import ast
import hashlib
import logging
import os
import posixpath
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ELSEWHERE = {"README.md": "index.md", "CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md"}
"""File of the repository -> page of the site."""
API = {
    "mqclient": "The client for programs in Python. First programs are in [Clients](../clients.md).",
    "dledger": "Raft as a library. A first program is in [DLedger](../dledger.md).",
    "sparkreplay": "The reader of committed messages. Options and columns are in [Spark](../spark.md).",
}
DRAWN = ROOT / "build" / "diagrams"
LINK_OR_CODE = re.compile(
    r"^ *```.*?^ *```$|`[^`\n]+`|\[(?P<text>(?:[^\[\]]|\[[^\]]*\])+)\]\((?P<target>[^()\s]+)\)",
    re.MULTILINE | re.DOTALL,
)
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)

log = logging.getLogger("mkdocs.hooks.site")
"""A child of mkdocs' own logger, so that a warning fails a strict build."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    pages = sorted(
        path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).rglob("*.md")
    )
    config.nav = expanded(config.nav, pages)
    return config


def expanded(entries: Any, pages: list[str]) -> list[Any]:
    """The entries of a nav. Entries with `*` are replaced by the pages that they name."""
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            found += [
                {title: inner if isinstance(inner, str) else expanded(inner, pages)}
                for title, inner in entry.items()
            ]
        elif "*" in entry:
            folder = posixpath.dirname(entry)
            found += [page for page in pages if posixpath.dirname(page) == folder and fnmatch(page, entry)]
        else:
            found.append(entry)
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    for package, about in API.items():
        files.append(File.generated(config, f"api/{package}.md", content=api_page(package, about)))
    return files


def api_page(package: str, about: str) -> str:
    """A page with the public names of `package`: those in `__all__`, or else the functions in `__init__.py`."""
    body = ast.parse((ROOT / package / "__init__.py").read_text()).body
    names = [
        name
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.literal_eval(node.value)
    ] or [node.name for node in body if isinstance(node, ast.FunctionDef)]
    return "\n\n".join([f"# {package}", about, *(f"::: {package}.{name}" for name in names), ""])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    source = {site: name for name, site in ELSEWHERE.items()}.get(
        page.file.src_uri, f"docs/{page.file.src_uri}"
    )
    drawings = MERMAID.sub(lambda found: drawn(found.group(1), source), markdown)
    return LINK_OR_CODE.sub(lambda found: linked(found, source, page.file.src_uri), drawings)


def linked(found: re.Match[str], source: str, page: str) -> str:
    """A link for the site: to a page or, if the file is no page, only the text."""
    text, target = found["text"], found["target"]
    path, mark, anchor = (target or "").partition("#")
    if not path or ":" in path:
        return found.group()
    place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if not (ROOT / place).exists():
        log.warning("%s links to %s, which is no file", source, target)
    below = ELSEWHERE.get(place) or (place.removeprefix("docs/") if place.startswith("docs/") else "")
    return (
        f"[{text}]({posixpath.relpath(below, posixpath.dirname(page) or '.')}{mark}{anchor})"
        if below
        else text
    )


def drawn(diagram: str, source: str) -> str:
    """The diagram as SVG, which needs no script and no other host. It is cached by its text, because drawing takes seconds."""
    name = hashlib.sha256(diagram.encode()).hexdigest()[:16]
    file = DRAWN / f"{name}.svg"
    if not file.exists():
        import mermaidx

        try:
            svg = mermaidx.render(diagram, theme="neutral").svg()
        except Exception as error:  # whatever the engine raises, the diagram is at fault
            log.warning("a diagram of %s cannot be drawn: %s", source, error)
            return ""
        DRAWN.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}")  # another build may draw it, too
        unfinished.write_text(" ".join(svg.replace("my-svg", f"diagram-{name}").split("\n")))
        unfinished.replace(file)
    return f'<div class="diagram">{file.read_text()}</div>\n'
