"""The mark of a store that ran contract A. It is written before the first send can be acknowledged under contract A, and
removed once retention has removed all messages that were written under that contract.

Invariant: `allAckInSyncStateSet` does not change while the broker runs (it is not in broker.admin.configuration.CHANGEABLE),
so the mark on disk matches the present settings."""

from __future__ import annotations

from dataclasses import replace

from messagestore.contractmark import FILE, ContractMark, decode
from mqruntime.smallfiles import SmallFiles


class KeptContractMark:
    """The mark of one store; `keep` writes it to disk."""

    def __init__(self, files: SmallFiles) -> None:
        self._files = files
        self._mark: ContractMark | None = None

    @property
    def ran_contract_a(self) -> bool:
        """Whether the log holds sends that were acknowledged before other replicas had them."""
        return self._mark is not None

    async def keep(self, *, contract_a: bool, epoch: int, log_min: int, log_max: int) -> ContractMark | None:
        """Store the mark at the start, before any role. Returns the mark on disk; None if the store needs no mark. `epoch` is
        the newest epoch of the log, which begins and ends at `log_min` and `log_max`. Raises ContractMarkDamaged, OSError."""
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
