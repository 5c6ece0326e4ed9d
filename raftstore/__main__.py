"""Entry of `python -m raftstore`."""

from __future__ import annotations

from raftstore.cli import raftstore

if __name__ == "__main__":
    raftstore(prog_name="raftstore")
