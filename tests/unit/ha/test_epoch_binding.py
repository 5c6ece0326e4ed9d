"""An epoch file is valid only for the log that it was written for."""

from __future__ import annotations

import pytest

from epochfile.binding import decode_binding
from epochfile.bindingfile import SUFFIX
from epochfile.file import BACKUP_SUFFIX, DEFAULT_NAME, EpochFile
from epochfile.history import EpochHistory
from ha.errors import EpochFileForeign
from tests.unit.ha.hascene import Node, fill, in_step, played_by, until
from tests.unit.ha.memorylog import MemoryLog

COPIES = (DEFAULT_NAME, DEFAULT_NAME + BACKUP_SUFFIX)
BINDING = DEFAULT_NAME + SUFFIX
NOT_SEALED = "the log cannot be read where an epoch begins, its binding is left as it is"


def sealed(node: Node) -> bool:
    """Whether the bytes after the newest epoch's start are sealed."""
    return decode_binding(node.files.content[BINDING]).seals[-1].after is not None


async def with_divergent_tails(a: Node, b: Node) -> None:
    """Both have epoch 1 from a; then a wrote alone in epoch 1 and b in epoch 2. Both are stopped."""
    await a.lead(1)
    fill(a, "shared", 3)
    await b.follow(a, 1)
    await until(lambda: b.log.confirm_offset() == a.log.max_offset())
    await b.ha.stop()
    fill(a, "a-alone", 5)
    await a.ha.stop()
    await b.start_again()
    await b.lead(2)
    fill(b, "b-went-on", 9)
    assert b.log.content()[: len(a.log.content())] != a.log.content()


@played_by(1, 2)
async def test_a_foreign_epoch_file_does_not_hide_a_divergent_tail(a: Node, b: Node) -> None:
    await with_divergent_tails(a, b)
    own = {name: a.files.content[name] for name in COPIES}
    a.files.content[DEFAULT_NAME] = b.files.content[DEFAULT_NAME]
    with pytest.raises(EpochFileForeign, match="epoch 2") as refused:
        await a.start_again()
    assert (refused.value.name, refused.value.epoch) == (DEFAULT_NAME, 2)
    assert a.files.content[COPIES[1]] == own[COPIES[1]]  # an operator restores the file from it


@played_by(1, 2)
async def test_a_foreign_epoch_file_with_its_binding_is_rejected(a: Node, b: Node) -> None:
    await with_divergent_tails(a, b)
    await until(lambda: sealed(b))
    await b.ha.stop()
    for name in (*COPIES, BINDING):
        a.files.content[name] = b.files.content[name]
    with pytest.raises(EpochFileForeign, match="does not read there what it read"):
        await a.start_again()


@played_by(1, 2)
async def test_a_foreign_epoch_file_with_its_binding_names_another_owner(a: Node, b: Node) -> None:
    await in_step(a, b)
    fill(a, "shared", 3)
    await until(lambda: b.log.content() == a.log.content() and sealed(b))
    for name in (*COPIES, BINDING):
        a.files.content[name] = b.files.content[name]
    await a.ha.stop()
    await a.start_again()
    with pytest.raises(EpochFileForeign, match="written by broker 2, this is broker 1"):
        await a.ha.owned_by(1)


@played_by(1)
async def test_a_copied_store_gets_a_new_owner_with_its_new_id(a: Node) -> None:
    await a.lead(1)
    fill(a, "a", 3)
    await a.ha.stop()
    await a.start_again()
    await a.ha.owned_by(None)
    await a.ha.stop()
    await a.start_again()
    await a.ha.owned_by(7)


@played_by(1)
async def test_an_old_copy_of_its_own_epoch_file_is_rejected(a: Node) -> None:
    await a.lead(1)
    fill(a, "epoch-1", 3)
    old = a.files.content[DEFAULT_NAME]
    await a.lead(2)
    fill(a, "epoch-2", 3)
    await a.ha.stop()
    a.files.content[DEFAULT_NAME] = old
    with pytest.raises(EpochFileForeign, match="written in epoch 2") as refused:
        await a.start_again()
    assert refused.value.offset == 1500


