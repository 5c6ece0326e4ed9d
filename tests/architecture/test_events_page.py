"""The page of log events is collected from all logging calls."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts.events import METHODS, Event, Module, events_of
from scripts.pages import PACKAGES

ROOT = Path(__file__).parents[2]

SOURCE = """
CURE = "stop it; " "start it empty"
CURES = {1: "stop it", 2: "wait"}
GONE = f"the disk is gone: {CURE}"

class Server:
    def reported(self, why):
        us, said = self.us, fields(epoch=1, **self.more)
        logger.error("%s, retrying", GONE, extra=said)
        logger.warning("role refused: %s", why, extra=fields(why=why, hint=CURES[why]))
        logger.info("began" if why else "ended")
        logger.debug("not shown")
        self._say("for %s", extra)

    def _say(self, sentence, extra):
        logger.warning(sentence, self.what, extra=extra)

    def retried(self):
        self._write = RetriedWrite(logger, "the file cannot be written", again="it can", level=logging.ERROR)
"""


def test_an_event_has_the_level_text_fields_and_hint_of_its_call(tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    path.write_text(SOURCE)
    found = {(event.level, event.text): event for event in Module(path).events()}
    assert found.keys() == {
        ("ERROR", "the disk is gone: stop it; start it empty, retrying"),
        ("WARNING", "role refused: …"),
        ("INFO", "began"),
        ("INFO", "ended"),
        ("WARNING", "for …"),
        ("ERROR", "the file cannot be written"),
        ("INFO", "it can"),
    }
    assert found["WARNING", "role refused: …"] == Event(
        "WARNING", "role refused: …", ("why",), "stop it. Or: wait"
    )
    assert found["ERROR", "the disk is gone: stop it; start it empty, retrying"].fields == ("epoch",)


@pytest.mark.parametrize("package", [package for package, _ in PACKAGES])
def test_the_logging_calls_of_each_package_are_on_the_page(package: str) -> None:
    """Finds calls of a logger with another name, which the collection would skip."""
    literals = set()
    for path in (ROOT / package).rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            named = isinstance(call.func, ast.Attribute) and call.func.attr in METHODS
            if named and call.args and isinstance(call.args[0], ast.Constant) and call.keywords:
                literals.add(str(call.args[0].value).partition("%")[0].strip())
    shown = "\n".join(event.text for event in events_of(package))
    assert not [text for text in literals if text not in shown]
