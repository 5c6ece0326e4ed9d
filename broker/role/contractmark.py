"""Keeps the mark that a store ran contract A: from before the first send under it could be acknowledged until retention has
removed all that was written under it.

Invariant: `allAckInSyncStateSet` does not change while the broker runs (broker.admin.configuration.CHANGEABLE lacks it), so
the mark on disk says what the present settings are."""

from __future__ import annotations

from dataclasses import replace

from messagestore.contractmark import FILE, ContractMark, decode
from mqruntime.smallfiles import SmallFiles


class KeptContractMark:
    """The mark of one store, as the disk holds it after `keep`."""

    def __init__(self, files: SmallFiles) -> None:
        self._files = files
        self._mark: ContractMark | None = None

    @property
    def ran_contract_a(self) -> bool:
        """Whether the log holds what was acknowledged before other replicas had it."""
        return self._mark is not None

    async def keep(self, *, contract_a: bool, epoch: int, log_min: int, log_max: int) -> ContractMark | None:
        """At the start, before any role: the mark that is on disk on return, None for a store that needs none. `epoch` is
        the newest of the log, which begins and ends at `log_min` and `log_max`. Raises ContractMarkDamaged, OSError."""
        data = await self._files.read(FILE)
        found = None if data is None else decode(data)
        wanted = found
        if contract_a:
            wanted = ContractMark(epoch, log_max) if found is None else replace(found, end_offset=None)
        elif found is not None and found.end_offset is None:
            wanted = replace(found, end_offset=log_max)
        if wanted is not None and wanted.outlived(log_min):
            wanted = None
        if wanted is None and found is not None:
            await self._files.remove(FILE)
        elif wanted is not None and wanted != found:
            await self._files.replace(FILE, wanted.encode())
        self._mark = wanted
        return wanted