@played_by(1, 2)
async def test_a_store_without_a_binding_is_accepted_and_bound(a: Node, b: Node) -> None:
    await in_step(a, b)
    fill(a, "epoch-1", 3)
    await a.lead(2)
    fill(a, "epoch-2", 3)
    await until(lambda: a.ha.confirm_offset() == a.log.max_offset())
    await a.ha.stop()
    del a.files.content[BINDING]
    await a.start_again()
    binding = decode_binding(a.files.content[BINDING])
    assert binding.history == a.ha.history
    assert all(seal.after is not None for seal in binding.seals)


@played_by(1)
async def test_without_a_binding_epochs_must_begin_at_record_boundaries(a: Node) -> None:
    await a.lead(1)
    fill(a, "epoch-1", 3)
    await a.ha.stop()
    await EpochFile(a.files).store(EpochHistory([(1, 0), (2, 511)]))
    del a.files.content[BINDING]
    with pytest.raises(EpochFileForeign, match="no record of this log begins there"):
        await a.start_again()


@played_by(1)
async def test_a_store_with_a_damaged_binding_starts(a: Node) -> None:
    await a.lead(1)
    fill(a, "epoch-1", 3)
    await a.ha.stop()
    a.files.content[BINDING] = b"x" + a.files.content[BINDING][1:]
    await a.start_again()
    assert decode_binding(a.files.content[BINDING]).history == a.ha.history


@pytest.mark.parametrize("writes", range(4))
@played_by(1, 2)
async def test_a_store_starts_after_a_kill_between_any_two_epoch_writes(
    a: Node, b: Node, writes: int
) -> None:
    """With a truncation before it: the log is shorter than the file and the binding say."""
    await with_divergent_tails(a, b)
    before = dict(a.files.content)
    await a.start_again()
    a.files.kept, a.files.keeps = before, writes
    await a.follow(b, 2)
    await until(lambda: a.log.content() == b.log.content())
    await a.ha.stop()
    cut = MemoryLog(data=b.log.content()[: a.log.truncated[0][1]])
    cut.set_confirm_offset(cut.max_offset())
    a.log, a.files.content = cut, before
    await a.start_again()
    await a.follow(b, 2)
    await until(lambda: a.log.content() == b.log.content())


@played_by(1)
async def test_a_log_with_deleted_segments_still_knows_its_epochs(a: Node) -> None:
    await a.lead(1)
    fill(a, "epoch-1", 40)
    await a.lead(2)
    fill(a, "epoch-2", 40)
    await a.ha.stop()
    kept_from = a.log.segment_size_bytes
    a.log = MemoryLog(data=a.log.content()[kept_from:], begins=kept_from)
    a.log.set_confirm_offset(a.log.max_offset())
    await a.start_again()
    assert a.ha.history.last_epoch() == 2


@played_by(1)
async def test_the_seal_is_reset_when_a_power_cut_lost_the_sealed_bytes(a: Node) -> None:
    await a.lead(1)
    fill(a, "epoch-1", 3)
    await a.lead(2)
    start = a.log.max_offset()
    fill(a, "lost", 3)
    await until(lambda: sealed(a))
    await a.ha.stop()
    a.log = MemoryLog(data=a.log.content()[:start])
    a.log.set_confirm_offset(start)
    await a.start_again()
    assert decode_binding(a.files.content[BINDING]).seals[-1].after is None


@played_by(1)
async def test_an_unreadable_disk_while_sealing_is_not_fatal(
    a: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await a.lead(1)
    a.log.cold_below, a.log.unreadable["read_cold"] = 1 << 40, 0
    fill(a, "epoch-1", 40)
    await until(lambda: bool(a.fatal) or NOT_SEALED in caplog.messages)
    assert a.fatal == [] and a.ha.acked_end() == a.log.max_offset()
    a.log.unreadable.clear()
    await a.lead(2)
    fill(a, "epoch-2", 40)
    await until(lambda: sealed(a))
    assert all(seal.after is not None for seal in decode_binding(a.files.content[BINDING]).seals)
