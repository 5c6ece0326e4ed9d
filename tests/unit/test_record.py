"""What a terminal printed, as a film in one SVG."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET

from scripts.record import LAST_S, Screen, drawn, recorded


def test_a_line_that_is_drawn_again_is_seen_until_then() -> None:
    screen = Screen()
    screen.write("sent 1\r\n", 0.0)
    screen.write("\x1b[1A\x1b[2K\x1b[32msent <2>\x1b[0m\r\n", 2.0)
    texts = list(ET.fromstring(drawn(screen, 80, 4.0)).iter("{http://www.w3.org/2000/svg}text"))
    assert ["".join(text.itertext()) for text in texts] == ["sent 1", "sent <2>"]
    assert [text.get("opacity") for text in texts] == ["0", None]
    [first, second] = [text.find("{*}animate") for text in texts]
    assert first is not None and second is not None
    assert (first.get("values"), first.get("keyTimes")) == ("1;0", f"0.0000;{2 / (4 + LAST_S):.4f}")
    assert (second.get("values"), second.get("keyTimes")) == ("0;1", f"0.0000;{2 / (4 + LAST_S):.4f}")


def test_a_film_begins_and_ends_at_the_lines_that_are_named() -> None:
    command = (
        sys.executable,
        "-c",
        "print('1. one\\n2. two\\n3. three', flush=True); import time; time.sleep(60)",
    )
    screen, film_s = recorded(command, 80, since="2.", until="3.")
    shown = ["".join(letter for letter, _ in line) for line in screen.lines]
    assert shown[1:] == ["2. two", ""] and film_s < 60
