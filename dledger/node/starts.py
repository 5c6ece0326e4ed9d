"""The start numbers of one running member: read, drawn, kept, and what follows from those that others have heard.

Invariant: a message is acted upon once the first number of its sender's life is durable here, unless the disk is full; a member
whose disk was set back draws no number above the one that others heard before it is durable that it is a newcomer.

What the log says of a member that may not vote: why, for whom it waits, and when it is over.

Invariant: a line when it begins, one every half minute, one at the end; none for a member that may vote from its start."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Sequence

from dledger.raft.actions import Action, Forgot, Vote
from dledger.raft.raft import Raft
from dledger.raft.rejoin import RejoinState
from dledger.raft.startnumbers import LIFE_MAX, Start, StartNumbers
from dledger.storage.hardstate import StartsFile
from mqruntime.diskfull import RetriedWrite
from mqruntime.log import fields
from mqruntime.smallfiles import SmallFiles
from mqruntime.tasks import Tasks

logger = logging.getLogger(__name__)

DRAW_EVERY_MS = 2_000
"""An image of a folder that is in use is known as one when it is older than this, two heartbeats, and this once more, in which
others keep what they heard."""
CURE = (
    "it votes again once all others have answered and a leader has caught it up; if its newest disk is there, stop it and "
    "start that one instead"
)


class Starts:
    """`take` performs the actions of one turn of `core`."""

    def __init__(
        self,
        files: SmallFiles,
        name: str,
        self_id: str,
        *,
        chance: random.Random,
        tasks: Tasks,
        members: Callable[[], Collection[str]],
        take: Callable[[Callable[[int], Sequence[Action]]], None],
        on_memory_lost: Callable[[], None],
    ) -> None:
        self._file = StartsFile(files, name, self_id)
        self._chance = chance
        self._tasks = tasks
        self._members = members
        self._take = take
        self._on_memory_lost = on_memory_lost
        self._write = RetriedWrite(logger, f"{name} cannot be written, trying on", server="member")
        self._writing = asyncio.Lock()
        self._drawing = False
        self._is_stale = False
        """More is known of others than the file has."""
        self._core: Raft | None = None
        self._is_newcomer = False
        """And that is durable, or follows from the empty disk."""
        self.numbers = StartNumbers(self_id, None, {}, life=0)

    async def open(self) -> None:
        """Raises OSError."""
        self.numbers = await self._file.load(life=self._chance.randint(1, LIFE_MAX))

    def begin(self, core: Raft) -> None:
        """What the disk has is known, and this member takes part from now on."""
        self._core = core
        self._is_newcomer = core.rejoin.newcomer
        if self._is_newcomer:
            self._on_memory_lost()
        self._tasks.start(self._run(), name=f"dledger-starts {self.numbers.self_id}")

    @property
    def text(self) -> str:
        return self.numbers.text

    def members_changed(self) -> None:
        self.numbers.members_are(self._members())

    def persisted(self, vote: Vote) -> None:
        """It is durable."""
        self._is_newcomer = vote.newcomer

    def close(self) -> None:
        """This member has ended: nothing is drawn any more."""
        self._core = None

    # What others say

    async def heed(self, sender: str, text: str) -> bool:
        """`sender` has heard `text`; a stranger changes nothing. False: what it says is of a life of it that is over, or of a
        disk that was set back, or this member has failed."""
        core, members = self._core, self._members()
        if core is None or sender not in members:
            return True
        heard = self.numbers.hear(sender, text, members)
        of_former_life = self.numbers.is_of_former_life(sender)
        if self.numbers.set_back and not core.rejoin.newcomer:
            self._was_set_back(core, sender)
        elif self.numbers.set_back and core.proven:
            self._take(core.set_back)
        elif not core.proven and not core.proving.has_heard(sender):
            self._take(lambda now_ms: core.vouched(sender, now_ms))
        if heard.others:
            self._is_stale = True
        if heard.sender_began:
            self._take(lambda now_ms: core.restarted(sender, now_ms))
            try:
                await self._write.attempt(self._store(None))
            except OSError as error:
                self._tasks.fail(error)
                return False
        return not of_former_life

    def _was_set_back(self, core: Raft, sender: str) -> None:
        own, claimed = self.numbers.own, self.numbers.claimed
        logger.error(
            "self=%s the disk of this member was set back to an earlier image: %s has heard of its start %d, and the disk "
            "has %d; it counts as emptied, and %s",
            self.numbers.self_id, sender, claimed.number, own.number, CURE,
            extra=fields(event="disk_set_back", own=own.number, heard=claimed.number, by=sender, hint=CURE),
        )  # fmt: skip
        self._on_memory_lost()
        self._take(core.set_back)

    def contradicted(self, forgot: Forgot) -> None:
        """What the leader, this member, has found out, the other one hears with the next message."""
        logger.error(
            "peer=%s has lost what it acknowledged to this leader, up to entry %d of term %d at most: its disk was set back to "
            "an earlier image; it counts for nothing, and %s",
            forgot.peer, forgot.index, forgot.term, CURE,
            extra=fields(event="peer_disk_set_back", peer=forgot.peer, index=forgot.index, hint=CURE),
        )  # fmt: skip
        self.numbers.contradicted(forgot.peer, self._chance.randint(1, LIFE_MAX))
        self._is_stale = True

    # The own number

    def look(self) -> None:
        """Something may have moved."""
        core = self._core
        if core is None or self._drawing or not core.wants_proof:
            return
        if self.numbers.set_back and not self._is_newcomer:
            return
        self._drawing = True
        self._tasks.start(self._prove(core), name=f"dledger-proof {self.numbers.self_id}")

    async def _prove(self, core: Raft) -> None:
        """A number that nobody has heard yet is durable before this member counts."""
        await self._write.perform(lambda: self._store(self.numbers.next(above_claimed=True)))
        self._drawing = False
        if core.wants_proof and not self.numbers.set_back:
            self._take(core.proved)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(DRAW_EVERY_MS / 1000)
            core = self._core
            if core is None:
                return
            if core.peers and core.proven:
                await self._write.attempt(self._store(self.numbers.next(above_claimed=False)))
            elif self._is_stale:
                await self._write.attempt(self._store(None))

    async def _store(self, own: Start | None) -> None:
        """`own` is drawn once it is durable. Raises OSError."""
        async with self._writing:
            self._is_stale = False
            newest = self.numbers.own if own is None else max(own, self.numbers.own)
            await self._file.store(newest, self.numbers)
            if newest != self.numbers.own:
                self.numbers.drawn(newest)


EVERY_MS = 30_000


class RejoinNotice:
    """`look` is to be called now and then."""

    def __init__(self, self_id: str) -> None:
        self._self_id = self_id
        self._told_ms: int | None = None

    def look(self, standing: RejoinState, now_ms: int) -> None:
        if not standing.newcomer:
            if self._told_ms is not None:
                logger.info("self=%s votes from now on", self._self_id)
            self._told_ms = None
        elif self._told_ms is None or now_ms - self._told_ms >= EVERY_MS:
            level = logging.INFO if self._told_ms is None else logging.WARNING
            self._told_ms = now_ms
            logger.log(level, "self=%s does not vote yet: %s", self._self_id, why(standing))


def why(standing: RejoinState) -> str:
    if standing.unheard:
        waits_for = f"{', '.join(sorted(standing.unheard))} must answer first, so that it knows whether the group is new"
    else:
        waits_for = "a leader must catch it up first; where most members are as empty as this one there is none, and one that "
        waits_for += "kept its disk must be copied to them"
    was = "set back to an earlier image" if standing.set_back else "empty, or set back"
    return f"its disk was {was}, and {waits_for}"
