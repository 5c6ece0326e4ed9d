"""Requests about single stored messages: by key or tag (QUERY_MESSAGE, 12) and by offset in the log (VIEW_MESSAGE_BY_ID, 33).

Invariant: only confirmed messages are shown, and only by a broker that serves readers."""

from __future__ import annotations

from accesscontrol.guard import Access
from broker.access.needs import GET, topic_need
from broker.clients.readgate import ReadGate
from broker.clients.refusals import NO_READERS
from messagestore.record import decode
from messagestore.store.brokerstore import BrokerStore
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.messages import QueryMessageHeader, QueryMessageResponseHeader, ViewMessageHeader
from remoting.peer import Peer
from remoting.router import Router

MESSAGES_MAX = 64
TAGS, KINDS = "T", ("K", "U", "T")
"""Values of `index_type`: K for keys, U for unique keys, T for tags. K and U need no separate index."""
UNIQUE_KEY_MESSAGES_MAX = 32
NOT_FOUND = "can not find message, maybe time range not correct"
NOT_FOUND_YET = f"{NOT_FOUND}; index files are being rebuilt, ask again later"
WITHOUT_TAGS = (
    "index files that another version wrote have no tags: messages stored up to {} (ms) may be missing here; a consumer of this"
    " tag finds them"
)


class LookupRequests:
    """The handlers."""

    def __init__(self, store: BrokerStore, reading: ReadGate, access: Access) -> None:
        self._store = store
        self._access = access
        self._reading = reading

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.QUERY_MESSAGE, self._query)
        router.add(RequestCode.VIEW_MESSAGE_BY_ID, self._view)

    async def _query(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        header = QueryMessageHeader.from_ext(command.ext)
        if not self._reading.serves_reads:
            return command.reply(ResponseCode.SYSTEM_BUSY, NO_READERS)
        if header.index_type and header.index_type not in KINDS:
            why = f"indexType={header.index_type}: {', '.join(KINDS)} are known"
            return command.reply(ResponseCode.INVALID_PARAMETER, why)
        by_tag = header.index_type == TAGS and not header.unique_key_query
        count_max = min(max(header.max_num, 1), MESSAGES_MAX)
        if header.unique_key_query:
            count_max = UNIQUE_KEY_MESSAGES_MAX  # the request's limit is for other queries
        records = await self._store.find_by_key(
            header.topic, header.key, count_max, header.begin_timestamp, header.end_timestamp, by_tag=by_tag
        )
        missing_until = self._store.tags_missing_until(header.topic) if by_tag else None
        misses = missing_until is not None and header.begin_timestamp <= missing_until
        remark = WITHOUT_TAGS.format(missing_until) if misses else None
        indexed = QueryMessageResponseHeader(*self._store.last_indexed())
        if not records:
            why = NOT_FOUND if self._store.index_is_filled else NOT_FOUND_YET
            return command.reply(ResponseCode.QUERY_NOT_FOUND, f"{why}; {remark}" if remark else why, indexed)
        return command.reply(remark=remark, header=indexed, body=b"".join(records))

    async def _view(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        offset = ViewMessageHeader.from_ext(command.ext).offset
        record_at = self._store.message_at if self._access.is_super(command) else self._store.listed_at
        record = await record_at(offset) if self._reading.serves_reads else None
        if record is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, f"can not find message by offset: {offset}")
        need = topic_need(decode(record, verify_body=False).topic, GET)
        if (why := self._access.why_not(peer, command, need)) is not None:
            return command.reply(ResponseCode.NO_PERMISSION, why)
        return command.reply(body=bytes(record))
