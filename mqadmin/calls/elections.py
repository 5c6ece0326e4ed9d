"""One controller's view of its group and of the last elections: CONTROLLER_GET_METADATA_INFO (1005)."""

from __future__ import annotations

import orjson

from mqadmin.admin import AdminClient, body_of
from mqadmin.replies import ControllerMetadata
from remoting.bodies.elections import Elections
from remoting.codes import RequestCode


async def metadata_and_elections(
    client: AdminClient, controller: str, broker_names: list[str]
) -> tuple[ControllerMetadata, Elections]:
    """The view of any member, leader or not. Upstream's controllers return no elections. Raises `AdminError`."""
    reply = await client.ask(
        controller, RequestCode.CONTROLLER_GET_METADATA_INFO, body=orjson.dumps(broker_names)
    )
    elections = body_of(Elections, controller, reply) if reply.body else Elections()
    return ControllerMetadata.from_ext(reply.ext), elections
