"""Each relative link of README.md and docs/ leads to a file that exists, and its anchor to a heading of that file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
OUTSIDE = re.compile(r"[a-z]+:")


def anchors(text: str) -> set[str]:
    """The anchor that GitHub gives each heading; the second heading of one text gets `-1`, the next `-2`."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(BLOCK.sub("", text)):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        if found[slug]:
            found[f"{slug}-{found[slug]}"] = 0
    return set(found)


def links(document: Path) -> list[str]:
    return [
        link
        for link in LINK.findall(CODE.sub("", BLOCK.sub("", document.read_text())))
        if not OUTSIDE.match(link)
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_link_of_a_document_has_a_target(document: Path) -> None:
    broken = []
    for link in links(document):
        name, _, anchor = link.partition("#")
        page = (document.parent / name).resolve() if name else document
        if not page.exists() or (anchor and anchor not in anchors(page.read_text())):
            broken.append(link)
    assert not broken


def test_each_page_for_operators_is_linked_from_their_index() -> None:
    index = ROOT / "docs" / "operations.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert not sorted({*(ROOT / "docs" / "operations").glob("*.md")} - linked)


def test_anchors_are_made_as_github_makes_them() -> None:
    text = "# Run a set of `three`, here\n\n## Again\n\n```sh\n# no heading\n```\n\n## Again\n"
    assert anchors(text) == {"run-a-set-of-three-here", "again", "again-1"}
