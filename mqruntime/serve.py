"""From a command line to a server that runs until it is stopped.

Invariant: the exit code is the outcome: 0 stopped on request; 1 the server failed (one log line has the reason); 2 the
command line, the configuration, the store root or a file below it is unusable until an operator repairs it (one line, no
traceback); 130 or 143 a second signal cut the stop short."""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from mqruntime import log
from mqruntime.listening import exposure
from mqruntime.logfile import FILE_BYTES, FILES_KEPT, LogFile
from mqruntime.runtime import RestartWanted, StartRefused
from mqruntime.storelock import StoreLocked, StoreUnusable
from mqruntime.tlsfiles import TlsUnusable

if TYPE_CHECKING:
    from mqruntime.network import Network
    from mqruntime.runtime import App, Runtime
    from mqruntime.settings import Settings

DISTRIBUTION = "autoswitch-mq"
EXIT_FAILED = 1
EXIT_USAGE = 2

REMEDIES = {
    errno.ENOSPC: "make room on the disk of the store directory, then start again",
    errno.EDQUOT: "make room within the quota of the store directory, then start again",
    errno.EROFS: "the store directory is mounted read-only; mount it writable, then start again",
    errno.EACCES: "give this user the right to read and write the store directory",
    errno.EMFILE: "too many open files; raise the limit (ulimit -n, LimitNOFILE)",
    errno.EFBIG: "the limit on the size of files is too low; raise it (ulimit -f, LimitFSIZE)",
    errno.ENOMEM: "too little memory, or too many mappings; raise the limit (ulimit -v, vm.max_map_count) or add memory",
    errno.EISDIR: "a folder has the name of a file; move it away, or put the file back",
    errno.ENOTDIR: "a file has the name of a folder; move it away, or put the folder back",
    errno.EIO: "the disk fails; replace it, and let the other members fill a new store",
}

NO_THREAD = "can't start new thread"  # a RuntimeError

logger = logging.getLogger(__name__)

S = TypeVar("S", bound="Settings")


@dataclass(frozen=True)
class ServerPlan:
    """The content of one process: the settings of its servers, the store root of each, and the app, made of a runtime for
    each root, in the same order. Two servers may share a root."""

    settings: Sequence[Settings]
    roots: Sequence[Path]
    make_app: Callable[[Sequence[Runtime]], App]

    @cached_property
    def networks(self) -> list[Network]:
        """The network of each server. Raises SettingsError, TlsUnusable."""
        return [network_of(settings) for settings in self.settings]

    @property
    def warnings(self) -> list[str]:
        """Warnings about the settings, each once."""
        hosts = dict.fromkeys(
            (settings.listens_on, network.protection, settings.checks_users)
            for settings, network in zip(self.settings, self.networks, strict=True)
        )
        exposed = [
            exposure(host, protection, checks_users=checks_users)
            for host, protection, checks_users in hosts
            if host is not None
        ]
        messages = dict.fromkeys(
            warning
            for settings, network in zip(self.settings, self.networks, strict=True)
            for warning in (*settings.warnings, *network.warnings)
        )
        return [*messages, *filter(None, exposed)]


class Planning(Protocol):
    """From the command line's file and `KEY=VALUE` words to a plan. Raises SettingsError."""

    def __call__(self, file: Path | None, overrides: list[str], *, strict: bool) -> ServerPlan: ...


def main(
    name: str,
    settings_class: type[S],
    make_app: Callable[[S, Runtime], App],
    root_of: Callable[[S], Path],
    arguments: Sequence[str] | None = None,
    *,
    asks_name_servers: bool = False,
) -> int:
    """The whole of an `mq*` command that runs one server; returns the process' exit code. With `asks_name_servers` it has
    upstream's option for their addresses."""

    def planned(file: Path | None, overrides: list[str], *, strict: bool) -> ServerPlan:
        return alone(settings_class.load(file, overrides, strict=strict), make_app, root_of)

    return main_of(name, planned, arguments, asks_name_servers=asks_name_servers)


def alone(settings: S, make_app: Callable[[S, Runtime], App], root_of: Callable[[S], Path]) -> ServerPlan:
    """A process of one server."""
    return ServerPlan([settings], [root_of(settings)], lambda runtimes: make_app(settings, runtimes[0]))


