"""checkMsgSendRT: sends to the queues of a topic in turn, and shows how long each send takes."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import topics
from mqadmin.calls.sending import producer
from mqadmin.command import Argument, admin_command, number, required_namesrv, run
from mqadmin.commands.send_msg_status import BODY_BYTES_MAX
from mqadmin.errors import AdminError
from mqadmin.report import Report, java_text
from mqadmin.timedsends import Timed, mean_of_warm, timed_sends

GROUP = "mqadmin_checkMsgSendRT"
AMOUNT, SIZE = 100, 128
COLUMNS = "{:<32}  {:<4}  {:<20}    {}\n"
HEADING = COLUMNS.format("#Broker Name", "#QID", "#Send Result", "#RT")


def format_send(send: Timed) -> str:
    """A line under HEADING; where nobody answered the queue is not known."""
    queue = send.result.queue if send.result is not None else None
    where = (queue.broker_name, queue.queue_id) if queue is not None else ("-", "-")
    return COLUMNS.format(*where, java_text(send.success), send.ms)


@admin_command(
    "checkMsgSendRT",
    Argument("t", "topic", "topic name", required=True),
    Argument("a", "amount", "message amount | default 100"),
    Argument("s", "size", "message size | default 128 Byte"),
)
def command(namesrvaddr: str | None, topic: str, amount: str | None, size: str | None) -> None:
    namesrv, name = required_namesrv(namesrvaddr), topic.strip()
    count = number("-a", amount, AMOUNT, least=1)
    body = b"a" * number("-s", size, SIZE, least=1, most=BODY_BYTES_MAX)

    async def calls(client: AdminClient, report: Report) -> None:
        await topics.must_have(client, namesrv, name, None)
        report.text(HEADING)
        sends: list[Timed] = []
        async with producer(client, namesrv, GROUP) as sender:
            async for send in timed_sends(client, sender, name, body, count):
                report.text(format_send(send))
                report.add("sends", {"rtMs": send.ms, "success": send.success})
                sends.append(send)
        report.text(f"Avg RT: {mean_of_warm(sends):.2f}\n")
        report.put(average_rt_ms=round(mean_of_warm(sends), 2))
        failed = [send for send in sends if not send.success]
        if failed:
            why = failed[-1].why or "stored, but not safe"
            raise AdminError(f"{len(failed)} of {count} sends failed, the last: {why}")

    run(calls)
