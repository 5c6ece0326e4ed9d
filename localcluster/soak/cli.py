"""`scripts/soak`: a soak from the command line, with a page, a verdict and an exit code.

Invariant: the exit code is 0 only if every verdict holds. Whatever happens, every started process is ended."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path

import click

from localcluster.cli import one_line_errors, parsed_settings
from localcluster.cluster import Cluster
from localcluster.layout import HOST_BEHIND_RELAY, SEGMENT_BYTES, Mode
from localcluster.relayprocess import RelayProcess
from localcluster.soak.plan import SoakPlan, reserved_s_for
from localcluster.soak.soak import Soak, SoakEnd
from localcluster.soak.strikekinds import OF_CONTROLLERS, StrikeKind, kinds_for

NAMES = {kind.name.lower().replace("_", "-"): kind for kind in StrikeKind}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--hours",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="How long; fractions too.",
)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.CONTROLLER.value,
    show_default=True,
    help="Controllers elect the master, or the brokers themselves, without controllers.",
)
@click.option("--seed", default=1, show_default=True, help="Decides the faults, their times and durations.")
@click.option(
    "--out",
    "page_file",
    default=Path("soak.html"),
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The page.",
)
@click.option(
    "--rate",
    default=200.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Messages a second.",
)
@click.option(
    "--body", default=8192, show_default=True, type=click.IntRange(64, 1 << 20), help="Mean bytes of a body."
)
@click.option(
    "--segment",
    default=SEGMENT_BYTES,
    show_default=True,
    type=click.IntRange(1 << 16),
    help="Bytes of a log file.",
)
@click.option(
    "--reserved",
    type=click.IntRange(1),
    help="Seconds for which the log is kept; default: a twelfth of the run, at least 60.",
)
@click.option(
    "--only",
    "only",
    multiple=True,
    type=click.Choice(list(NAMES)),
    help="Strikes of this kind; may be given again.",
)
@click.option("--opt", "options", multiple=True, metavar="KEY=VALUE", help="Setting of every broker.")
@click.option("--keep", is_flag=True, help="Leave the cluster's directory behind.")
def soak(
    hours: float,
    mode: str,
    seed: int,
    page_file: Path,
    rate: float,
    body: int,
    segment: int,
    reserved: int | None,
    only: tuple[str, ...],
    options: tuple[str, ...],
    keep: bool,
) -> None:
    """Runs a new cluster under steady load and retention with repeated faults, and draws its resource use.

    Three controllers and three brokers, or three brokers in Raft mode, are killed, stopped, paused, replaced and cut off, one
    after the other, in an order that the seed decides. It passes if no acknowledged message is lost in the part that retention
    has left, and none was removed too young; if memory, descriptors and disk usage stay flat; if no process ended by itself and
    none logged an error. Ctrl-C ends it with exit code 130; its page is there.
    """
    seconds = hours * 3600
    controllers = mode != Mode.RAFT
    kinds = tuple(NAMES[name] for name in only) or kinds_for(controllers=controllers)
    if not controllers and OF_CONTROLLERS & {*kinds}:
        raise click.UsageError("in Raft mode there are no controllers to be struck")
    plan = SoakPlan(seconds, seed, rate, body, segment, reserved or reserved_s_for(seconds), kinds)
    try:
        with one_line_errors():
            page_file.touch()  # if it is not writable, fail now and not after an hour
            end = _on_new_cluster(plan, Mode(mode), parsed_settings(options), page_file, keep)
    except KeyboardInterrupt:
        raise SystemExit(SoakEnd.INTERRUPTED.value) from None
    raise SystemExit(end.value)


def _on_new_cluster(
    plan: SoakPlan, mode: Mode, settings: dict[str, str], page_file: Path, keep: bool
) -> SoakEnd:
    for number in (signal.SIGTERM, signal.SIGHUP):  # handled as Ctrl-C
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    directory = Path(tempfile.mkdtemp(prefix="autoswitch-mq-soak-"))
    click.echo(f"new cluster in {directory}; {page_file} is written as it goes")
    end = SoakEnd.INTERRUPTED
    cluster = Cluster.create(
        directory,
        mode=mode,
        bind_host=HOST_BEHIND_RELAY,
        segment_bytes=plan.segment_bytes,
        broker_settings={**plan.broker_settings(), **settings},
    )
    try:
        cluster.start()
        with RelayProcess(cluster) as relay:
            run = Soak(cluster, relay, plan, page_file, click.echo)
            end = asyncio.run(run.run())
        for row in run.rows():
            mark = {True: "holds ", False: "BROKEN", None: "-     "}[row.holds]
            click.echo(f"{mark} {row.what}: {row.text}")
        for heading, lines in run.details()[:2]:
            for line in lines:
                click.echo(f"{heading}: {line}")
        click.echo(f"{end.name.lower()}; drawn in {page_file}")
        return end
    finally:
        kept = keep or end is not SoakEnd.PASSED
        cluster.down(remove=not kept)
        if kept:
            click.echo(f"logs and data are in {directory}")


if __name__ == "__main__":
    soak(prog_name="soak")
