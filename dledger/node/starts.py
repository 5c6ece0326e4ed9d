"""The start numbers of one running member: loads, draws and stores its own number, and reacts to the numbers that other members
have received. The log lines of a member that may not vote are here too: the reason, the members for which it waits, and the
end.

Invariant: the first number of a sender's life is durable here before the message is used, unless the disk is full. A member
whose disk was set back is durably a newcomer (dledger.raft.rejoin) before it draws a number above the number that others
received. A member that may not vote logs a line at the beginning, one every half minute and one at the end; a member that may
vote from its start logs none."""

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
"""The interval between two numbers. An image of a running member's folder is recognised as old once this time has passed twice,
plus two heartbeats: in the second interval the other members store the number."""
CURE = (
    "it votes again once all others have answered and a leader has caught it up; if its newest disk is there, stop it and "
    "start that one instead"
)


class Starts:
    """The start numbers. `take(turn)` performs the actions of one turn of the core."""

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
        self._write = RetriedWrite(logger, f"{name} cannot be written, retrying", server="member")
        self._writing = asyncio.Lock()
        self._drawing = False
        self._is_stale = False
        """Whether the file is missing numbers of other members."""
        self._core: Raft | None = None
        self._is_newcomer = False
        """Whether this member is durably a newcomer: its term file says so, or its disk is empty."""
        self.numbers = StartNumbers(self_id, None, {}, life=0)

    async def open(self) -> None:
        """Loads the file. Raises OSError."""
        self.numbers = await self._file.load(life=self._chance.randint(1, LIFE_MAX))

    def begin(self, core: Raft) -> None:
        """Called when the disk has been read: this member takes part from now on."""
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
        """Called when `vote` is durable."""
        self._is_newcomer = vote.newcomer

    def close(self) -> None:
        """Stops drawing numbers, because this member has ended."""
        self._core = None

    # Numbers from others

    async def heed(self, sender: str, text: str) -> bool:
        """Reads the numbers in a message of `sender`; a stranger's numbers change nothing. False if the message is from a
        former life of the sender or from a disk that was set back, or if this member has failed."""
        core, members = self._core, self._members()
        if core is None or sender not in members:
            return True
        new = self.numbers.receive(sender, text, members)
        of_former_life = self.numbers.is_of_former_life(sender)
        if self.numbers.set_back and not core.rejoin.newcomer:
            self._was_set_back(core, sender)
        elif self.numbers.set_back and core.proven:
            self._take(core.set_back)
        elif not core.proven and not core.proving.has_vouched(sender):
            self._take(lambda now_ms: core.vouched(sender, now_ms))
        if new.others:
            self._is_stale = True
        if new.sender_began:
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
            "self=%s the disk of this member was set back to an earlier image: %s has received its start %d, and the disk "
            "has %d; it counts as emptied, and %s",
            self.numbers.self_id, sender, claimed.number, own.number, CURE,
            extra=fields(event="disk_set_back", own=own.number, heard=claimed.number, by=sender, hint=CURE),
        )  # fmt: skip
        self._on_memory_lost()
        self._take(core.set_back)

    def contradicted(self, forgot: Forgot) -> None:
        """Called when this leader has found that the disk of a follower was set back. The next message notifies the
        follower."""
        logger.error(
            "peer=%s has lost what it acknowledged to this leader, up to entry %d of term %d at most: its disk was set back to "
            "an earlier image; it counts for nothing, and %s",
            forgot.peer, forgot.index, forgot.term, CURE,
            extra=fields(event="peer_disk_set_back", peer=forgot.peer, index=forgot.index, hint=CURE),
        )  # fmt: skip
        self.numbers.contradicted(forgot.peer, self._chance.randint(1, LIFE_MAX))
        self._is_stale = True

    # This member's number

    def look(self) -> None:
        """Draws the number that proves that this disk is the newest, if the core waits for this proof."""
        core = self._core
        if core is None or self._drawing or not core.wants_proof:
            return
        if self.numbers.set_back and not self._is_newcomer:
            return
        self._drawing = True
        self._tasks.start(self._prove(core), name=f"dledger-proof {self.numbers.self_id}")

    async def _prove(self, core: Raft) -> None:
        """Stores a number that is above all numbers that other members have received; then this member counts."""
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
        """Stores `own` and the numbers of other members. `own` counts as drawn once it is durable. Raises OSError."""
        async with self._writing:
            self._is_stale = False
            newest = self.numbers.own if own is None else max(own, self.numbers.own)
            await self._file.store(newest, self.numbers)
            if newest != self.numbers.own:
                self.numbers.drawn(newest)


NOTICE_EVERY_MS = 30_000


class RejoinNotice:
    """Logs why this member may not vote; `look` must be called regularly."""

    def __init__(self, self_id: str) -> None:
        self._self_id = self_id
        self._logged_ms: int | None = None

    def look(self, rejoin: RejoinState, now_ms: int) -> None:
        if not rejoin.newcomer:
            if self._logged_ms is not None:
                logger.info("self=%s votes from now on", self._self_id)
            self._logged_ms = None
        elif self._logged_ms is None or now_ms - self._logged_ms >= NOTICE_EVERY_MS:
            severity = logging.INFO if self._logged_ms is None else logging.WARNING
            self._logged_ms = now_ms
            logger.log(severity, "self=%s does not vote yet: %s", self._self_id, reason_not_to_vote(rejoin))


def reason_not_to_vote(rejoin: RejoinState) -> str:
    if rejoin.unanswered:
        waits_for = f"{', '.join(sorted(rejoin.unanswered))} must answer first, so that it knows whether the group is new"
    else:
        waits_for = "a leader must catch it up first; if most members are as empty as this one there is none: copy a disk that "
        waits_for += "a member kept to them"
    was = "set back to an earlier image" if rejoin.set_back else "empty, or set back"
    return f"its disk was {was}, and {waits_for}"
