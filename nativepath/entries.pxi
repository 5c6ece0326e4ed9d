cdef enum:
    ENTRY_BYTES = 20
    INDEX_HEAD = 40
    SLOT_BYTES = 4
    TABLE_PLACES = 512          # a power of two
    QUEUES_MOST = 256           # of one call
    ROLLBACK = 0xC
    COMMIT = 0x8
    FIRST_ENTRY = 1


cdef struct Listed:
    # A queue, as far as this call knows it.
    Py_ssize_t topic_at
    Py_ssize_t topic_bytes
    long long queue_id
    long long hot_first
    long long hot_end
    long long next
    long long phy_end
    bint is_plain
    bint grew


cdef struct Values:
    # Of one record: where they stand in the buffer, and whether all of them are ASCII.
    Py_ssize_t tag_at
    Py_ssize_t tag_bytes
    Py_ssize_t unique_at
    Py_ssize_t unique_bytes
    Py_ssize_t keys_at
    Py_ssize_t keys_bytes


cdef inline unsigned int hashed(unsigned int value, Bytes* memory, Py_ssize_t at, Py_ssize_t count) noexcept:
    cdef Py_ssize_t each
    if holds(memory, at, count):
        for each in range(at, at + count):
            value = 31 * value + memory.data[each]
    return value


cdef inline bint is_ascii(Bytes* memory, Py_ssize_t at, Py_ssize_t count) noexcept:
    cdef Py_ssize_t each
    cdef Byte all_bits = 0
    if not holds(memory, at, count):
        return False
    for each in range(at, at + count):
        all_bits |= memory.data[each]
    return all_bits < 0x80


cdef inline unsigned int key_hash(unsigned int value) noexcept:
    # As upstream counts it: never negative, and 0 for the one that has no absolute value.
    if value > 0x7FFFFFFF:
        value = 0 - value
    return 0 if value > 0x7FFFFFFF else value


cdef void find_values(Bytes* memory, Py_ssize_t at, Py_ssize_t end, Values* values) noexcept:
    # Of equal names the last with a value counts.
    cdef Py_ssize_t stop, size
    cdef Byte* found
    cdef Byte* data
    values.tag_at = values.unique_at = values.keys_at = at
    values.tag_bytes = values.unique_bytes = values.keys_bytes = 0
    if not holds(memory, at, end - at):
        return
    while at < end:
        data = memory.data + at
        found = <Byte*>memchr(data, PIECE_END, end - at)
        stop = end if found is NULL else at + (found - data)
        size = stop - at
        if size > 5 and data[4] == NAME_END:
            if memcmp(data, b"TAGS", 4) == 0:
                values.tag_at, values.tag_bytes = at + 5, size - 5
            elif memcmp(data, b"KEYS", 4) == 0:
                values.keys_at, values.keys_bytes = at + 5, size - 5
        elif size > 9 and data[8] == NAME_END and memcmp(data, b"UNIQ_KEY", 8) == 0:
            values.unique_at, values.unique_bytes = at + 9, size - 9
        at = stop + 1


cdef Py_ssize_t words_in(Bytes* memory, Py_ssize_t at, Py_ssize_t count) noexcept:
    cdef Py_ssize_t each, words = 0
    cdef bint between = True
    for each in range(at, at + count):
        if byte_at(memory, each) == 0x20:
            between = True
        else:
            words += between
            between = False
    return words


