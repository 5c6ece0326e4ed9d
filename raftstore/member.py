"""A Raft-mode broker as a member of its group: the DLedger node with the broker's log, and the port for the other members.

Invariant: the node's files are open before the node takes part in the group, and stay open until the store over them has
stopped. Only a serving leader answers requests for its client address."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from dledger.ledger import yield_to_preferred
from dledger.node.listener import NodeListener
from dledger.node.memberservice import MemberService
from dledger.node.node import DLedgerNode
from dledger.raft.actions import Role
from dledger.raft.errors import NotLeader
from dledger.raft.messages import ResultCode
from dledger.raft.settings import DLedgerSettings
from messagestore.store.settings import StoreSettings
from mqruntime.clock import Clock
from mqruntime.runtime import Runtime
from mqruntime.tasks import Tasks
from raftstore.divide import Divide, decode_divide
from raftstore.framing import position_in_body
from raftstore.recentcommits import RecentCommits
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import HeaderError, NotSent, RemotingError
from remoting.headers.group import ExchangeHAInfoHeader, ReadLogHeader
from remoting.peer import Peer
from remoting.router import Router
from remoting.server import RemotingServer
from remoting.signing import Signer

logger = logging.getLogger("raftstore.member")

CONNECT_TIMEOUT_MS, ASK_TIMEOUT_MS, PIECE_TIMEOUT_MS = 1_000, 1_000, 5_000
ENTRY_ROOM_BYTES = 64
"""Space in a file with a single entry for the entry's header and the blank after it."""


class PieceRefused(Exception):
    """Another member rejects the request for a piece of its log; the error's text names the reason."""


class Behind(NamedTuple):
    """A member's lag behind the leader: the known end of the member's log, the number of missing entries, the time since the
    last answer, and whether the member holds the commit index of a moment ago."""

    held_end: int
    missing: int
    silent_ms: int
    is_caught_up: bool


def ledger_settings(
    store: StoreSettings, *, pending_max: int, checks_addresses: bool, certificate_role: str = ""
) -> DLedgerSettings:
    """Raft settings for a broker with these store settings. The timing is the same for all groups. A master whose process ends
    is replaced at once, when its connections end. Only a master that hangs, or whose host is gone, costs the 1 to 2 s of the
    election timeout. A shorter timeout would depose masters with slow disks at the highest load."""
    file_bytes = store.mapped_file_size_commit_log
    return DLedgerSettings(
        data_file_bytes=file_bytes,
        entry_bytes_max=file_bytes - ENTRY_ROOM_BYTES,  # the store limits the size of messages
        pending_proposals_max=pending_max,
        checks_addresses=checks_addresses,
        certificate_role=certificate_role,
        same_positions=True,
    )


async def no_reason() -> str | None:
    return None


