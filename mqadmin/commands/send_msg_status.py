"""sendMsgStatus: sends to the topic that is named as a broker set is, and shows how long each send takes."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import topics
from mqadmin.calls.sending import as_json, producer
from mqadmin.command import Argument, admin_command, number, required_namesrv, run
from mqadmin.commands.query_by_id import format_sent
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqadmin.timedsends import timed_sends

GROUP = "PID_SMSC"
TEXT = b"hello jodie"
SIZE, COUNT = 128, 50
BODY_BYTES_MAX = 4 << 20


@admin_command(
    "sendMsgStatus",
    Argument(
        "b", "brokerName", "Broker Name e.g. clusterName_brokerName as DefaultCluster_broker-a", required=True
    ),
    Argument("s", "messageSize", "Message Size, Default: 128"),
    Argument("c", "count", "send message count, Default: 50"),
)
def command(namesrvaddr: str | None, brokername: str, messagesize: str | None, count: str | None) -> None:
    namesrv, topic = required_namesrv(namesrvaddr), brokername.strip()
    size = number("-s", messagesize, SIZE, least=1, most=BODY_BYTES_MAX)
    sends = number("-c", count, COUNT, least=1)
    body = TEXT * -(-size // len(TEXT))

    async def calls(client: AdminClient, report: Report) -> None:
        await topics.must_have(client, namesrv, topic, None)
        failed = 0
        why = ""
        async with producer(client, namesrv, GROUP) as sender:
            await sender.send(topic, TEXT)  # opens the connection
            async for send in timed_sends(client, sender, topic, body, sends):
                if send.result is not None:
                    report.text(f"rt={send.ms}ms, SendResult={format_sent(send.result)}")
                    report.add("sends", {"rtMs": send.ms, **as_json(send.result)})
                if not send.success:
                    failed, why = failed + 1, send.why or "stored, but not safe"
        if failed:
            raise AdminError(f"{failed} of {sends} sends failed, the last: {why}")

    run(calls)
