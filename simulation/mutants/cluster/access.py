"""Planted bugs of access control: of what a broker remembers, copies and reads again, and of when it may rely on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from accesscontrol import guard
from accesscontrol.guard import AccessDenied, AccessGuard, Caller
from accesscontrol.policies import Need
from broker.access import needs
from broker.access.requests import PASSED_MS, AccessRequests, Change, fingerprint_of
from broker.clients.requesters import Requesters
from broker.neighbours.agreement import LEASE_MS, LOOK_MS, MetadataReplication
from broker.neighbours.tablecopy import TableCopy
from broker.role.membership import ReplicaRole
from broker.switchover.forwardingstate import Action, ForwardingState
from broker.switchover.passeddeletions import PASSED_ON
from broker.tables.accesstables import AccessTable, RowT
from broker.tables.holders import NO_MASTER, Holders, TablesVersion
from broker.tables.journal import Journal, JournalRecord
from broker.tables.tables import Tables
from messagestore.store.brokerstore import BrokerStore
from mqruntime.waking import wait_event
from remoting.bodies.tables import TablesCopy
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.peer import Peer
from remoting.router import Reply
from simulation.mutants.cluster.bugs import BUGS

bug = BUGS.playing("access")


@bug("rights-remembered-after-changes", AccessGuard, "_forget_former_decisions")
def rights_remembered_after_changes(self: AccessGuard) -> None:
    """A decision about rights counts for ever, as upstream's does for a minute."""


applied = AccessTable.apply


@bug("gone-users-stay", AccessTable, "apply")
def gone_users_stay(self: AccessTable[RowT], changed: Iterable[RowT], gone: Iterable[str]) -> bool:
    """Slaves, and the journal at a restart, delete no user and no policy."""
    return applied(self, changed, ())


@bug("users-missing-from-whole-copies", Tables, "_adopt_access")
def users_missing_from_whole_copies(self: Tables, copy: TablesCopy) -> None:
    """Slaves get users and policies only with changes, and not with all tables."""


@bug("answered-before-leases-end", MetadataReplication, "change_everywhere")
async def answered_before_leases_end(
    self: MetadataReplication, command: RemotingCommand, what: str, make: Callable[[], None]
) -> RemotingCommand:
    """A revocation is answered while slaves that are no members, a former master and its slaves still serve the user."""
    return await self.change(command, what, make)


@bug("deposed-answers-at-once", MetadataReplication, "change_everywhere")
async def deposed_answers_at_once(
    self: MetadataReplication, command: RemotingCommand, what: str, make: Callable[[], None]
) -> RemotingCommand:
    """A master that is deposed while it waits for leases to end answers at once."""
    made_ms = self._clock.monotonic_ms()
    answer = await self.change(command, what, make)
    wanted = self._tables.version
    while answer.code == ResponseCode.SUCCESS and self._role.accepts_sends:
        now_ms = self._clock.monotonic_ms()
        slaves = self._holders.behind(wanted, made_ms - LEASE_MS) and made_ms + LEASE_MS
        until_ms = max(self._role_taken_ms + 2 * LEASE_MS, slaves or 0)
        if now_ms >= until_ms:
            break
        await wait_event(self._news, min(until_ms - now_ms, LOOK_MS))
    return answer


@bug("masters-always-sure", MetadataReplication, "is_sure")
def masters_always_sure(self: MetadataReplication) -> bool:
    """A master serves users for as long as it does not know its successor."""
    return self._role.role is ReplicaRole.MASTER


@bug("lone-masters-are-sure", MetadataReplication, "is_sure")
def lone_masters_are_sure(self: MetadataReplication) -> bool:
    """A master that is alone in its set relies on that, though others may be elected while the set is too small."""
    others = [member for member in self._ha.counted_members() if member != self._role.broker_id]
    epoch, since_ms = self._tables.version.epoch, self._clock.monotonic_ms() - LEASE_MS
    silent = self._holders.silent(others, since_ms, self._hosts(), epoch)
    return self._role.role is ReplicaRole.MASTER and self._ha.agreed_without(silent, epoch)


@bug("arrival-proves-following", MetadataReplication, "_answered_ms")
def arrival_proves_following(self: MetadataReplication, moment: str | None) -> int | None:
    """A master takes a slave's request for a new one when it comes, however long it was on its way."""
    return self._clock.monotonic_ms()


@bug("following-is-not-noticed", MetadataReplication, "_answered_ms")
def following_is_not_noticed(self: MetadataReplication, moment: str | None) -> int | None:
    """A master never knows that its slaves follow it, and puts off all users for ever."""
    return None


@bug("first-copies-unheard", Holders, "behind")
def first_copies_unheard(self: Holders, wanted: TablesVersion, since_ms: int) -> list[int]:
    """A change does not wait for a slave that has just got its first tables, and serves users since."""
    recent = (broker_id for broker_id, heard_ms in self._heard_ms.items() if heard_ms > since_ms)
    return [broker_id for broker_id in recent if (self._held.get(broker_id) or NO_MASTER) < wanted]


