"""The site has no broken link and loads nothing from other hosts; the glossary names existing files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.sitehooks import LINK_OR_CODE, expanded, linked

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//|<link\b[^>]*\bhref=\"?(?:https?:)?//"
)


def test_the_site_is_built_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    """Builds the site without its search, which takes a second."""
    built = subprocess.run(
        [sys.executable, "-m", "scripts.docs", "build", "--out", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "SITE_SEARCH": "false"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {page: page.read_text() for page in tmp_path.rglob("*.html")}
    assert len(pages) > 20
    assert not [page.name for page, text in pages.items() if LOADED.search(text)]
    assert '<div class="diagram"><svg' in pages[tmp_path / "index.html"]
    assert not [page.name for page, text in pages.items() if 'class="mermaid"' in text], (
        "the theme loads a script for these"
    )
    for package in ("mqclient", "dledger", "sparkreplay"):
        assert f'id="{package}.' in pages[tmp_path / "api" / f"{package}.html"]


def test_a_nav_entry_with_a_star_expands_to_the_matching_pages() -> None:
    pages = ["clients.md", "operations.md", "operations/a.md", "operations/b.md", "operations/old/c.md"]
    nav = [
        "clients.md",
        {"How-to": ["operations*.md", "operations/*.md", "none/*.md"]},
        {"Start": "index.md"},
    ]
    expected = {"How-to": ["operations.md", "operations/a.md", "operations/b.md"]}
    assert expanded(nav, pages) == ["clients.md", expected, {"Start": "index.md"}]


@pytest.mark.parametrize(
    ("text", "source", "page", "shown"),
    [
        ("[Spark](docs/spark.md#columns)", "README.md", "index.md", "[Spark](spark.md#columns)"),
        (
            "[`raft.py`](dledger/raft/raft.py), [Raft](docs/dledger.md)",
            "README.md",
            "index.md",
            "`raft.py`, [Raft](dledger.md)",
        ),
        ("[Spark](../spark.md)", "docs/tutorials/a.md", "tutorials/a.md", "[Spark](../spark.md)"),
        ("[readme](../README.md)", "docs/spark.md", "spark.md", "[readme](index.md)"),
        ("`[code](no/link.md)` [here](#here)", "README.md", "index.md", "`[code](no/link.md)` [here](#here)"),
        ("[9319](https://localhost/9319)", "README.md", "index.md", "[9319](https://localhost/9319)"),
    ],
)
def test_links_between_files_become_links_between_pages(
    text: str, source: str, page: str, shown: str
) -> None:
    assert LINK_OR_CODE.sub(lambda found: linked(found, source, page), text) == shown


def test_a_link_to_a_missing_file_fails_the_build(caplog: pytest.LogCaptureFixture) -> None:
    LINK_OR_CODE.sub(lambda found: linked(found, "README.md", "index.md"), "[gone](ha/gone.py)")
    assert "README.md links to ha/gone.py, which is no file" in caplog.text


def test_each_term_of_the_glossary_names_a_file_that_exists() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 30 and all(len(row) == 4 for row in rows)
    links = [re.fullmatch(r"\[`([\w/.]+)`\]\(\.\./([\w/.]+)\)", row[3]) for row in rows]
    assert all(link is not None and link[1] == link[2] and (ROOT / link[1]).is_file() for link in links)
