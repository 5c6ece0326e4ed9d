"""`python -m dledger`: runs a member of a group, and sends requests to a group.

Invariant: the exit code is 0 if the work is done, 1 if it is certainly not done, 2 if the command line is invalid, and 3 if the
outcome is unknown. Each failure is reported in one line with a remedy."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import click

from dledger.client import CALL_MS, DLedgerClient, Refused
from dledger.ledger import DLedger
from dledger.node.messagejson import Fields, MessageError
from dledger.raft.errors import NotLeader, OutcomeUnknown, SnapshotDamaged, SnapshotUnknown
from dledger.raft.membership import Change, Step, parsed_peers, peer_list
from dledger.raft.settings import DLedgerSettings
from dledger.service import ClientService
from dledger.storage.inspection import Inspection, differences, inspect
from dledger.storage.keyvalues import BadKeyValues
from dledger.storage.memberfolder import NoMember, read_folder
from mqruntime import log, serve
from mqruntime.clock import SystemClock
from mqruntime.realruntime import real_runtime
from mqruntime.slices import whole
from mqruntime.tls import network_of_environment
from mqruntime.tlsconnector import connector_of_environment
from mqruntime.tlsfiles import TlsUnusable
from mqruntime.toolcredentials import CredentialsUnusable, keys_of_environment
from remoting.client import RemotingClient
from remoting.errors import RemotingError
from remoting.signing import Signer

T = TypeVar("T")

DEFAULTS = DLedgerSettings()
EXIT_UNKNOWN = 3
TERMS_SHOWN = 8


class Unknown(click.ClickException):
    """The outcome is unknown."""

    exit_code = EXIT_UNKNOWN


def members_in(context: click.Context, param: click.Parameter, text: str) -> dict[str, str]:
    """Parses --peers."""
    try:
        found = parsed_peers(text, "--peers")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not found:
        raise click.BadParameter("it names no member")
    return found


def of_group(command: Callable[..., None]) -> Callable[..., None]:
    peers = click.option(
        "--peers",
        required=True,
        metavar="ID-HOST:PORT;...",
        callback=members_in,
        help="All members of the group, the same list everywhere.",
    )
    group = click.option("--group", default="default", show_default=True, help="The group's name.")
    return peers(group(command))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def dledger() -> None:
    """A replicated log. `serve` runs a member; the other commands send requests to a group.

    --peers lists all members, and is the same in every command: "n0-127.0.0.1:20911;n1-127.0.0.1:20912;n2-127.0.0.1:20913"."""


@dledger.command("serve")
@of_group
@click.option("--id", "self_id", required=True, help="The id of this member in --peers.")
@click.option(
    "--store", required=True, type=click.Path(path_type=Path), help="Its folder, which no other member uses."
)
@click.option("--preferred", default="", metavar="ID;...", help="Members that are to lead while they can.")
@click.option("--listen", metavar="HOST", help="Host to listen on, if not the one in --peers.")
@click.option(
    "--pushes-in-flight",
    type=click.IntRange(1, 1024),
    default=DEFAULTS.pushes_in_flight_max,
    show_default=True,
    help="PUSHes in flight to a follower, while this member leads.",
)
@click.option(
    "--bytes-in-flight",
    type=click.IntRange(1),
    default=DEFAULTS.bytes_in_flight_max,
    show_default=True,
    help="Bytes of bodies in them.",
)
@click.option(
    "--push-gap",
    "push_gap_ms",
    type=click.IntRange(0, 1000),
    default=DEFAULTS.push_gap_ms,
    show_default=True,
    metavar="MS",
    help="Wait before a PUSH that is not full follows one in flight.",
)
@click.option("--json-log", is_flag=True, help="Log one JSON object a line.")
def serve_command(
    peers: Mapping[str, str],
    group: str,
    self_id: str,
    store: Path,
    preferred: str,
    listen: str | None,
    pushes_in_flight: int,
    bytes_in_flight: int,
    push_gap_ms: int,
    json_log: bool,
) -> None:
    """Run a member until it is stopped."""
    if self_id not in peers:
        raise click.BadParameter(f"{self_id} is not among {', '.join(peers)}", param_hint="--id")
    wanted = list(filter(None, map(str.strip, preferred.split(";"))))
    if strangers := [name for name in wanted if name not in peers]:
        raise click.BadParameter(
            f"{', '.join(strangers)}: not among {', '.join(peers)}", param_hint="--preferred"
        )
    log.configure(as_json=json_log)
    settings = DLedgerSettings(
        pushes_in_flight_max=pushes_in_flight, bytes_in_flight_max=bytes_in_flight, push_gap_ms=push_gap_ms
    )

    try:
        network = network_of_environment(SystemClock())
    except TlsUnusable as error:
        raise click.UsageError(str(error)) from None

    def make_member() -> DLedger:
        ledger = DLedger(
            self_id=self_id,
            peers=peers,
            group=group,
            runtime=real_runtime(store, network),
            preferred=wanted,
            listens_on=listen,
            settings=settings,
        )
        ClientService(ledger).register()
        return ledger

    sys.exit(serve.run(make_member, [network]))


@dledger.command("append")
@of_group
@click.argument("bodies", nargs=-1, required=True)
@click.option(
    "--timeout", "timeout_ms", type=click.IntRange(1), default=CALL_MS, show_default=True, metavar="MS"
)
def append_command(peers: Mapping[str, str], group: str, bodies: tuple[str, ...], timeout_ms: int) -> None:
    """Append an entry for each of BODIES, in this order. "-" appends an entry for each line of the input."""
    lines = sys.stdin.read().splitlines() if bodies == ("-",) else bodies
    if not all(lines) or not lines:
        raise click.BadParameter("an entry has one byte at least", param_hint="BODIES")
    data = [line.encode(errors="surrogateescape") for line in lines]
    answer = asked(peers, group, lambda client: client.append(data), timeout_ms)
    for number in range(len(data)):
        refusal = answer.refusals.get(number)
        click.echo(f"{answer.first_index + number}" + (f"  refused: {refusal}" if refusal else ""))


@dledger.command("get")
@of_group
@click.argument("index", type=click.IntRange(0))
def get_command(peers: Mapping[str, str], group: str, index: int) -> None:
    """Print the body of the committed entry INDEX. The no-op that opens a term has an empty body."""
    entry = asked(peers, group, lambda client: client.get(index))
    click.echo(entry.body)


@dledger.command("transfer")
@of_group
@click.argument("target", required=False)
def transfer_command(peers: Mapping[str, str], group: str, target: str | None) -> None:
    """Transfer the leadership to TARGET, or to the most up-to-date voter."""
    former = asked(peers, group, lambda client: client.transfer(target))
    click.echo(f"{former} leads already" if former == target else f"{former} has handed over")


@dledger.command("members")
@of_group
def members_command(peers: Mapping[str, str], group: str) -> None:
    """Show the group's members as the leader knows them; --peers may be an older list."""
    found = asked(peers, group, lambda client: client.members())
    by = "the list it was started with" if found["index"] < 0 else f"entry {found['index']}"
    click.echo(f"by {by}" + ("" if found["committed"] else ", not committed yet"))
    for kind in ("voters", "learners"):
        for member, address in found[kind].items():
            click.echo(f"{member:10} {address:22} {kind[:-1]:8} {lag_of(member, found)}".rstrip())