class Member(NodeListener):
    """`peers` maps the id of each member to the member's "host:port". This member listens at its own address, or on the host
    `listens_on`. A leader that is not in `preferred` transfers leadership to a member in `preferred` once that member has
    caught up."""

    def __init__(
        self,
        *,
        self_id: str,
        peers: Mapping[str, str],
        group: str,
        preferred: Collection[str],
        listens_on: str | None,
        settings: DLedgerSettings,
        runtime: Runtime,
        on_fatal: Callable[[BaseException], None],
        why_no_members: Callable[[Collection[str]], str | None] = lambda ids: None,
        signer: Signer | None = None,
    ) -> None:
        """`why_no_members(ids)` is called for NodeListener.refusal_of_ids."""
        self._on_fatal = on_fatal
        self._why_no_members = why_no_members
        self.address = peers[self_id]
        """This member's address in the list of members; kept while the member joins, and after it was removed."""
        self.group = group
        self._preferred = frozenset(preferred)
        self._clock: Clock = runtime.clock
        self._tasks = Tasks(on_fatal)
        self._client = RemotingClient(
            clock=runtime.clock, network=runtime.network, connect_timeout_ms=CONNECT_TIMEOUT_MS, signer=signer
        )
        self._readable: Callable[[int], None] = lambda end: None
        self._replaced: Callable[[int], None] = lambda position: None
        self._restarted: Callable[[], None] = lambda: None
        self._unreadable: Callable[[int], None] = lambda index: None
        self._role_changed: Callable[[], None] = lambda: None
        self._hands_over: Callable[[bool], None] = lambda begins: None
        self._forgetful: Callable[[], None] = lambda: None
        self._clients_at: Callable[[], str | None] = lambda: None
        self._recent_commits = RecentCommits()
        self.node = DLedgerNode(
            self_id=self_id,
            peers=peers,
            group=group,
            runtime=runtime,
            client=self._client,
            settings=settings,
            listener=self,
            state_machine=None,
            position_in_body=position_in_body,
        )
        self.router = Router(on_fatal=on_fatal)
        self.node.register(self.router)
        self._before_change: Callable[[], Awaitable[str | None]] = no_reason
        MemberService(self.node, group, before_change=lambda: self._before_change()).register(self.router)
        self.router.add(RequestCode.EXCHANGE_BROKER_HA_INFO, self._on_where_request)
        host, _, port = self.address.rpartition(":")
        self._server = RemotingServer(
            self.router,
            host=listens_on or host,
            port=int(port),
            clock=runtime.clock,
            network=runtime.network,
        )

    def set_listeners(
        self,
        *,
        readable: Callable[[int], None],
        replaced: Callable[[int], None],
        restarted: Callable[[], None],
        unreadable: Callable[[int], None],
    ) -> None:
        """Set the callbacks. `readable`: the log is readable up to a new end. `replaced`: another member's log, which begins at
        a position, is about to replace this log. `restarted`: it has replaced this log. `unreadable`: an entry that a follower
        is missing is unreadable."""
        self._readable, self._replaced, self._restarted = readable, replaced, restarted
        self._unreadable = unreadable

    def on_role(self, callback: Callable[[], None]) -> None:
        """Call `callback` when this member leads and begins to serve, and when it stops leading."""
        self._role_changed = callback

    def on_hand_over(self, callback: Callable[[bool], None]) -> None:
        """Call `callback(True)` when this leader is about to transfer leadership, for any reason, and `callback(False)` if the
        transfer fails."""
        self._hands_over = callback

    def on_forgetful(self, callback: Callable[[], None]) -> None:
        """Call `callback` when this member may have forgotten Raft messages that it sent: it rejoins the group, or its disk was
        set back."""
        self._forgetful = callback

    def before_change(self, why_not: Callable[[], Awaitable[str | None]]) -> None:
        """Await `why_not()` before a change of voters. None allows the change; any other result is the reason that the caller
        gets."""
        self._before_change = why_not

    def serves_clients_at(self, address: Callable[[], str | None]) -> None:
        """Set the function that returns this member's address for clients; it returns None while the member serves no clients
        as a master."""
        self._clients_at = address

    # Lifecycle

    async def serve(self) -> None:
        """Take part in the group. Raises AddressInUse, CannotListen."""
        await self._server.start()
        await self.node.start()
        if self._preferred and self.self_id not in self._preferred:
            self._tasks.start(
                yield_to_preferred(self.node, self._preferred, self.node.transfer_leadership),
                name="raft-preferred",
            )

    async def hand_over(self) -> None:
        """Transfer leadership to another member, if this member leads and another member can take over."""
        if await self.node.transfer_leadership() is ResultCode.SUCCESS:
            logger.info("handed over to %s", self.node.leader_id)

    async def close(self) -> None:
        """Stop taking part in the group, and close the files. A leader transfers leadership first, so that the group need not
        wait for an election timeout."""
        await self._tasks.stop()
        await self.node.transfer_leadership()
        await self.node.stop()
        await self._server.stop()
        await self._client.close()

    # The group

    @property
    def self_id(self) -> str:
        return self.node.self_id

    @property
    def term(self) -> int:
        return self.node.term

    @property
    def leads(self) -> bool:
        """Whether this member leads and serves."""
        return self.node.is_active

    @property
    def leader_id(self) -> str | None:
        return self.node.leader_id

    def members(self) -> list[str]:
        return sorted(self.node.peers)

    def voters(self) -> frozenset[str]:
        """The voters of the newest list of members in this member's log."""
        core = self.node.core
        return frozenset() if core is None else frozenset(core.membership.members.voters)

    def is_majority(self, members: Collection[str]) -> bool:
        """Whether `members` contain a majority of the voters. Majorities of two consecutive lists always have a member in
        common."""
        core = self.node.core
        return core is not None and len(self.voters() & set(members)) >= core.membership.members.quorum

    @property
    def counts(self) -> bool:
        """Whether this member counts in majorities: it is not recovering, so it remembers all Raft messages that it sent."""
        core = self.node.core
        return core is not None and core.counts

    def is_bound_to(self, term: int) -> bool:
        """Whether this member follows no leader of a term below `term` any more, not even after a restart, and knows no newer
        term."""
        return self.counts and self.node.term == term == self.node.store.term_file.term

    async def still_leads(self) -> bool:
        """Whether a majority, asked now, confirms that this member leads."""
        try:
            await self.node.read_barrier(ASK_TIMEOUT_MS)
        except NotLeader:
            return False
        return True

    async def ask(self, member: str, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """The reply of `member`, which is asked at its address in the list. Raises RemotingError."""
        address = self.node.peers.get(member)
        if address is None:
            raise NotSent(member, "it is no member any more")
        return await self._client.call(address, request, timeout_ms)

    async def where_leader_serves(self) -> str | None:
        """The leader's address for clients, as the leader itself reports it; None without a serving leader. If another member
        listens at the leader's address, it does not answer for the leader."""
        address = self.node.leader_address
        if address is None:
            return None
        request = RemotingCommand.request(RequestCode.EXCHANGE_BROKER_HA_INFO)
        try:
            reply = await self._client.call(address, request, ASK_TIMEOUT_MS)
            if reply.code != ResponseCode.SUCCESS:
                return None
            return ExchangeHAInfoHeader.from_ext(reply.ext).master_address
        except (RemotingError, HeaderError) as error:
            logger.debug("leader's client address unknown: %s", error)
            return None

    def _on_where_request(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        address = self._clients_at() if self.leads else None
        if address is None:
            return command.reply(
                ResponseCode.SYSTEM_ERROR, "this member does not lead, or does not serve yet"
            )
        return command.reply(header=ExchangeHAInfoHeader(self.address, self.node.readable()[1], address))

    def others(self) -> list[str]:
        """The other members, the leader first."""
        leader = self.leader_id
        return sorted(self.node.peers.keys() - {self.self_id}, key=lambda each: (each != leader, each))

    async def piece(self, member: str, offset: int, size: int) -> bytes:
        """Up to `size` bytes of `member`'s log from `offset` on; fewer if a file, or the committed part, ends before.

        Raises: RemotingError; PieceRefused if `member` returns no bytes."""
        request = RemotingCommand.request(RequestCode.DLEDGER_READ_LOG, ReadLogHeader(offset, size))
        reply = await self.ask(member, request, PIECE_TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise PieceRefused(reply.remark or f"code {reply.code}")
        if not reply.body:
            raise PieceRefused("the reply is empty")
        return bytes(reply.body)

    async def fetch_divide(self, member: str) -> Divide:
        """The boundary of `member`'s plain log. Raises what `piece` raises, BadKeyValues, QueueEndsUnreadable."""
        return decode_divide(f"the reply of {member}", await self.piece(member, 0, 0))

    def end_of(self, index: int) -> int:
        """End of entry `index` according to the index files, which also list corrupt entries. If the index files do not list
        the entry, because it is before the log's start or lost, the log's start."""
        log = self.node.store.log
        assert log is not None
        unit = log.unit(index)
        return self.node.log_begin() if unit is None else unit.end

    def ends_up_to(self, index: int) -> list[int]:
        """Ends of entry `index` and of at most two entries before it. Entries that are missing in the index files are left out.
        For entries before the log's first entry the list begins with the log's start."""
        log = self.node.store.log
        assert log is not None
        units = [log.unit(each) for each in range(max(index - 2, log.begin.index + 1), index + 1)]
        begins = [self.node.log_begin()] if index - 2 <= log.begin.index else []
        return begins + [unit.end for unit in units if unit is not None]

    def behind(self) -> dict[str, Behind]:
        """Lag of each other member, if this one leads."""
        core = self.node.core
        if core is None or not self.leads:
            return {}
        now_ms = self._clock.monotonic_ms()
        committed = self._recent_commits.index(now_ms)
        return {
            peer: Behind(
                self.end_of(min(known.match_index, core.durable_index)),
                self.node.last_index - known.match_index,
                now_ms - known.heard_ms,
                known.match_index >= committed,
            )
            for peer, known in core.progress.items()
        }

    # The methods of dledger.node.listener.NodeListener

    def readable_to(self, end: int) -> None:
        assert self.node.core is not None
        self._recent_commits.note(self.node.core.committed_index, self._clock.monotonic_ms())
        self._readable(end)

    def role_changed(self, role: Role, term: int) -> None:
        self._role_changed()

    def failed(self, error: BaseException) -> None:
        self._on_fatal(error)

    def log_replaced(self, position: int) -> None:
        self._replaced(position)

    def log_restarted(self, position: int) -> None:
        self._restarted()

    def entry_unreadable(self, index: int) -> None:
        self._unreadable(index)

    def transfer_began(self) -> None:
        self._hands_over(True)

    def transfer_failed(self) -> None:
        self._hands_over(False)

    def memory_lost(self) -> None:
        self._forgetful()

    def refusal_of_ids(self, ids: Collection[str]) -> str | None:
        return self._why_no_members(ids)
