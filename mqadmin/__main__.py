"""Entry of `mqadmin` and `python -m mqadmin`; loads the command that is run and no other."""

from __future__ import annotations

from mqadmin.cli import main

if __name__ == "__main__":
    main()
