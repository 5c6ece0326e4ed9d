"""Entry point of `mqadmin` and `python -m mqadmin`. It imports only the command that is run."""

from __future__ import annotations

from mqadmin.cli import main

if __name__ == "__main__":
    main()
