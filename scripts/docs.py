"""Build the site of docs/, and serve it on loopback. mkdocs.yml names its content."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from mkdocs.__main__ import cli as mkdocs

ROOT = Path(__file__).parent.parent
CONFIG = str(ROOT / "mkdocs.yml")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """The pages of docs/ as a site. A broken link, a page that mkdocs.yml does not name, or a diagram that cannot be drawn
    ends both commands with exit code 1. The site loads nothing from other hosts."""


@main.command()
@click.option("--out", default="build/site", show_default=True, help="Folder of the site; it is replaced.")
def build(out: str) -> None:
    """Write the site into a folder."""
    run("build", "--strict", "--site-dir", str(ROOT / out))
    click.echo(f"the site is in {out}; open {out}/index.html, or run scripts/docs serve")


@main.command()
@click.option("--port", default=8000, show_default=True, help="Port on 127.0.0.1.")
def serve(port: int) -> None:
    """Serve the site on 127.0.0.1, and build it again when a page changes. Ctrl-C ends it."""
    run("serve", "--strict", "--dev-addr", f"127.0.0.1:{port}")


def run(*arguments: str) -> None:
    """Run mkdocs. Raises SystemExit if the site has a fault."""
    os.environ["NO_MKDOCS_2_WARNING"] = "true"  # silences an advertisement of the theme
    mkdocs([*arguments, "--config-file", CONFIG], standalone_mode=False)


if __name__ == "__main__":
    sys.exit(main())
