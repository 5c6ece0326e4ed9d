"""`python -m scripts.peers.newerjavaserver -c FILE` is scripts.peers.javaserver with RocketMQ 5.5.1."""

from __future__ import annotations

import os


def main() -> None:
    os.environ["AUTOSWITCH_PEERS_VERSION"] = "5.5.1"  # before scripts.peers.javapeer is imported
    from scripts.peers import javaserver  # noqa: PLC0415

    javaserver.main()


if __name__ == "__main__":
    main()