@bug("slaves-always-sure", TableCopy, "is_sure")
def slaves_always_sure(self: TableCopy, lease_ms: int) -> bool:
    """A slave that its master does not reach any more serves users by its old tables."""
    return True


refused = AccessGuard.refusal


@bug("passed-on-unchecked", AccessGuard, "refusal")
def passed_on_unchecked(self: AccessGuard, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
    """A master believes that a former master, whose tables may be old, has checked the requests that it passes on."""
    return None if self._is_passed_on(peer) else refused(self, peer, request)


is_signed = guard.is_signed


@bug("former-passwords-pass", guard, "is_signed")
def former_passwords_pass(request: RemotingCommand, secret_key: bytes, *, is_passed_on: bool = False) -> bool:
    """A master believes a former master that a signature is right."""
    return is_passed_on or is_signed(request, secret_key)


@bug("former-masters-name-no-clients", AccessGuard, "name_client")
def former_masters_name_no_clients(
    self: AccessGuard, peer: Peer, requests: Iterable[RemotingCommand]
) -> None:
    """Rights that hold for some hosts count for the former master's host."""


@bug("waiting-pulls-keep-rights", Tables, "on_access_changed")
def waiting_pulls_keep_rights(self: Tables, callback: Callable[[], None]) -> None:
    """A pull that waits for messages gets them although the right was revoked."""


loaded = Journal.load


@bug("journal-forgets-users", Journal, "load")
async def journal_forgets_users(self: Journal, known: int) -> list[JournalRecord]:
    """A restart reads no users and policies from the journal."""
    records = await loaded(self, known)
    for record in records:
        changes = record.changes
        changes.users, changes.users_gone, changes.acls, changes.acls_gone = [], [], [], []
    return records


@bug("repeated-changes-succeed", AccessRequests, "_once")
async def repeated_changes_succeed(
    self: AccessRequests, change: Change, peer: Peer, command: RemotingCommand
) -> Reply:
    """A change that a slave has passed on is not carried out again within some seconds, though it was undone meanwhile."""
    key, now_ms = fingerprint_of(command), self._clock.monotonic_ms()
    if PASSED_ON not in command.ext and now_ms < self._passed.pop(key, 0):
        return command.reply()
    answer = await change(peer, command, PASSED_ON in command.ext)
    if PASSED_ON in command.ext and answer.code == ResponseCode.SUCCESS:
        self._passed[key] = now_ms + PASSED_MS
    return answer


@bug("unsure-brokers-refuse", AccessGuard, "_unless_unsure")
def unsure_brokers_refuse(self: AccessGuard, denied: AccessDenied) -> AccessDenied:
    """A broker with old tables says that a user does not exist, instead of asking the user to come again."""
    return denied


@bug("bodies-hold-records", BrokerStore, "listed_at")
async def bodies_hold_records(self: BrokerStore, physical_offset: int) -> memoryview | None:
    """A client reads bytes in its own message as a record of another topic."""
    return await self.message_at(physical_offset)


@bug("bodies-before-rights", AccessGuard, "_check_some")
def bodies_before_rights(self: AccessGuard, name: str, need: Need, host: str) -> None:
    """A user without any right makes a broker read lists of 4 MiB."""


@bug("halves-for-all-producers", AccessGuard, "allows")
def halves_for_all_producers(self: AccessGuard, caller: Caller, code: int, need: Need) -> bool:
    """Upstream: who joins a group of producers gets its half messages."""
    return True


@bug("one-id-for-all", AccessGuard, "caller")
def one_id_for_all(self: AccessGuard, peer: Peer, request: RemotingCommand) -> Caller:
    """Upstream: a client takes the id of another user's client, and gets its replies."""
    return Caller("anybody", "")


@bug("replies-for-all", AccessGuard, "signer")
def replies_for_all(self: AccessGuard, peer: Peer, request: RemotingCommand) -> str | None:
    """Upstream: the reply to a client that has gone is for the next one with its id."""
    return None


@bug("first-asker-gets-replies", Requesters, "why_not")
def first_asker_gets_replies(
    self: Requesters, client_id: str, peer: Peer, request: RemotingCommand
) -> str | None:
    """A client asks with another user's client id, and its question is stored; the reply is lost."""
    return None


@bug("waited-as-accepted", AccessGuard, "recheck")
def waited_as_accepted(self: AccessGuard, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
    """A request that has waited is served by the rights that it had before."""
    return None


@bug("members-for-ever", AccessGuard, "has_lost")
def members_for_ever(self: AccessGuard, caller: Caller, code: int, needs: Iterable[Need]) -> bool:
    """Who lost the right to read stays in the group, and keeps its share of the queues from the others."""
    return False


@bug("all-topics-include-halves", needs, "holds_all_users_messages")
def all_topics_include_halves(topic: str) -> bool:
    """Upstream: a right for `Topic:*` shows the open transactions and delayed messages of all users."""
    return False


@bug("unsure-masters-refuse", ForwardingState, "unsure")
def unsure_masters_refuse(self: ForwardingState, now_ms: int) -> list[Action]:
    """A replica that pauses for a second makes its master refuse all users."""
    return []
