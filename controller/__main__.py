"""The command `mqcontroller`: `mqcontroller [-c FILE] [-p] [KEY=VALUE ...]`."""

from __future__ import annotations

import sys

from controller.adoption import store_root
from controller.server import ControllerApp
from controller.settings import ControllerSettings
from mqruntime import serve
from mqruntime.collector import GcTuner


def main() -> int:
    """Run a controller until a signal; returns the exit code."""
    GcTuner().start()
    return serve.main("mqcontroller", ControllerSettings, ControllerApp, store_root)


if __name__ == "__main__":
    sys.exit(main())
