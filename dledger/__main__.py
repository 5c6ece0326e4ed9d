"""Entry point of `python -m dledger`."""

from __future__ import annotations

from dledger.cli import dledger

if __name__ == "__main__":
    dledger(prog_name="dledger")
