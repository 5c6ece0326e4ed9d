"""Entry point of `python -m localcluster`, which scripts/cluster runs."""

from __future__ import annotations

from localcluster.cli import cluster

if __name__ == "__main__":
    cluster(prog_name="cluster")
