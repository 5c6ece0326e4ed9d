"""Shows a message, in the same way for every query command: its fields, a file with its body, and its tracks (its outcome in
each consumer group).

Invariant: if the groups of the topic cannot be found, the rest is shown, and a line says that the groups are unknown."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.bodyfiles import save_body
from mqadmin.calls import messages
from mqadmin.calls.tracks import tracks
from mqadmin.command import UsageWanted
from mqadmin.errors import AdminError
from mqadmin.report import Report, plain
from mqclient.message import StoredMessage

BODY_FORMAT_HELP = "print message body by the specified format"


def check_format(option: str, name: str | None) -> None:
    """Raise `UsageWanted` for an unknown character set. The error names the option."""
    try:
        b"\x80".decode(name or "UTF-8", errors="replace")  # decoding empty bytes would check nothing
    except (LookupError, ValueError):
        raise UsageWanted(f"{option} {name}: no known character set") from None


async def show_message(
    client: AdminClient, report: Report, namesrv: str, message: StoredMessage, body_format: str | None
) -> None:
    """The block, the file with the body (and its text in `body_format`), and a line for each group."""
    report.text(messages.format_message(message))
    body = messages.shown_body(report, message)
    if not report.as_json:
        path = save_body(message.message_id, messages.offset_id(message), body)
        report.text(f"{'Message Body Path:':<20} {path}\n")
    if body_format:
        report.text(f"{'Message Body:':<20} {body.decode(body_format, errors='replace')}\n")
    shown = messages.as_json(message)
    report.text("\n\n")
    try:
        found = await tracks(client, namesrv, message)
    except AdminError as error:
        report.note(f"the groups of the topic are not shown: {error}")
        report.add("messages", shown)
        return
    report.text("".join(f"{track}\n" for track in found) or "WARN: No Consumer\n")
    report.add("messages", shown | {"tracks": plain(found)})
