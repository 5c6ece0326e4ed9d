"""mqreplay: shows a committed log, exports its rows as Parquet, verifies its bytes.

Invariant: exit code 0 means success without findings, 1 a failure or a finding, 2 a mistake in the command line, 130 an
interrupt (SIGINT or SIGTERM). With --json, stdout holds one JSON object even if a command fails: `error` is the text, and
`kind` is the class of the error. Listing the commands imports no command."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import NamedTuple

import click

from sparkreplay.lean import leave_pandas_out


class ReplayCommand(NamedTuple):
    """Where a command is defined: `module` holds a click command named `command`."""

    module: str
    summary: str


COMMANDS: dict[str, ReplayCommand] = {
    "scan": ReplayCommand(
        "sparkreplay.commands.scan", "What is there: bound, epochs, queues, rows, bytes, times."
    ),
    "export": ReplayCommand(
        "sparkreplay.commands.export", "The rows as Parquet by topic and day, with a manifest."
    ),
    "resend": ReplayCommand(
        "sparkreplay.commands.resend", "A topic's messages, sent again into a live cluster."
    ),
    "verify": ReplayCommand("sparkreplay.commands.verify", "Check a replica's bytes, or compare replicas."),
    "stats": ReplayCommand("sparkreplay.commands.stats", "Counts and sizes by topic, queue, producer, hour."),
    "package": ReplayCommand("sparkreplay.commands.package", "The archive that Spark's --py-files takes."),
}
INTERRUPTED = 130
NEEDED = ("numpy", "pyarrow")
ROOM = "; make room and run the same command again"
ELSEWHERE = "; name another place"
CURES = {
    errno.ENOSPC: ROOM,
    errno.EDQUOT: ROOM,
    errno.EFBIG: "; raise the limit on file sizes (ulimit -f) and run the same command again",
    errno.EACCES: "; run as a user who may, or name another place",
    errno.EPERM: "; run as a user who may, or name another place",
    errno.EROFS: ELSEWHERE,
    errno.ENOENT: ELSEWHERE,
    errno.ENOTDIR: ELSEWHERE,
    errno.EISDIR: ELSEWHERE,
    errno.EEXIST: ELSEWHERE,
}
"""By error number of an OSError: the remedy if an output file cannot be written. Errors of stores' files are
StoreUnreadable."""


class ReplayGroup(click.Group):
    """The group of all commands. It imports only the command that is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        leave_pandas_out()
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
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # end as after SIGINT: workers end, ledger and terminal are restored
    make_printable()
    sys.exit(run())


def make_printable() -> None:
    """Escape characters of topics and paths that a terminal cannot show, and discard output to a closed stream."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process lives
        else:
            stream.reconfigure(errors="backslashreplace")


def run(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code. An error that a user can correct is one line on stderr, never a traceback."""
    from sparkreplay.errors import OptionError, ReplayError

    given = sys.argv[1:] if arguments is None else arguments
    try:
        return int(cli.main(args=given, prog_name="mqreplay", standalone_mode=False) or 0)
    except (KeyboardInterrupt, click.Abort):
        return failed(given, "Interrupted", "interrupted", INTERRUPTED)
    except click.ClickException as error:
        error.show()
        return failed(given, "UsageError", error.format_message(), error.exit_code, shown=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit then succeeds
        return 1
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        text = f"{error.name} is not installed; pip install 'autoswitch-mq[spark]'"
        return failed(given, "ModuleNotFoundError", text, 1)
    except OptionError as error:
        return failed(given, "OptionError", str(error), 2)
    except ReplayError as error:
        return failed(given, type(error).__name__, str(error), 1)
    except OSError as error:
        return failed(given, type(error).__name__, refusal(error), 1)


def failed(given: list[str], kind: str, text: str, code: int, *, shown: bool = False) -> int:
    """Print a failure on stderr, unless it is already `shown`, and as JSON if requested. Returns `code`."""
    if not shown:
        print(f"mqreplay: {text}", file=sys.stderr)
    if "--json" in given:
        with suppress(OSError):  # stdout itself may have failed
            print(json.dumps({"error": text, "kind": kind}), flush=True)
    return code


def refusal(error: OSError) -> str:
    """The operating system's error text, with the remedy."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}{CURES.get(error.errno or 0, '')}"


if __name__ == "__main__":
    main()
