"""mqreplay: what a committed log holds, its rows as Parquet, its bytes checked.

Invariant: exit code 0 means done and nothing found wrong, 1 a failure or a finding, 2 a mistake in the command line, 130 an
interrupt. Listing the commands imports none of them."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import NamedTuple

import click


class CommandEntry(NamedTuple):
    """Where a command lives: `module` holds a click command named `command`."""

    module: str
    summary: str


COMMANDS: dict[str, CommandEntry] = {
    "scan": CommandEntry(
        "sparkreplay.commands.scan", "What is there: bound, epochs, queues, rows, bytes, times."
    ),
    "export": CommandEntry(
        "sparkreplay.commands.export", "The rows as Parquet by topic and day, with a manifest."
    ),
    "resend": CommandEntry(
        "sparkreplay.commands.resend", "A topic's messages, sent again into a live cluster."
    ),
    "verify": CommandEntry("sparkreplay.commands.verify", "Check a replica's bytes, or compare replicas."),
    "stats": CommandEntry("sparkreplay.commands.stats", "Counts and sizes by topic, queue, producer, hour."),
    "package": CommandEntry("sparkreplay.commands.package", "The archive that Spark's --py-files takes."),
}
INTERRUPTED = 130
NEEDED = ("numpy", "pyarrow")


class ReplayGroup(click.Group):
    """Loads the command that is run and no other."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name].module).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.group(cls=ReplayGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="autoswitch-mq")
def cli() -> None:
    """Reads the committed part of a broker's commit log (STORE is its storePathRootDir)."""


def main() -> None:
    sys.exit(run())


def run(arguments: list[str] | None = None) -> int:
    """The exit code. What a user can mend is one line on stderr, never a traceback."""
    from sparkreplay.errors import ReplayError

    try:
        return int(cli.main(args=arguments, prog_name="mqreplay", standalone_mode=False) or 0)
    except (KeyboardInterrupt, click.Abort):
        print("mqreplay: interrupted", file=sys.stderr)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit is silent
        return 1
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        print(f"mqreplay: {error.name} is not installed; pip install 'autoswitch-mq[spark]'", file=sys.stderr)
        return 1
    except (ReplayError, OSError) as error:
        print(f"mqreplay: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    main()
