"""The start numbers of a group on one member's disk: the file `starts`, of `key=value` lines as the other small files have.

    self=n0          whose folder this is; copied into another member's folder the file counts as absent
    own=17:1203      number and life (dledger.raft.startnumbers)
    of.n1=18:77      what was heard of another member

Invariant: what `store` was given is durable when it returns. A file that is damaged counts as absent."""

from __future__ import annotations

import logging

from dledger.raft.startnumbers import Start, StartNumbers, decode_start
from dledger.storage.keyvalues import BadKeyValues, parse_key_values
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger(__name__)

SELF = "self"
OWN = "own"
OTHER = "of."
"""The other member's id follows."""


class StartsFile:
    """`name` is relative to the root of `files`, for example 'dledger-n0/starts'."""

    def __init__(self, files: SmallFiles, name: str, self_id: str) -> None:
        self.files = files
        self.name = name
        self.self_id = self_id

    async def load(self, *, life: int) -> StartNumbers:
        """`life` is that of the start that loads it. Raises OSError."""
        values = self._read(await self.files.read(self.name))
        own = decode_start(values.get(OWN, ""))
        known = {
            key.removeprefix(OTHER): start
            for key, value in values.items()
            if key.startswith(OTHER) and (start := decode_start(value)) is not None
        }
        return StartNumbers(self.self_id, own, known, life=life)

    def _read(self, data: bytes | None) -> dict[str, str]:
        if data is None:
            return {}
        try:
            values = parse_key_values(self.name, data)
        except BadKeyValues as error:
            logger.warning("%s counts as absent: %s", self.name, error.why)
            return {}
        return values if values.get(SELF) == self.self_id else {}

    async def store(self, own: Start, numbers: StartNumbers) -> None:
        """`own`, and what `numbers` knows of others. Raises OSError."""
        lines = [f"{SELF}={self.self_id}"]
        if own.number:
            lines.append(f"{OWN}={own.number}:{own.life}")
        lines += [
            f"{OTHER}{member}={start.number}:{start.life}" for member, start in sorted(numbers.known.items())
        ]
        await self.files.replace(self.name, ("\n".join(lines) + "\n").encode())
