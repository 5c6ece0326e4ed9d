"""As scripts.peers.javaserver, of RocketMQ 5.5.1: `python -m scripts.peers.newerjavaserver -c FILE`."""

from __future__ import annotations

import os


def main() -> None:
    os.environ["AUTOSWITCH_PEERS_VERSION"] = "5.5.1"  # before scripts.peers.javapeer is read
    from scripts.peers import javaserver  # noqa: PLC0415

    javaserver.main()


if __name__ == "__main__":
    main()
