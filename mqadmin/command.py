"""The parts shared by all admin commands: options in upstream's style, its usage text, and the output of errors.

Invariant: a command that fails exits with a non-zero code and one line on stderr, never with a traceback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import click

from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqruntime.clock import SystemClock
from mqruntime.tlsconnector import connector_of_environment
from mqruntime.tlsfiles import TlsUnusable
from mqruntime.toolcredentials import CredentialsUnusable, keys_of_environment
from remoting.signing import Signer

USAGE_WIDTH = 110
JSON_KEY = "mqadmin.json"
JSON_HELP = "\n --json: print one JSON object instead, for scripts (not an option of upstream's)\n"
SECONDS_MAX = 86_400
I32_MAX = 2**31 - 1
I64_MAX = 2**63 - 1
NAMESRV_HELP = "Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'"


@dataclass(frozen=True, slots=True)
class Argument:
    """One option: `-letter,--name <arg>`. A flag takes no value. `name` is also the parameter's name."""

    letter: str
    name: str
    help: str
    required: bool = False
    is_flag: bool = False
    may_be_empty: bool = False  # whether a required text may be empty
    alone: str | None = None  # its value if given without a value, which upstream rejects

    @property
    def short(self) -> str:
        """`-b`; empty for an option with a long name only."""
        return "" if self.letter == self.name else f"-{self.letter}"

    def click_option(self) -> click.Option:
        """The option for the parser. The command itself checks for missing required options, for all options at once."""
        return click.Option(
            [*filter(None, [self.short]), f"--{self.name}", self.name.lower()],
            **(
                {"is_flag": self.is_flag or None}
                if self.alone is None
                else {"is_flag": False, "flag_value": self.alone}
            ),
            envvar="NAMESRV_ADDR" if self.letter == "n" else None,
        )

    def usage(self) -> str:
        name = self.short or f"--{self.name}"
        text = name if self.is_flag else f"{name} <arg>"
        return text if self.required else f"[{text}]"

    def left_column(self) -> str:
        return (f" {self.short},--{self.name}" if self.short else f"    --{self.name}") + (
            "" if self.is_flag else " <arg>"
        )