def main_of(
    name: str, planned: Planning, arguments: Sequence[str] | None = None, *, asks_name_servers: bool = False
) -> int:
    """The whole of an `mq*` server command; returns the process' exit code."""
    from mqruntime.settings import SettingsError

    chosen = command_line(name, asks_name_servers=asks_name_servers).parse_intermixed_args(arguments)
    if chosen.version:
        sys.stdout.write(f"{name} {_version()}\n")
        return 0
    try:
        where = [f"namesrvAddr={chosen.namesrv}"] if asks_name_servers and chosen.namesrv is not None else []
        plan = planned(chosen.config, [*chosen.overrides, *where], strict=chosen.strict)
        warnings = plan.warnings
    except (SettingsError, TlsUnusable) as error:
        sys.stderr.write(f"{name}: {error}\n")
        return EXIT_USAGE
    if chosen.print:
        sys.stderr.writelines(f"{name}: {warning}\n" for warning in warnings)
        sys.stdout.write("\n".join(settings.effective() for settings in plan.settings))
        return 0
    try:
        log.configure(as_json=chosen.json_log, file=_log_file(chosen))
        for settings in plan.settings:
            for logger_name, path in settings.log_files.items():
                file = LogFile(path, bytes_max=chosen.log_file_size, kept=chosen.log_file_count)
                log.separate(logger_name, file, as_json=chosen.json_log)
    except OSError as error:
        sys.stderr.write(f"{name}: cannot write the log file {error.filename}: {error.strerror}\n")
        return EXIT_USAGE
    for warning in warnings:
        logger.warning(warning)
    return serve(name, plan)


class CommandLine(argparse.ArgumentParser):
    """Reports an error in one line instead of a page of usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message}; {self.prog} -h lists the options\n")


def command_line(name: str, *, asks_name_servers: bool = False) -> CommandLine:
    """The options that every server command shares, and optionally the name servers'; `-c`, `-n` and `-p` are upstream's."""
    parser = CommandLine(name, description=f"Run {name} until it is stopped.")
    parser.add_argument("-c", dest="config", metavar="FILE", type=Path, help="properties file to read")
    parser.add_argument("-p", dest="print", action="store_true", help="print the settings in force and exit")
    if asks_name_servers:
        parser.add_argument(
            "-n", dest="namesrv", metavar="HOST:PORT;...", help="name servers, whatever the file says"
        )
    parser.add_argument("--strict", action="store_true", help="refuse settings that would only be warned of")
    parser.add_argument("--json-log", action="store_true", help="log one JSON object a line")
    parser.add_argument("--log-file", metavar="FILE", type=Path, help="log to FILE, not to standard error")
    parser.add_argument(
        "--log-file-size",
        metavar="BYTES",
        type=_at_least(1),
        default=FILE_BYTES,
        help="rename FILE when it would grow beyond this (%(default)s)",
    )
    parser.add_argument(
        "--log-file-count",
        metavar="N",
        type=_at_least(1),
        default=FILES_KEPT,
        help="keep FILE.1 to FILE.N, the newest old ones (%(default)s)",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="settings that override the file's")
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
        return int(text)

    return number


def _log_file(chosen: argparse.Namespace) -> LogFile | None:
    if chosen.log_file is None:
        return None
    return LogFile(chosen.log_file, bytes_max=chosen.log_file_size, kept=chosen.log_file_count)


def serve(name: str, plan: ServerPlan) -> int:
    """Take the store roots, run the app on uvloop until a signal or a fatal error, return the exit code."""
    from mqruntime.realruntime import real_runtime

    runtimes = [real_runtime(root, network) for root, network in zip(plan.roots, plan.networks, strict=True)]
    locks = {root.resolve(): runtime.lock for root, runtime in zip(plan.roots, runtimes, strict=True)}
    with ExitStack() as held:
        try:
            for lock in locks.values():
                lock.acquire()
                held.callback(lock.release)
        except (StoreLocked, StoreUnusable, OSError) as error:
            sys.stderr.write(f"{name}: {error}\n")
            return EXIT_USAGE
        return run(lambda: plan.make_app(runtimes), plan.networks)


def network_of(settings: Settings) -> Network:
    """The network that `settings` ask for. Raises SettingsError, TlsUnusable."""
    from mqruntime.clock import SystemClock
    from mqruntime.network import PLAIN
    from mqruntime.proxysettings import ProxySettings
    from mqruntime.tlssettings import TlsSettings

    proxies = settings.proxies if isinstance(settings, ProxySettings) else None
    if not isinstance(settings, TlsSettings) or not (settings.names_tls or proxies):
        return PLAIN
    from mqruntime.tls import TlsNetwork

    return TlsNetwork(settings, SystemClock(), proxies)


def run(make_app: Callable[[], App], networks: Sequence[Network] = ()) -> int:
    """Run an app that locks its store root itself on uvloop, until a signal or a fatal error; return the exit code."""
    import uvloop

    raise_open_files_limit()
    return exit_code(uvloop.run(run_app(make_app, networks)))


def raise_open_files_limit() -> None:
    """Use as many open files as the system allows this user: shells and systemd start with a soft limit of 1024, for programs
    that still call select(), but each connection and log segment takes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # macOS rejects an unlimited one; then the soft limit stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def run_app(make_app: Callable[[], App], networks: Sequence[Network] = ()) -> BaseException | None:
    """Make and start the app and let it serve until SIGTERM, SIGINT or its own failure; at RestartWanted, start another one.

    Returns None once it has stopped on request, else the error, logged. A failed app is not stopped gracefully: its process
    ends as in a crash, so nothing on disk claims a clean end."""
    stop_requested = asyncio.Event()
    _on_signals(stop_requested)
    watching = [asyncio.create_task(network.watch(), name="watch-network") for network in networks]
    for watch in watching:
        watch.add_done_callback(_watch_ended)
    try:
        while isinstance(failure := await _serve_until_stopped(make_app(), stop_requested), RestartWanted):
            logger.info("starting again")
    except Exception as error:
        failure = error
    finally:
        for watch in watching:
            watch.cancel()
    if failure is not None:
        bug = failure if is_bug(failure) else None
        logger.critical("fatal: %s", explain(failure), exc_info=bug)
    return failure


