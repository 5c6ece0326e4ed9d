"""The form of the measuring commands' options."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable


def options(about: str | None) -> ArgumentParser:
    """A parser whose help begins with `about`, the module's docstring, in its own layout."""
    return ArgumentParser(description=about, formatter_class=RawDescriptionHelpFormatter)


def bounded(least: int, most: int) -> Callable[[str], int]:
    """The type of an option whose value is a whole number from `least` to `most`."""

    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return number
