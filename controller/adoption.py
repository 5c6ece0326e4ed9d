"""The check of a store that a Java controller wrote, before anything in it is changed.

Invariant: a Java store is opened as a whole or not at all. It has no checksums, so an entry that cannot be decoded as an event
counts as damage. Without that entry this controller's state would differ from that of the other controllers."""

from __future__ import annotations

import logging
from pathlib import Path

from controller.events import decode
from controller.settings import ControllerSettings
from dledger.raft.entries import NO_INDEX
from dledger.raft.errors import LogDamaged
from dledger.storage.checkpoint import CheckpointFile
from dledger.storage.entry import index_header, stored_check
from dledger.storage.inspection import inspect
from dledger.storage.memberfolder import PREFIX, read_store
from dledger.storage.snapshotfile import java_snapshots
from mqruntime.log import fields
from mqruntime.runtime import Runtime
from mqruntime.segments import SegmentDirectory
from mqruntime.settings import SettingsError
from mqruntime.slices import by_turns

logger = logging.getLogger(__name__)

HELP = "; nothing was changed: restore the back-up, or move this folder away and start it empty once the other two lead"

HOLED = (
    "; the folder snapshot shows that RocketMQ 5.4.0 or later wrote this store: DLedger 0.3.2 and later leave such holes in "
    "the log of a controller that was behind another's snapshot, so use the store of another controller"
)


async def look_first(settings: ControllerSettings, runtime: Runtime) -> None:
    """Check a Java controller's log from its first entry to its last. Do nothing if the log is empty, or if its first entry or
    its checkpoint shows that this implementation has written to the store.

    Raises: LogDamaged, BadKeyValues, SnapshotDamaged, SnapshotUnknown, OSError."""
    name = PREFIX + settings.self_id
    if begins_with_ours(runtime.segments.subdirectory(name).subdirectory("data")):
        return
    checkpoint = await CheckpointFile(runtime.files, f"{name}/checkpoint").load()
    if checkpoint.synced_index != NO_INDEX:
        return
    files = await read_store(runtime.files, runtime.segments, name)
    found = await by_turns(inspect(files, lambda body: decode(body) is not None))
    size = len(files.data[0][1])
    since_5_4 = bool(await java_snapshots(runtime.files, f"{name}/snapshot"))
    if found.damage:
        found.damage += HELP + (HOLED if since_5_4 else "")
        found.refuse()
    if size != settings.mapped_file_size_bytes:
        raise LogDamaged(f"{name}/data", f"its files have {size} bytes: set mappedFileSize={size}")
    if found.of_java:
        found_fields = fields(
            entries=found.last_index + 1,
            committed=found.committed_index,
            term=found.term,
            tail=found.tail or "none",
            snapshots="empty, not read" if since_5_4 else "none",
        )
        logger.info("a Java controller's store is opened", extra=found_fields)


def begins_with_ours(data: SegmentDirectory) -> bool:
    """Whether the first entry has a checksum, or the log has no entry."""
    names = data.names()
    if not names or not names[0][1]:
        return True
    file = data.open(names[0][0])
    view = file.view()
    file.close()
    return index_header(view) is not None and stored_check(view) != 0


def store_root(settings: ControllerSettings) -> Path:
    """The folder of this controller's store.

    Raises: SettingsError when no folder is configured and upstream's default folder holds the store of a Java controller with
    this id. Otherwise this controller would start with an empty store."""
    root = settings.store_root
    name = PREFIX + settings.self_id
    left = root.parent / name
    if not settings.store_path and left.is_dir() and not (root / name).is_dir():
        why = f"{left} is a Java controller's store: set controllerStorePath={root.parent} to use it, or move it away"
        raise SettingsError("controllerStorePath", "", str(left), None, why)
    return root