def lag_of(member: str, found: Fields) -> str:
    if member not in found["missing"]:
        return "leads"
    missing = found["missing"][member]
    return "no answer, or no vote yet" if missing is None else f"missing {missing}" if missing else ""


dry_run_option = click.option("--dry-run", is_flag=True, help="Only ask whether the change is allowed.")


@dledger.command("add")
@of_group
@click.argument("newcomer", metavar="ID-HOST:PORT")
@click.option("--level-within", "catch_up_ms", default=60_000, show_default=True, metavar="MS")
@dry_run_option
def add_command(peers: Mapping[str, str], group: str, newcomer: str, catch_up_ms: int, dry_run: bool) -> None:
    """Add a member as a learner, and make the learner a voter once it has caught up.

    Start the new member first. Its --peers must list the group's members and the new member."""
    try:
        ((member, address),) = parsed_peers(newcomer, "ID-HOST:PORT").items()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="ID-HOST:PORT") from None
    if dry_run:
        change = Change(Step.ADD, member, address)
        show_change(asked(peers, group, lambda client: client.change(change, dry_run=True)), would=True)
    else:
        show_change(asked(peers, group, lambda client: client.add(member, address, catch_up_ms)))


@dledger.command("remove")
@of_group
@click.argument("member", metavar="ID")
@dry_run_option
def remove_command(peers: Mapping[str, str], group: str, member: str, dry_run: bool) -> None:
    """Remove a member. If the member leads, it transfers its leadership first. Stop the removed member afterwards."""
    if dry_run:
        change = Change(Step.REMOVE, member)
        show_change(asked(peers, group, lambda client: client.change(change, dry_run=True)), would=True)
    else:
        show_change(asked(peers, group, lambda client: client.remove(member)))


def show_change(found: Fields, *, would: bool = False) -> None:
    click.echo(f"{'is' if would else 'was':9} {listing(found)}")
    click.echo(f"{'would be' if would else 'is':9} {listing(found['after'])}")


def listing(found: Fields) -> str:
    """The voters in the form of --peers, followed by a bar and the learners."""
    learners = peer_list(found["learners"])
    return peer_list(found["voters"]) + (f" | {learners}" if learners else "")


