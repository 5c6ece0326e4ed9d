"""Passes one stored message to one push consumer, and prints the result that the consumer returns."""

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
"""A message, and the broker that has it."""


def format_verdict(result: ConsumeDirectlyResult) -> str:
    """The line for a consumer's result, in the format of toString of upstream's object."""
    return (
        f"ConsumeMessageDirectlyResult [order={java_text(result.order)}, "
        f"autoCommit={java_text(result.auto_commit)}, consumeResult={result.consume_result}, "
        f"remark={result.remark or 'null'}, spentTimeMills={result.spent_time_mills}]\n"
    )


async def give(client: AdminClient, report: Report, found: Found, group: str, client_id: str) -> None:
    """Let `client_id` consume the message now. Raises `AdminError` if it does not."""
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
