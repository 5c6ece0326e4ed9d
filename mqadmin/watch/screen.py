"""Draws one look in 80 columns or more.

Invariant: every value fits into its column. Names and numbers are never split; texts are cut."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mqadmin.watch.timelines import began_ms
from mqadmin.watch.view import ControllerView, MemberView, SetView, View, WatchedElection
from remoting.bodies.elections import Election

WIDTH_MIN = 80
UNKNOWN = "-"
WITHOUT_DATE_MS_MAX = 12 * 3_600_000


def screen(view: View, zone: tzinfo | None = None) -> Group:
    """The whole view. Times are in `zone`; None is the local zone. On a low terminal the oldest elections are cut off."""
    parts: list[RenderableType] = []
    if view.trouble:
        parts.append(Text(view.trouble, style="bold red", no_wrap=True, overflow="ellipsis"))
    for row in view.sets:
        parts.append(headline(row, view.at_ms, zone))
        if row.brokers:
            parts.append(brokers(row))
    if view.controllers:
        parts.append(controllers(view.controllers))
    for row in filter(lambda row: row.elections, view.sets):
        if len(view.sets) > 1:
            parts.append(Text(row.broker_name, style="bold", no_wrap=True, overflow="ellipsis"))
        parts.append(elections(row, view.at_ms, zone))
    return Group(*parts)


def headline(row: SetView, at_ms: int, zone: tzinfo | None) -> Text:
    """The line with the master, since when and why it is the master, and the confirm offset."""
    master = row.master
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{row.broker_name}", style="bold").append(
        f" of {row.cluster or '?'} at {clock(at_ms, zone)}: "
    )
    if row.master_epoch is None:
        why = "no broker reports that it leads" if row.elects_itself else "no controller answers"
        text.append(f"master not known, {why}\n", style="bold red")
    elif row.master_address is None:
        text.append(f"NO MASTER, epoch {row.master_epoch}\n", style="bold red")
    else:
        text.append(f"master {row.master_id} {row.master_address}", style="bold green")
        text.append(f", epoch {row.master_epoch}\n")
    if row.master_epoch:
        text.append(f"{'master' if row.master_address else 'nobody'} since {since(row, at_ms, zone)}\n")
    text.append(f"confirm {number(master.confirm_offset if master else None)}, ")
    text.append(f"max {number(master.max_offset if master else None)}; ")
    if row.elects_itself:
        in_sync = [member.broker_id for member in row.brokers if member.in_sync]
        text.append(f"Raft mode, caught up {in_sync} of {len(row.brokers)}")
    elif row.sync_state_set_epoch is None:
        text.append(f"SyncStateSet not known, brokers registered: {len(row.brokers)}")
    else:
        members = [member.broker_id for member in row.brokers if member.in_sync]
        text.append(f"SyncStateSet {members} of {len(row.brokers)}, set epoch {row.sync_state_set_epoch}")
    return text


def since(row: SetView, at_ms: int, zone: tzinfo | None) -> str:
    """A text: when the master was elected, or was lost without a successor, and the reason, as far as they were reported."""
    election = next((one for one in row.elections if one.epoch == row.master_epoch), None)
    why = (reason(election, row.elections) if election else None) or "why is not known"
    if election is not None and election.at_ms is not None:
        return f"{moment(election.at_ms, zone)} ({span(at_ms - election.at_ms)}); {why}"
    if election is not None and election.first_message_ms is not None:
        return f"{moment(election.first_message_ms, zone)} or before; {why}"
    return f"an unknown time; {why}"


def brokers(row: SetView) -> Table:
    """One line per member. A star marks members of the SyncStateSet."""
    table = _table("id", "role", "epoch", "address", "set", ">max offset", ">lag bytes", ">lag ms")
    for member in row.brokers:
        cells = [
            number(member.broker_id),
            member.role or UNKNOWN,
            number(member.epoch),
            member.address,
            {True: "*", False: "", None: "?"}[member.in_sync],
        ]
        if member.trouble:
            dead = "dead" if member.alive is False else "no answer"
            table.add_row(*cells, Text(dead, style="bold red"), "", "")
            continue
        table.add_row(
            *cells,
            number(member.max_offset),
            number(member.lag_bytes),
            number(member.lag_ms),
            style=_style(member),
        )
    return table


def controllers(rows: tuple[ControllerView, ...]) -> Table:
    """A line per controller with its own view of the leader."""
    table = _table("controller", "state", "says that the leader is")
    for row in rows:
        if row.trouble:
            table.add_row(row.address, Text("no answer", style="bold red"), UNKNOWN)
            continue
        leader = f"{row.leader_id} {row.leader_address}" if row.leader_address else "nobody"
        table.add_row(row.address, "leader" if row.is_leader else "follower", leader)
    return table


def reason(election: WatchedElection, others: tuple[WatchedElection, ...]) -> str | None:
    """The reason of the election. After an epoch without a master it is the reason why the master was lost."""
    reported = election.reported
    if reported is None or reported.old_master_id is not None:
        return election.why
    struck_off = next((one for one in others if one.epoch == election.epoch - 1), None)
    if struck_off is None or not struck_off.why:
        return election.why
    return f"{struck_off.why} in epoch {struck_off.epoch}"


def elections(row: SetView, now_ms: int, zone: tzinfo | None) -> Table:
    """The last ten elections, newest first, with their timelines.

    `when` is the moment at which the loss of the former master was noticed, or the election was requested. With a `<` it is
    the time of the epoch's first message. The numbers after it are ms: how long the former master had been `silent` at that
    moment, and how much later each step followed."""
    table = _table(">epoch", "when", "master", ">silent", ">elected", ">sent", ">writable", "why")
    ids = {member.address: member.broker_id for member in row.brokers}
    for one in row.elections:
        reported = one.reported
        table.add_row(
            str(one.epoch),
            _when(one, now_ms, zone),
            change(reported.old_master_id, reported.new_master_id)
            if reported
            else number(ids.get(one.master or "")),
            *(timeline(reported) if reported else ("", "", "", "")),
            one.why or UNKNOWN,
        )
    return table


def change(old_id: int | None, new_id: int | None) -> str:
    """A change as `1 -> 2`, or `-> 1` without a former master, or `1 ->` without a new master."""
    return " ".join(
        ("" if old_id is None else str(old_id), "->", "" if new_id is None else str(new_id))
    ).strip()


def timeline(reported: Election) -> tuple[str, str, str, str]:
    """The timeline as `("400", "+12", "+13", "+95")`: the silence before the election began, and the delay of each later
    step."""
    at_ms = began_ms(reported)
    if at_ms is None:
        return "", "", "", ""
    return (
        "" if reported.heard_ms is None else str(at_ms - reported.heard_ms),
        _later(reported.elected_ms, at_ms),
        _later(reported.notified_ms, at_ms),
        _later(reported.writable_ms, at_ms),
    )


def _later(moment_ms: int | None, since_ms: int) -> str:
    return "" if moment_ms is None else f"{moment_ms - since_ms:+d}"


def _when(one: WatchedElection, now_ms: int, zone: tzinfo | None) -> str:
    at_ms = began_ms(one.reported) if one.reported is not None else None
    if at_ms is not None and abs(now_ms - at_ms) < WITHOUT_DATE_MS_MAX:
        return f"{clock(at_ms, zone)}.{at_ms % 1000:03d}"
    at_ms = at_ms or one.at_ms
    if at_ms is not None:
        return moment(at_ms, zone)
    return UNKNOWN if one.first_message_ms is None else f"<{moment(one.first_message_ms, zone)}"


def _style(member: MemberView) -> str:
    if member.role == "master":
        return "green"
    return "yellow" if member.in_sync is False else ""


def _table(*columns: str) -> Table:
    """A table. Columns whose name begins with `>` are right-aligned. Only the last column may be wrapped."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for name in columns:
        table.add_column(
            name.lstrip(">"),
            justify="right" if name.startswith(">") else "left",
            no_wrap=name != columns[-1],
        )
    return table


def number(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def clock(at_ms: int, zone: tzinfo | None) -> str:
    """A time as `14:20:31`."""
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(zone):%H:%M:%S}"


def moment(at_ms: int, zone: tzinfo | None) -> str:
    """A time as `11-21 14:20:31`."""
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(zone):%m-%d %H:%M:%S}"


def span(length_ms: int) -> str:
    """A duration as `12 s`, `3 min 5 s`, `4 h 10 min` or `6 d 3 h`."""
    seconds = max(length_ms, 0) // 1000
    for size, unit, smaller, name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // smaller} {name}"
    return f"{seconds} s"
