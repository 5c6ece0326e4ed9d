"""`scripts/cluster`: a local cluster from the command line.

Invariant: a command that fails exits non-zero with one line that says what to do.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from dledger.raft.membership import peer_list
from localcluster.cluster import Cluster, ClusterError, run
from localcluster.layout import BROKER_SET, SEGMENT_BYTES, Layout, LayoutError, Mode
from localcluster.ports import PortsTaken
from localcluster.processes import BooksDamaged
from localcluster.secured import environment_of
from localcluster.status import format_rows, status_rows
from localcluster.waiting import WaitExpired
from mqadmin.errors import AdminError
from mqruntime.certificates import CannotIssue
from mqruntime.tlsfiles import TlsUnusable

DEFAULT_DIRECTORY = Path("run/cluster")
NAMES = f"each broker-N is a replica of broker set {BROKER_SET}; controllers and mqadmin know it by that name and its id"

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=DEFAULT_DIRECTORY,
    show_default=True,
    help="Where the cluster's files, logs and data are.",
)
mode_option = click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.CONTROLLER.value,
    show_default=True,
    help="Of a new cluster: controllers elect the master, or the brokers themselves.",
)
secure_option = click.option(
    "--secure",
    is_flag=True,
    help="Of a new cluster: TLS on all connections, certificates at both ends, and access control.",
)
names_argument = click.argument("names", nargs=-1)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors of the environment into one line and exit code 1."""
    try:
        yield
    except (
        ClusterError,
        LayoutError,
        PortsTaken,
        BooksDamaged,
        WaitExpired,
        AdminError,
        CannotIssue,
        TlsUnusable,
    ) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(unusable(error)) from error