cdef class Entries:
    # See native.pyi.
    cdef object queues
    cdef bytes unlisted
    cdef Listed[QUEUES_MOST] listed
    cdef short[TABLE_PLACES] table
    cdef Py_ssize_t count
    cdef list found
    cdef list hot

    def __cinit__(self, dict queues, bytes unlisted):
        self.queues, self.unlisted = queues, unlisted

    cdef Py_ssize_t place_of(self, Bytes* memory, Py_ssize_t topic_at, Py_ssize_t topic_bytes, long long queue_id) except -2:
        # The number of the queue; -1 where no more are known.
        cdef unsigned int place = hashed(<unsigned int>queue_id * 0x9E3779B1u, memory, topic_at, topic_bytes)
        cdef Py_ssize_t number
        cdef Listed* one
        cdef Bytes unlisted
        place ^= place >> 15
        while True:
            place &= TABLE_PLACES - 1
            number = self.table[place]
            if number < 0:
                break
            one = &self.listed[number]
            if (
                one.queue_id == queue_id
                and one.topic_bytes == topic_bytes
                and memcmp(memory.data + one.topic_at, memory.data + topic_at, topic_bytes) == 0
            ):
                return number
            place += 1
        if self.count == QUEUES_MOST:
            return -1
        number = self.count
        one = &self.listed[number]
        one.topic_at, one.topic_bytes, one.queue_id, one.grew, one.is_plain = topic_at, topic_bytes, queue_id, False, False
        unlisted = bytes_of(self.unlisted)
        key = None
        queue = None
        hot = None
        if is_ascii(memory, topic_at, topic_bytes) and not same(
            memory, topic_at, topic_bytes, <char*>unlisted.data, unlisted.size
        ):
            key = PyBytes_FromStringAndSize(<char*>memory.data + topic_at, topic_bytes), queue_id
            queue = self.queues.get(key)
            if queue is not None:
                one.next, one.phy_end = queue.max_queue_offset, queue.phy_end
                one.hot_first, one.hot_end = queue.hot_first, queue.hot_end
                one.is_plain = one.hot_first <= one.next < one.hot_end
                if one.is_plain:
                    hot = Held(queue.hot_view, True)
        self.found.append((key, queue))
        self.hot.append(hot)
        self.table[place] = <short>number
        self.count += 1
        return number

    def put(
        self, buffer, Py_ssize_t at, Py_ssize_t end, long long position, Py_ssize_t lead, Py_ssize_t records_max, index,
        long long indexed, dict grown,
    ):
        """See native.pyi."""
        cdef Held held = Held(buffer, False), index_held
        cdef Bytes* memory = &held.memory
        cdef Bytes* index_memory = NULL
        cdef Bytes* hot
        cdef Py_ssize_t taken = 0, number, size, here, body_bytes, topic_at, topic_end, topic_bytes, word, stop, keys_end
        cdef long long slots = 0, entries_at = 0, index_count = 0, ready_end = 0, begin_time = 0, used_slots = 0
        cdef long long store_time = 0, last_time = 0, index_time = 0, index_phy = -1, queue_id, sys_flag, hashes, seconds
        cdef long long code, first_number, offset, in_entry = 0
        cdef unsigned int prefix, value
        cdef Values values
        cdef Listed* one
        cdef Bytes unlisted = bytes_of(self.unlisted)
        cdef bint counts
        if not 0 <= at <= end <= memory.size:
            raise ValueError("outside of the buffer")
        if lead not in (0, LEDGER_HEAD):
            raise ValueError("no log has such heads in front of its records")
        self.count, self.found, self.hot = 0, [], []
        for number in range(TABLE_PLACES):
            self.table[number] = -1
        if index is not None:
            slots, entries_at, index_count, ready_end, begin_time, used_slots = index.place
            index_held = Held(index.view, True)
            index_memory = &index_held.memory
            assert slots > 0 and entries_at >= INDEX_HEAD + SLOT_BYTES * slots
        first_number = index_count
        while taken < records_max:
            here, offset = at + lead, position + lead
            if lead:
                in_entry = ledger_body(memory, at, end - at, position)
                if in_entry < 0:
                    break
            # a whole record of version 1 with IPv4 hosts, where it says that it stands
            if end - here < RECORD_FRAME or number_at(memory, here + 4, 4) != <int>MAGIC_V1:
                break
            size = number_at(memory, here, 4)
            if lead and size != in_entry:
                break
            sys_flag, body_bytes = number_at(memory, here + 36, 4), number_at(memory, here + 84, 4)
            if not RECORD_FRAME <= size <= end - here or number_at(memory, here + 28, 8) != offset or sys_flag & HOSTS_IPV6:
                break
            if not 0 <= body_bytes <= size - RECORD_FRAME:
                break
            topic_at = here + HEAD_BYTES + 1 + body_bytes
            topic_bytes = byte_at(memory, topic_at - 1)
            topic_end = topic_at + topic_bytes
            if topic_end + 2 > here + size or number_at(memory, topic_end, 2) != here + size - topic_end - 2:
                break
            queue_id, store_time = number_at(memory, here + 12, 4), number_at(memory, here + 56, 8)
            counts = sys_flag & TRANSACTION == 0 or sys_flag & TRANSACTION == COMMIT
            find_values(memory, topic_end + 2, here + size, &values)
            # in a queue whose next offset it has, and for which there is room
            one = NULL
            if counts:
                number = self.place_of(memory, topic_at, topic_bytes, queue_id)
                if number < 0:
                    break
                one = &self.listed[number]
                if (
                    not one.is_plain
                    or number_at(memory, here + 20, 8) != one.next
                    or one.next >= one.hot_end
                    or offset < one.phy_end
                    or not is_ascii(memory, values.tag_at, values.tag_bytes) and values.tag_bytes
                ):
                    break
            elif same(memory, topic_at, topic_bytes, <char*>unlisted.data, unlisted.size):
                break
            # with room for all its keys and its tag in the newest file
            hashes = 0
            if offset >= indexed and sys_flag & TRANSACTION != ROLLBACK:
                hashes = (values.unique_bytes > 0) + (values.tag_bytes > 0)
                if values.keys_bytes:
                    hashes += words_in(memory, values.keys_at, values.keys_bytes)
                if hashes:
                    if (
                        index_memory is NULL
                        or index_count + hashes > ready_end
                        or index_count <= FIRST_ENTRY
                        or not is_ascii(memory, topic_at, topic_bytes)
                        or values.unique_bytes and not is_ascii(memory, values.unique_at, values.unique_bytes)
                        or values.keys_bytes and not is_ascii(memory, values.keys_at, values.keys_bytes)
                        or values.tag_bytes and not is_ascii(memory, values.tag_at, values.tag_bytes)
                    ):
                        break
            if memory.strayed:
                break
            if one is not NULL:
                code = 0
                if values.tag_bytes:
                    code = <int>hashed(0, memory, values.tag_at, values.tag_bytes)
                hot = &(<Held>self.hot[number]).memory
                stop = <Py_ssize_t>(one.next - one.hot_first) * ENTRY_BYTES
                put_number(hot, stop, 8, offset)
                put_number(hot, stop + 8, 4, size)
                put_number(hot, stop + 12, 8, code)
                assert not hot.strayed, "a queue's hot places are in its file"
                one.next += 1
                one.phy_end = offset + size
                one.grew = True
            if hashes:
                prefix = 31 * hashed(0, memory, topic_at, topic_bytes) + 0x23
                seconds = seconds_since(begin_time, store_time)
                if values.unique_bytes:
                    value = key_hash(hashed(prefix, memory, values.unique_at, values.unique_bytes))
                    used_slots += link(index_memory, slots, entries_at, index_count, value, offset, seconds)
                    index_count += 1
                word, keys_end = values.keys_at, values.keys_at + values.keys_bytes
                while values.keys_bytes and word < keys_end:
                    stop = word
                    while stop < keys_end and memory.data[stop] != 0x20:
                        stop += 1
                    if stop > word:
                        value = key_hash(hashed(prefix, memory, word, stop - word))
                        used_slots += link(index_memory, slots, entries_at, index_count, value, offset, seconds)
                        index_count += 1
                    word = stop + 1
                if values.tag_bytes:
                    prefix = 31 * (31 * prefix + 0x54) + 0x23  # T#
                    value = key_hash(hashed(prefix, memory, values.tag_at, values.tag_bytes))
                    used_slots += link(index_memory, slots, entries_at, index_count, value, offset, seconds)
                    index_count += 1
                assert not index_memory.strayed, "entries below `ready_end` are in the file"
                index_time, index_phy = store_time, offset
            taken += 1
            at = here + <Py_ssize_t>size
            position = offset + size
            last_time = store_time
        for number in range(self.count):
            one = &self.listed[number]
            if one.grew:
                key, queue = self.found[number]
                queue.max_queue_offset, queue.phy_end = one.next, one.phy_end
                grown[key] = one.next
        self.found, self.hot = [], []
        grew = (index_count, used_slots, index_phy, index_time) if index_count > first_number else None
        return taken, position, last_time, grew


cdef inline long long seconds_since(long long begin, long long now) noexcept:
    # the times are any that a record may hold, and what lies between them may be more than has a sign
    cdef unsigned long long seconds
    if now <= begin:
        return 0
    seconds = (<unsigned long long>now - <unsigned long long>begin) // 1000
    return I32_MOST if seconds > I32_MOST else <long long>seconds


cdef inline int link(
    Bytes* memory, long long slots, long long entries_at, long long number, unsigned int value, long long position,
    long long seconds,
) noexcept:
    # Entry `number` at the head of its chain; 1 where that is new.
    cdef Py_ssize_t slot_at = INDEX_HEAD + SLOT_BYTES * <Py_ssize_t>(value % slots)
    cdef Py_ssize_t at = <Py_ssize_t>(entries_at + ENTRY_BYTES * number)
    cdef long long previous = number_at(memory, slot_at, 4)
    cdef bint is_new = not 0 < previous < number
    put_number(memory, at, 4, value)
    put_number(memory, at + 4, 8, position)
    put_number(memory, at + 12, 4, seconds)
    put_number(memory, at + 16, 4, 0 if is_new else previous)
    put_number(memory, slot_at, 4, number)
    return is_new
