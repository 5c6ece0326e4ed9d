"""The command `mqbroker`: `mqbroker [-c FILE] [-n NAMESERVERS] [-p] [KEY=VALUE ...]`."""

from __future__ import annotations

import sys
from pathlib import Path

from broker.app import BrokerApp
from broker.settings.broker import BrokerSettings
from mqruntime import serve


def store_root(settings: BrokerSettings) -> Path:
    """The folder of the log, the queues, the tables and the identity."""
    return settings.store_path_root_dir


def main() -> int:
    """Run a broker until a signal; returns the exit code."""
    return serve.main("mqbroker", BrokerSettings, BrokerApp, store_root, asks_name_servers=True)


if __name__ == "__main__":
    sys.exit(main())