def unusable(error: OSError) -> str:
    """Explain an OSError of a file or folder to the user who named it."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}; name another one, or make it writable and make room"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cluster() -> None:
    """Runs name server, controllers and brokers as processes on free loopback ports; in Raft mode without controllers.

    Processes are called namesrv, controller-0, controller-1, ..., broker-0, broker-1, ... A cluster's
    directory may also be given as the first argument.
    """


@cluster.command()
@directory_option
@mode_option
@secure_option
@click.option(
    "--controllers", default=3, show_default=True, type=click.IntRange(1), help="How many; in Raft mode none."
)
@click.option(
    "--brokers", default=3, show_default=True, type=click.IntRange(1), help="Replicas of the one set."
)
@click.option("--base-port", type=int, help="First of the ports; free ones are found when not given.")
@click.option(
    "--segment",
    default=SEGMENT_BYTES,
    show_default=True,
    type=click.IntRange(4096),
    help="Bytes of a log file.",
)
@click.option("--opt", "broker_options", multiple=True, metavar="KEY=VALUE", help="Setting of every broker.")
@click.option(
    "--copt", "controller_options", multiple=True, metavar="KEY=VALUE", help="Setting of every controller."
)
def up(
    directory: Path,
    mode: str,
    secure: bool,
    controllers: int,
    brokers: int,
    base_port: int | None,
    segment: int,
    broker_options: tuple[str, ...],
    controller_options: tuple[str, ...],
) -> None:
    """Makes a cluster, or starts the one in --dir again, and waits until it is whole."""
    with one_line_errors():
        if (directory / "env.json").exists():
            made = Cluster.open(directory)
        else:
            made = Cluster.create(
                directory,
                controllers=controllers,
                brokers=brokers,
                base_port=base_port,
                segment_bytes=segment,
                broker_settings=parsed_settings(broker_options),
                controller_settings=parsed_settings(controller_options),
                mode=Mode(mode),
                secure=secure,
            )
        run(made)
        click.echo(format_rows(asyncio.run(status_rows(made))), nl=False)
    click.echo(f"{NAMES}")
    click.echo(f"\nname server {made.layout.namesrv}   {electors(made.layout)}")
    click.echo(f"data, logs and *.conf are in {made.directory}")
    if variables := environment_of(made.layout):
        exports = " ".join(f"{name}='{value}'" for name, value in variables.items())
        click.echo(f"for mqadmin and other tools: export {exports}")


@cluster.command()
@names_argument
@directory_option
def status(directory: Path, names: tuple[str, ...]) -> None:
    """Shows every process, its role and how far its log goes."""
    with one_line_errors():
        rows = asyncio.run(status_rows(_open(directory, names)[0]))
    click.echo(format_rows(rows), nl=False)
    click.echo(NAMES)


@cluster.command()
@names_argument
@directory_option
@click.option("--sig", default=int(signal.SIGKILL), show_default=True, help="Number of the signal.")
def kill(directory: Path, names: tuple[str, ...], sig: int) -> None:
    """Sends SIGKILL (or --sig) to the named processes."""
    with one_line_errors():
        found, wanted = _open(directory, names)
        _named(wanted)
        hit = found.kill(wanted, signal.Signals(sig))
    click.echo(f"signalled {', '.join(hit)}" if hit else "none of them was running")


@cluster.command()
@names_argument
@directory_option
def stop(directory: Path, names: tuple[str, ...]) -> None:
    """Stops the named processes gracefully; all processes if none is named."""
    with one_line_errors():
        found, wanted = _open(directory, names)
        stopped = found.stop(wanted)
    click.echo(f"stopped {', '.join(stopped)}" if stopped else "none of them was running")


@cluster.command()
@names_argument
@directory_option
def start(directory: Path, names: tuple[str, ...]) -> None:
    """Starts those of the named processes that do not run; of all processes if none is named."""
    with one_line_errors():
        found, wanted = _open(directory, names)
        started = found.start(wanted)
    click.echo(f"started {', '.join(started)}" if started else "all of them are running")


@cluster.command()
@names_argument
@directory_option
def restart(directory: Path, names: tuple[str, ...]) -> None:
    """Stops the named processes that run, and starts them."""
    with one_line_errors():
        found, wanted = _open(directory, names)
        _named(wanted)
        started = found.restart(wanted)
    click.echo(f"started {', '.join(started)}")


@cluster.command()
@names_argument
@directory_option
def pause(directory: Path, names: tuple[str, ...]) -> None:
    """Freezes the named processes with SIGSTOP."""
    with one_line_errors():
        found, wanted = _open(directory, names)
        for name in _named(wanted):
            found.pause(name)


@cluster.command()
@names_argument
@directory_option
def resume(directory: Path, names: tuple[str, ...]) -> None:
    """Resumes paused processes."""
    with one_line_errors():
        found, wanted = _open(directory, names)
        for name in _named(wanted):
            found.resume(name)


@cluster.command()
@names_argument
@directory_option
@click.option("--lines", default=20, show_default=True, help="How many of each log's last lines.")
def logs(directory: Path, names: tuple[str, ...], lines: int) -> None:
    """Shows the end of the logs of the named processes; of all processes if none is named."""
    with one_line_errors():
        found, wanted = _open(directory, names)
        for name in wanted or found.layout.names:
            found.layout.address(name)  # raises for an unknown name
            click.echo(f"== {name}: {found.log_file(name)}")
            click.echo(found.log_tail(name, lines))


@cluster.command()
@names_argument
@directory_option
@click.option("--remove", is_flag=True, help="Delete the directory with all data, too.")
def down(directory: Path, names: tuple[str, ...], remove: bool) -> None:
    """Stops every process of the cluster."""
    with one_line_errors():
        found, _ = _open(directory, names)
        found.down(remove=remove)
    click.echo(f"stopped; {found.directory} {'is removed' if remove else 'keeps its data'}")


def electors(layout: Layout) -> str:
    """Which processes elect the master, and their addresses."""
    if layout.in_raft_mode:
        return f"members {peer_list(layout.members)}"
    return f"controllers {layout.controller_list}"


def _open(directory: Path, names: tuple[str, ...]) -> tuple[Cluster, list[str]]:
    """The cluster and the names of processes. If the first argument is a cluster's directory, it names the cluster."""
    if names and (Path(names[0]) / "env.json").exists():
        return Cluster.open(Path(names[0])), list(names[1:])
    return Cluster.open(directory), list(names)


def _named(names: list[str]) -> list[str]:
    if not names:
        raise ClusterError("name the processes, for example broker-0; `status` lists them")
    return names


def parsed_settings(options: tuple[str, ...]) -> dict[str, str]:
    """Parse KEY=VALUE options. Raises `ClusterError`."""
    settings: dict[str, str] = {}
    for option in options:
        key, separator, value = option.partition("=")
        if not separator or not key:
            raise ClusterError(f"{option!r} is not KEY=VALUE")
        settings[key] = value
    return settings
