"""Keeps the mark that a store ran contract A: from before the first send under it could be acknowledged until retention has
removed all that was written under it.

Invariant: `allAckInSyncStateSet` does not change while the broker runs (broker.admin.configuration.CHANGEABLE lacks it), so
the mark on disk says what the present settings are."""

from __future__ import annotations

from dataclasses import replace

from messagestore.contractmark import FILE, ContractMark, decode
from mqruntime.smallfiles import SmallFiles


async def keep_contract_mark(
    files: SmallFiles, *, contract_a: bool, epoch: int, log_min: int, log_max: int
) -> ContractMark | None:
    """At the start, before any role: the mark that is on disk on return, None for a store that needs none. `epoch` is the
    newest of the log, which begins and ends at `log_min` and `log_max`. Raises ContractMarkDamaged, OSError."""
    data = await files.read(FILE)
    found = None if data is None else decode(data)
    wanted = found
    if contract_a:
        wanted = ContractMark(epoch, log_max) if found is None else replace(found, end_offset=None)
    elif found is not None and found.end_offset is None:
        wanted = replace(found, end_offset=log_max)
    if wanted is not None and wanted.outlived(log_min):
        wanted = None
    if wanted is None and found is not None:
        await files.remove(FILE)
    elif wanted is not None and wanted != found:
        await files.replace(FILE, wanted.encode())
    return wanted