def _watch_ended(watch: asyncio.Task[None]) -> None:
    if not watch.cancelled() and (error := watch.exception()) is not None:
        logger.error("TLS files are no longer watched; restart", exc_info=error)


async def _serve_until_stopped(app: App, stop_requested: asyncio.Event) -> BaseException | None:
    serving = asyncio.create_task(_serve_until_failed(app), name="serve")
    signalled = asyncio.create_task(stop_requested.wait(), name="wait-for-signal")
    await asyncio.wait([serving, signalled], return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        signalled.cancel()
        failure = await serving
        if isinstance(failure, RestartWanted):
            await app.stop()
        return failure
    serving.cancel()
    await asyncio.wait([serving])
    await app.stop()
    logger.info("stopped")
    return None


async def _serve_until_failed(app: App) -> BaseException:
    await app.start()
    return await app.wait_failed()


def explain(error: BaseException) -> str:
    """The text of a typed error, with the type's name where the text alone says little, and with the remedy where the
    operating system refused."""
    if isinstance(error, OSError) and error.errno in REMEDIES:
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{where}: {REMEDIES[error.errno]}"
    if is_scarcity(error):
        return "no memory or no thread is available; raise the limits (ulimit -v, ulimit -u, TasksMax) or add memory"
    text = str(error)
    return f"{type(error).__name__}: {text}" if is_bug(error) or not text else text


def exit_code(failure: BaseException | None) -> int:
    """The process' exit code; an operator must correct an unusable setting or a damaged file, and no restart helps."""
    from mqruntime.settings import SettingsError

    if failure is None:
        return 0
    return EXIT_USAGE if isinstance(failure, SettingsError | StartRefused) else EXIT_FAILED


def is_bug(error: BaseException) -> bool:
    """Built-in errors other than the operating system's come from a bug: their traceback is logged."""
    return type(error).__module__ == "builtins" and not isinstance(error, OSError) and not is_scarcity(error)


def is_scarcity(error: BaseException) -> bool:
    """Refusals of the operating system that Python reports as other errors than OSError."""
    return isinstance(error, MemoryError) or str(error) == NO_THREAD


def _on_signals(stop_requested: asyncio.Event) -> None:
    def received(number: int) -> None:
        if stop_requested.is_set():
            os._exit(128 + number)  # second signal: exit now
        logger.info("stopping on %s", signal.Signals(number).name)
        stop_requested.set()

    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # keep nohup's choice
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, received, number)


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "not installed"
