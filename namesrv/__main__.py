"""The command `mqnamesrv`: `mqnamesrv [-c FILE] [-p] [KEY=VALUE ...]`."""

from __future__ import annotations

import sys
from pathlib import Path

from mqruntime import serve
from namesrv.server import NamesrvApp
from namesrv.settings import NamesrvSettings


def store_root(settings: NamesrvSettings) -> Path:
    """The folder of the key-value file, the only thing a name server stores."""
    return settings.kv_config_path.parent


def main() -> int:
    """Run a name server until a signal; returns the exit code."""
    return serve.main("mqnamesrv", NamesrvSettings, NamesrvApp, store_root)


if __name__ == "__main__":
    sys.exit(main())
