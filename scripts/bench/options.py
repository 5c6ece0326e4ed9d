"""The form of the measuring commands' options."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter


def options(about: str | None) -> ArgumentParser:
    """A parser whose help begins with `about`, the module's docstring, as it was written."""
    return ArgumentParser(description=about, formatter_class=RawDescriptionHelpFormatter)