def json_option() -> click.Option:
    """The option --json. Only the help mentions it, because the usage text is exactly upstream's."""

    def remember(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
        ctx.meta[JSON_KEY] = wanted

    return click.Option(
        ["--json"], is_flag=True, expose_value=False, callback=remember, help="one JSON object"
    )


COMMON = (
    Argument("h", "help", "Print help", is_flag=True),
    Argument("n", "namesrvAddr", NAMESRV_HELP),
)


class UsageWanted(click.UsageError):
    """The options are invalid. The text has the reason, and the usage is shown. The exit code is 1, as in upstream."""

    exit_code = 1


class AdminCommand(click.Command):
    """A click command whose help and option errors look like upstream's tool."""

    def __init__(self, name: str, arguments: tuple[Argument, ...], callback: Callable[..., None]) -> None:
        self.arguments = tuple(sorted((*arguments, *COMMON), key=lambda argument: argument.letter.lower()))
        self.declared = arguments
        super().__init__(
            name,
            params=[*(argument.click_option() for argument in (*arguments, COMMON[1])), json_option()],
            callback=callback,
            context_settings={"help_option_names": ["-h", "--help"]},
        )

    def usage_text(self) -> str:
        """The usage block in the layout of upstream's option library, 110 columns wide."""
        options = " ".join(argument.usage() for argument in self.arguments)
        usage = wrap(
            f"usage: mqadmin {self.name} {options}",
            USAGE_WIDTH,
            subsequent_indent=" " * len("usage: "),
            break_on_hyphens=False,
        )
        column = max(len(argument.left_column()) for argument in self.arguments) + 3
        rows: list[str] = []
        for argument in self.arguments:
            text = wrap(argument.help, USAGE_WIDTH - column, break_on_hyphens=False)
            rows.append(f"{argument.left_column():<{column}}{text[0]}")
            rows.extend(" " * column + more for more in text[1:])
        return "\n".join([*usage, *rows]) + "\n"

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(self.usage_text() + JSON_HELP)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # a shell completes a half-typed line
            return super().parse_args(ctx, args)
        try:
            rest = super().parse_args(ctx, args)
            if rest:
                raise UsageWanted(f"Unrecognized argument: {rest[0]}")
            missing = [a.letter for a in self.declared if a.required and ctx.params[a.name.lower()] is None]
            if missing:
                raise UsageWanted(f"Missing required option{'s' * (len(missing) > 1)}: {', '.join(missing)}")
            for argument in self.declared:
                if (
                    argument.required
                    and not argument.may_be_empty
                    and not ctx.params[argument.name.lower()].strip()
                ):
                    raise UsageWanted(f"-{argument.letter} is given without a text")
        except click.NoSuchOption as error:
            self.complain(ctx, f"Unrecognized option: {error.option_name}")
        except click.UsageError as error:
            self.complain(ctx, error.format_message())
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UsageWanted as error:
            self.complain(ctx, error.format_message())
        except AdminError as error:
            click.echo(f"mqadmin {self.name}: {error}", err=True)
            ctx.exit(1)

    def complain(self, ctx: click.Context, why: str) -> None:
        """Print `why` on stderr and the usage on stdout, and exit 1."""
        if why:
            click.echo(why, err=True)
        click.echo(self.usage_text(), nl=False)
        ctx.exit(1)


def admin_command(name: str, *arguments: Argument) -> Callable[[Callable[..., None]], AdminCommand]:
    """Make a command of `function(namesrvaddr=..., <option name in lower case>=...)`. Options that are not given are None."""
    return lambda callback: AdminCommand(name, arguments, callback)


Calls = Callable[[AdminClient, Report], Awaitable[None]]
"""One round of a command, which sends requests and adds the answers to the report."""


def run(calls: Calls, *, interval: str | None = None) -> None:
    """Run `calls` with a separate client. With `interval` (a text, empty means 3), run it again every so many seconds until
    Ctrl-C.

    Raises `AdminError` as the calls do, and `UsageWanted` for an interval that is no number."""
    seconds = interval_seconds(interval)
    try:
        connector, signer = connector_of_environment(), Signer.of(keys_of_environment())
    except (TlsUnusable, CredentialsUnusable) as error:
        raise AdminError(str(error)) from None
    report = Report(as_json=bool(click.get_current_context().meta.get(JSON_KEY)))

    async def one_round(client: AdminClient) -> None:
        try:
            await calls(client, report)
        except AdminError as error:
            report.finish(str(error))
            raise
        report.finish()

    async def session() -> None:
        client = AdminClient(SystemClock(), connector, signer)
        try:
            await one_round(client)
            while seconds is not None:
                await asyncio.sleep(seconds)
                await one_round(client)
        finally:
            await client.close()

    asyncio.run(session())


def interval_seconds(text: str | None) -> float | None:
    """The seconds in -i: 3 for an empty text, None without the option. Raises `UsageWanted`."""
    if text is None:
        return None
    try:
        seconds = float(text.strip() or 3)
    except ValueError:
        raise UsageWanted(f"-i {text}: not a number of seconds") from None
    if not 0 < seconds <= SECONDS_MAX:
        raise UsageWanted(f"-i {text}: must be more than 0 seconds, and {SECONDS_MAX} at most")
    return seconds


def required_namesrv(address: str | None) -> str:
    """The name server list of -n or NAMESRV_ADDR. Raises `AdminError` if neither is set."""
    if not address:
        raise AdminError("no name server is known; give -n HOST:PORT or set NAMESRV_ADDR")
    return address


def one_wanted(
    first: str | None, second: str | None, letters: str = "-b and -c", *, not_both: bool = False
) -> None:
    """Raise `UsageWanted` unless one of two options is given. With `not_both`, also raise it if both are given."""
    if not first and not second:
        raise UsageWanted(f"one of {letters} is needed")
    if not_both and first and second:
        raise UsageWanted(f"only one of {letters} is taken")


def number(option: str, text: str | None, default: int, *, least: int = 0, most: int = I32_MAX) -> int:
    """The whole number in an option. Raises `UsageWanted` for anything else, or a number outside `least` to `most`."""
    if text is None:
        return default
    try:
        value = int(text.strip())
    except ValueError:
        raise UsageWanted(f"{option} {text}: not a whole number") from None
    if value < least:
        raise UsageWanted(f"{option} {text}: must be {least} or more")
    if value > most:
        raise UsageWanted(f"{option} {text}: must be {most} or less")
    return value


def boolean(option: str, text: str | None, default: bool = False) -> bool:
    """The value of `true` or `false`, in upper or lower case. Raises `UsageWanted` for anything else."""
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise UsageWanted(f"{option} {text}: must be true or false")
    return text.strip().lower() == "true"


def listed(option: str, text: str | None) -> list[str]:
    """The entries of a list with commas; none without the option. Raises `UsageWanted` for an option without an entry, which a
    script may give by mistake."""
    entries = [entry.strip() for entry in (text or "").split(",") if entry.strip()]
    if text is not None and not entries:
        raise UsageWanted(f"{option} is given without a text")
    return entries


def one_of(option: str, text: str, known: tuple[str, ...]) -> str:
    """The value among `known` that `text` is, in upper or lower case. Raises `UsageWanted` for another text."""
    value = next((each for each in known if each.lower() == text.strip().lower()), None)
    if value is None:
        raise UsageWanted(f"{option} {text}: must be {', '.join(known[:-1])} or {known[-1]}")
    return value
