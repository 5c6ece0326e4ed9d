cdef enum:
    LEDGER_HEAD = 48            # of an entry of a DLedger log, see dledger.entry
    LEDGER_MAGIC = 1
    LEDGER_CHECK_AT = 36
    LEDGER_UNIT = 32            # what the index says of it
    BLOCK_HEAD = 12             # of an entry in a block, see dledger.blocks


cdef inline long long ledger_body(Bytes* memory, Py_ssize_t at, Py_ssize_t left, long long position) noexcept:
    # How many bytes the body has of the ledger's entry that stands at `position`; -1 where none of that place does.
    cdef long long size
    if left < LEDGER_HEAD or number_at(memory, at, 4) != LEDGER_MAGIC or number_at(memory, at + 24, 8) != position:
        return -1
    size = number_at(memory, at + 44, 4)
    return size if number_at(memory, at + 4, 4) == LEDGER_HEAD + size else -1


def put_entries(
    room, data, Py_ssize_t begin, tuple ends, long long first_index, long long term, long long pos, long long batch_position,
    unsigned int check,
):
    """See native.pyi."""
    cdef Held target = Held(room, True), source = Held(data, False)
    cdef Bytes* out = &target.memory
    cdef Bytes* block = &source.memory
    cdef Bytes units
    cdef Py_ssize_t at = 0, number, end, body_bytes, unit = 0
    units.data, units.size, units.strayed = <Byte*>malloc(max(len(ends) * LEDGER_UNIT, 1)), len(ends) * LEDGER_UNIT, False
    if units.data is NULL:
        raise MemoryError()
    try:
        for number in range(len(ends)):
            end = ends[number]
            body_bytes = end - begin - BLOCK_HEAD
            put_bytes(out, at + LEDGER_HEAD, block, begin + BLOCK_HEAD, body_bytes)
            put_number(out, at, 4, LEDGER_MAGIC)
            put_number(out, at + 4, 4, LEDGER_HEAD + body_bytes)
            put_number(out, at + 8, 8, first_index + number)
            put_number(out, at + 16, 8, term)
            put_number(out, at + 24, 8, pos + at)
            put_number(out, at + 32, 4, 0)
            put_number(out, at + 40, 4, batch_position + number)
            put_number(out, at + 44, 4, body_bytes)
            if out.strayed or block.strayed:
                raise ValueError("outside of the room, or of the block")
            check = <unsigned int>checksum_of(out, at, LEDGER_CHECK_AT, check)
            check = <unsigned int>checksum_of(out, at + LEDGER_CHECK_AT + 4, LEDGER_HEAD + body_bytes - LEDGER_CHECK_AT - 4, check)
            if check == 0:
                check = 0xFFFFFFFFu
            put_number(out, at + LEDGER_CHECK_AT, 4, check)
            put_number(&units, unit, 4, LEDGER_MAGIC)
            put_number(&units, unit + 4, 8, pos + at)
            put_number(&units, unit + 12, 4, LEDGER_HEAD + body_bytes)
            put_number(&units, unit + 16, 8, first_index + number)
            put_number(&units, unit + 24, 8, term)
            unit += LEDGER_UNIT
            at += LEDGER_HEAD + body_bytes
            begin = end
        assert at == out.size and not units.strayed, "all of the room is filled"
        return PyBytes_FromStringAndSize(<char*>units.data, units.size), check
    finally:
        free(units.data)
