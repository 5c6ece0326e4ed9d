"""As tests.interop.javaserver, of RocketMQ 5.5.1: `python -m tests.interop.newerjavaserver -c FILE`."""

from __future__ import annotations

import os


def main() -> None:
    os.environ["AUTOSWITCH_PEERS_VERSION"] = "5.5.1"  # before tests.interop.javapeer is read
    from tests.interop import javaserver  # noqa: PLC0415

    javaserver.main()


if __name__ == "__main__":
    main()
