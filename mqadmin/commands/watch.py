"""Live view of broker sets."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import click
from rich.console import Console
from rich.live import Live

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, UsageWanted, admin_command, interval_seconds, run
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqadmin.watch.gather import Gatherer, controllers_of
from mqadmin.watch.screen import WIDTH_MIN, screen
from mqadmin.watch.story import Story
from mqadmin.watch.view import View

INTERVAL_SECONDS = 1.0
TERMINATED = 128 + signal.SIGTERM


class Watch:
    """Takes looks at the broker sets, one after the other. Each look is completed with what earlier looks saw."""

    def __init__(self, gatherer: Gatherer) -> None:
        self._gatherer = gatherer
        self._stories: dict[str, Story] = {}

    async def look(self) -> View:
        view = await self._gatherer.look()
        sets = tuple(
            self._stories.setdefault(row.broker_name, Story()).goes_on(row, view.at_ms) for row in view.sets
        )
        return replace(view, sets=sets)


@admin_command(
    "watch",
    Argument("a", "controllerAddress", "Controller address list; by default what the brokers' settings name"),
    Argument("b", "brokerName", "which broker set; by default all that the name server knows"),
    Argument("c", "clusterName", "which cluster"),
    Argument("i", "interval", "seconds between two looks, 1 by default"),
    Argument("once", "once", "one look, for scripts (also with --json)", is_flag=True),
)
def watch(
    namesrvaddr: str | None,
    controlleraddress: str | None,
    brokername: str | None,
    clustername: str | None,
    interval: str | None,
    once: bool,
) -> None:
    """A live view of broker sets, their controllers and their elections. Not a command of upstream's."""
    seconds = interval_seconds(interval) or INTERVAL_SECONDS
    if not namesrvaddr and not (controlleraddress and brokername):
        raise UsageWanted("give -n (or NAMESRV_ADDR), or both -a and -b")

    async def calls(client: AdminClient, report: Report) -> None:
        watch = Watch(await _gatherer(client, namesrvaddr, controlleraddress, brokername, clustername))
        console = Console()
        if not once and not report.as_json:
            if not console.is_terminal or console.is_dumb_terminal:
                raise AdminError("this is no terminal to draw on; --once prints one look")
            await _live(watch, console, seconds)
        view = await watch.look()
        report.put(view=view)
        if not report.as_json:
            if not console.is_terminal or console.is_dumb_terminal:
                console.width = max(console.width, WIDTH_MIN)
            console.print(screen(view))
        unknown = [row.broker_name for row in view.sets if not row.brokers]
        if view.trouble or unknown:
            raise AdminError(view.trouble or f"no controller or name server knows {', '.join(unknown)}")

    try:
        run(calls)
    except KeyboardInterrupt:
        click.get_current_context().exit(0)  # a watch ends this way
    except asyncio.CancelledError:
        click.get_current_context().exit(TERMINATED)


async def _live(watch: Watch, console: Console, seconds: float) -> None:
    """Draw until Ctrl-C or SIGTERM; both restore the terminal. A look takes at most about one second."""
    drawing = asyncio.current_task()
    assert drawing is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, drawing.cancel)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(screen(await watch.look()), refresh=True)
            await asyncio.sleep(seconds)


async def _gatherer(
    client: AdminClient,
    namesrv: str | None,
    controllers: str | None,
    broker_name: str | None,
    cluster: str | None,
) -> Gatherer:
    """Find the values of missing options: the broker sets from the name server, the controllers from the brokers' settings."""
    names = [broker_name] if broker_name else []
    if not names or not controllers:
        info = await client.cluster_info(namesrv or "")
        sets = [row for row in info.sets_of(cluster) if broker_name in (None, row.broker_name)]
        if not sets:
            raise AdminError(f"{namesrv} knows no such broker set; clusterList shows what is registered")
        names = [row.broker_name for row in sets]
        members = [address for row in sets for address in row.addresses.values()]
        controllers = controllers or await controllers_of(client, members)
    return Gatherer(client, controllers, names, namesrv)
