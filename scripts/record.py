"""Run a command in a separate terminal, and draw its output, with the times of the output, as an animated SVG.

The times are those of the run, but a pause counts at most PAUSE_S. The SVG needs no script and no font from another host."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import click

PAUSE_S = 2.0
LAST_S = 6.0
"""How long the end is shown before the animation begins again."""
COLUMN, ROW, MARGIN = 7.25, 18, 14
CONTROL = re.compile(r"\x1b\[([\d;?]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+|\x1b")
CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y"}
STYLE = """text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d7dae0;white-space:pre}
.b{font-weight:bold;fill:#fff}.d{fill:#8b919c}.r{fill:#f47067}.g{fill:#8ddb8c}.y{fill:#e0b860}"""


@dataclass
class Screen:
    """The lines of a terminal, with each text that a line showed and the time at which it appeared."""

    lines: list[list[tuple[str, str]]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    look: str = ""
    shown: list[list[tuple[float, list[tuple[str, str]]]]] = field(default_factory=list)

    def write(self, text: str, at_s: float) -> None:
        for part in CONTROL.finditer(text):
            self._take(part.group(), part.group(1) or "", part.group(2) or "")
        for number, line in enumerate(self.lines):
            if number == len(self.shown):
                self.shown.append([])
            if line != (self.shown[number][-1][1] if self.shown[number] else []):
                self.shown[number].append((at_s, [*line]))

    def _take(self, text: str, values: str, command: str) -> None:
        if text == "\r":
            self.column = 0
        elif text == "\n":
            self.row += 1
            self.lines += [[] for _ in range(self.row + 1 - len(self.lines))]
        elif command == "m":
            found = [CLASSES[value] for value in values.split(";") if value in CLASSES]
            self.look = " ".join(found)
        elif command == "K":
            self.lines[self.row] = []
        elif command == "A":
            self.row = max(0, self.row - int(values or 1))
        elif not command and text != "\x1b":
            line = self.lines[self.row]
            line += [(" ", "")] * (self.column - len(line))
            line[self.column : self.column + len(text)] = [(letter, self.look) for letter in text]
            self.column += len(text)


def recorded(command: tuple[str, ...], columns: int, since: str, until: str) -> tuple[Screen, float]:
    """The command's screen, and how long it takes in the animation. The animation begins with the line that contains `since`.
    At the line that contains `until` the command is interrupted. Raises CalledProcessError for a command that fails by
    itself."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "60", "TERM": "xterm", "COLORTERM": ""}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    screen, film_s, last_s = Screen(), 0.0, time.monotonic()
    screen.write("$ " + " ".join(command) + "\r\n", 0.0)
    ended = False
    with suppress(OSError):  # EIO: the other end is closed
        while part := os.read(ours, 65536):
            text, now_s = part.decode(errors="replace"), time.monotonic()
            film_s, last_s = film_s + min(PAUSE_S, now_s - last_s), now_s
            if since and (found := line_with(since, text)):
                text, since, film_s = text[found.start() :], "", 0.0
            if since or ended:
                continue
            if until and (found := line_with(until, text)):
                text, ended = text[: found.start()], True
                process.send_signal(signal.SIGINT)
            screen.write(text, film_s)
    os.close(ours)
    if process.wait() != 0 and not ended:
        raise subprocess.CalledProcessError(process.returncode, command)
    return screen, film_s


def line_with(wanted: str, text: str) -> re.Match[str] | None:
    return re.search(rf"^.*{re.escape(wanted)}", text, re.MULTILINE)


def drawn(screen: Screen, columns: int, film_s: float) -> str:
    """Draw the animation. Each text of a line is shown until the next text of the line. The last texts stay until the
    animation begins again."""
    total_s = film_s + LAST_S
    used = [number for number, texts in enumerate(screen.shown) if any(line for _, line in texts)]
    width, height = columns * COLUMN + 2 * MARGIN, (used[-1] + 1) * ROW + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img">',
        f'<style>{STYLE}</style><rect width="100%" height="100%" rx="6" fill="#1d2027"/>',
    ]
    for number in used:
        texts = screen.shown[number]
        for place, (from_s, line) in enumerate(texts):
            if line:
                to_s = texts[place + 1][0] if place + 1 < len(texts) else total_s
                parts.append(text_of(line, number, from_s / total_s, to_s / total_s, total_s))
    return "\n".join([*parts, "</svg>", ""])


def text_of(line: list[tuple[str, str]], number: int, begin: float, end: float, total_s: float) -> str:
    spans, run, look = [], "", line[0][1]
    for letter, its in [*line, ("", "none")]:
        if its != look:
            spans.append(f'<tspan class="{look}">{escape(run)}</tspan>' if look else escape(run))
            run, look = "", its
        run += letter
    moments = [(0.0, 0)] * (begin > 0) + [(begin, 1)] + [(end, 0)] * (end < 1)
    times = f'values="{";".join(str(on) for _, on in moments)}" keyTimes="{";".join(f"{at:.4f}" for at, _ in moments)}"'
    film = f'<animate attributeName="opacity" calcMode="discrete" dur="{total_s:.1f}s" repeatCount="indefinite" {times}/>'
    opacity = "" if end >= 1 else ' opacity="0"'  # without animation the end is shown
    return f'<text x="{MARGIN}" y="{MARGIN + (number + 1) * ROW - 5}"{opacity}>{"".join(spans)}{film}</text>'


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The SVG.")
@click.option("--since", default="", help="Begin with the line that holds this.")
@click.option("--until", default="", help="Interrupt the command at the line that holds this.")
@click.option("--columns", default=118, show_default=True, help="Width of the terminal.")
@click.argument("command", nargs=-1, required=True)
def main(out: Path, since: str, until: str, columns: int, command: tuple[str, ...]) -> None:
    """Run COMMAND in a terminal and draw its output as an animated SVG."""
    screen, film_s = recorded(command, columns, since, until)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(drawn(screen, columns, film_s))
    click.echo(f"{out}: {film_s:.0f} s of film, {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