@dledger.command("status")
@of_group
def status_command(peers: Mapping[str, str], group: str) -> None:
    """Show each member's role, term and log; --peers may be an older list. The exit code is 1 if no member leads."""
    rows, addresses = asked(peers, group, status_of)
    click.echo(
        f"{'member':10} {'address':22} {'role':10} {'term':>6} {'first':>9} {'last':>9} {'committed':>9}"
    )
    for member, found in rows.items():
        click.echo(
            f"{member:10} {addresses[member]:22} " + (row(found) if isinstance(found, dict) else str(found))
        )
    if not any(isinstance(found, dict) and found.get("active") for found in rows.values()):
        raise click.ClickException(
            "nobody leads; check that a majority of the members runs, and that they reach each other"
        )


async def status_of(
    client: DLedgerClient,
) -> tuple[dict[str, Fields | RemotingError | Refused], dict[str, str]]:
    """The status and the addresses of all members, also of members that --peers does not name."""
    return await client.status(), client.peers


def row(found: Fields) -> str:
    role = found.get("role", "?") if found.get("active") or found.get("role") != "LEADER" else "BEGINNING"
    numbers = [found.get(name, "?") for name in ("firstIndex", "lastIndex", "committedIndex")]
    return f"{role:10} {found.get('memberTerm', '?'):>6} " + " ".join(f"{number:>9}" for number in numbers)


def asked(
    peers: Mapping[str, str],
    group: str,
    ask: Callable[[DLedgerClient], Awaitable[T]],
    timeout_ms: int = CALL_MS,
) -> T:
    """Returns the result of one call of a client."""

    try:
        connector = connector_of_environment()
        signer = Signer.of(keys_of_environment())
    except (TlsUnusable, CredentialsUnusable) as error:
        raise click.UsageError(str(error)) from None

    async def run() -> T:
        remoting = RemotingClient(
            clock=SystemClock(), network=connector, connect_timeout_ms=timeout_ms, signer=signer
        )
        try:
            return await ask(DLedgerClient(peers, group, remoting, timeout_ms))
        finally:
            await remoting.close()

    try:
        return asyncio.run(run())
    except OutcomeUnknown as error:
        raise Unknown(f"outcome unknown: {error}; check with get or members before you try again") from error
    except (NotLeader, TimeoutError) as error:
        raise click.ClickException(
            "nobody leads, nothing was done; dledger status shows which members answer"
        ) from error
    except (Refused, RemotingError, MessageError) as error:
        raise click.ClickException(str(error)) from error


@dledger.command("inspect")
@click.argument(
    "folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
def inspect_command(folders: tuple[Path, ...]) -> None:
    """Read the stores of members or of Java controllers, and change nothing. Several stores of one group are compared.

    Each of FOLDERS is a member's folder (dledger-n0), or contains a member's folder. The exit code is 1 if a store is
    damaged."""
    found: list[Inspection] = []
    try:
        for folder in folders:
            found.append(whole(inspect(read_folder(folder))))
            click.echo(described(found[-1], folder))
    except (NoMember, BadKeyValues, SnapshotDamaged, SnapshotUnknown, OSError) as error:
        raise click.ClickException(str(error)) from error
    conclude(found)


def conclude(found: Sequence[Inspection]) -> None:
    """Compares several stores. Raises ClickException if a store is damaged, or if two stores contradict each other."""
    wrong = [f"{one.name} is damaged" for one in found if one.damage]
    for one, other in combinations(found, 2):
        wrong += [f"{one.name} and {other.name}: {line}" for line in differences(one, other)]
    if len(found) > 1:
        most = max(found, key=lambda one: (one.last_term, one.last_index))
        click.echo(f"most is held by {most.name}: up to entry {most.last_index} of term {most.last_term}")
    if wrong:
        raise click.ClickException("; ".join(wrong))


def described(found: Inspection, folder: Path) -> str:
    """A description of the store in a few lines for an operator."""
    runs = ", ".join(f"{term} from {first}" for first, term in found.terms[-TERMS_SHOWN:])
    if len(found.terms) > TERMS_SHOWN:
        runs = f"... {runs}"
    count = found.last_index + 1 - found.first_index
    lines = [
        f"{found.name} in {folder}: term {found.term}, voted for {found.voted_for or 'nobody'}",
        f"  entries  {found.first_index} to {found.last_index}, {found.of_java} of them Java's; terms {runs or 'none'}",
        f"  committed up to {found.committed_index} as far as it knew; {found.units} of {count} index units are intact",
    ]
    if found.tail:
        lines.append(f"  behind   {found.tail}; no part of the log")
    if found.damage:
        lines.append(f"  DAMAGED  {found.place}: {found.damage}")
    return "\n".join(lines)
