"""Gives one stored message to one push consumer, and tells what it said of it."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import clients, messages
from mqadmin.calls.topics import Holder
from mqadmin.errors import AdminError
from mqadmin.report import Report, java_text
from mqclient.message import StoredMessage
from remoting.bodies.queues import ConsumeDirectlyResult
from remoting.headers.messages import ConsumeMessageDirectlyHeader

Found = tuple[Holder, StoredMessage]
"""A message, and who has it."""


def format_verdict(result: ConsumeDirectlyResult) -> str:
    """The line of a consumer that was given a message, as upstream's object writes itself."""
    return (
        f"ConsumeMessageDirectlyResult [order={java_text(result.order)}, "
        f"autoCommit={java_text(result.auto_commit)}, consumeResult={result.consume_result}, "
        f"remark={result.remark or 'null'}, spentTimeMills={result.spent_time_mills}]\n"
    )


async def give(client: AdminClient, report: Report, found: Found, group: str, client_id: str) -> None:
    """Has `client_id` consume the message now. Raises `AdminError` where it does not."""
    holder, message = found
    header = ConsumeMessageDirectlyHeader(
        group, client_id, messages.offset_id(message), holder.broker_name, message.topic
    )
    result = await clients.consume_directly(client, holder.address, header)
    report.text(format_verdict(result))
    report.add("results", result)
    if result.consume_result not in ("CR_SUCCESS", "CR_COMMIT"):
        why = f" ({result.remark})" if result.remark else ""
        raise AdminError(f"{client_id} did not consume the message: {result.consume_result}{why}")
