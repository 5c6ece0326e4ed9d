cdef enum:
    MAGIC_V1 = 0xDAA320A7
    CRC_MASK = 0x7FFFFFFF
    HEAD_BYTES = 88             # of a record whose hosts are IPv4
    RECORD_FRAME = 91           # that, and the lengths of topic and properties
    IPV4_HOST = 8
    TOPIC_MOST = 127
    PROPERTIES_MOST = 32767
    CRC_NAME = 0x5F5F4352       # __CRC32#, in two numbers
    CRC_NAME_END = 0x43333223
    CRC_BYTES = 20              # of a property `__CRC32#` that ends a record
    MEMBER_HEAD = 20
    MEMBER_FRAME = 22
    SENT_MEMBERS_MOST = 16384
    POSITION_DIGITS = 16
    REPLY_NUMBERS = 64          # more than the digits of what a reply tells
    ID_DIGITS = 12


cdef struct Queue:
    Py_ssize_t topic
    int queue_id
    long long next


cdef bint next_member(
    Bytes* memory, Py_ssize_t* at, Py_ssize_t end, int* own_flag, Py_ssize_t* body_at, Py_ssize_t* body_bytes,
    Py_ssize_t* properties_at, Py_ssize_t* properties_bytes,
) noexcept:
    # The member of a batch at `at`, which moves behind it; False where none adds up.
    cdef long long size, body, properties
    if end - at[0] < MEMBER_FRAME:
        return False
    size, body = number_at(memory, at[0], 4), number_at(memory, at[0] + 16, 4)
    if body < 0 or body > end - at[0] - MEMBER_FRAME:
        return False
    properties = number_at(memory, at[0] + MEMBER_HEAD + <Py_ssize_t>body, 2)
    if properties > PROPERTIES_MOST or size != MEMBER_FRAME + body + properties or size > end - at[0]:
        return False
    own_flag[0] = <int>number_at(memory, at[0] + 12, 4)
    body_at[0], body_bytes[0] = at[0] + MEMBER_HEAD, <Py_ssize_t>body
    properties_at[0], properties_bytes[0] = body_at[0] + body_bytes[0] + 2, <Py_ssize_t>properties
    at[0] += <Py_ssize_t>size
    return True


cdef bint ends_with_crc(Bytes* memory, Py_ssize_t properties_at, Py_ssize_t properties_bytes) noexcept:
    # It came with the message, and would be taken for the record's own.
    cdef Py_ssize_t at = properties_at + properties_bytes - CRC_BYTES
    return (
        properties_bytes >= CRC_BYTES and number_at(memory, at, 4) == CRC_NAME
        and number_at(memory, at + 4, 4) == CRC_NAME_END and byte_at(memory, at + 8) == 1
    )


cdef bint asks_for_more(Bytes* memory, Py_ssize_t at, Py_ssize_t size) noexcept:
    # Its properties ask for a delay, a timer or a transaction, as those of a send in read_properties.
    cdef Py_ssize_t end = at + size
    cdef Byte* data
    cdef Byte* behind
    if not holds(memory, at, size):
        return False
    while at < end:
        data = memory.data + at
        if data[0] == 0x44 and end - at >= 6 and memcmp(data, b"DELAY\x01", 6) == 0:
            return True
        if data[0] == 0x54 and end - at >= 9 and (memcmp(data, b"TRAN_MSG\x01", 9) == 0 or memcmp(data, b"TIMER_DEL", 9) == 0):
            return True
        behind = <Byte*>memchr(data, PIECE_END, end - at)
        if behind is NULL:
            return False
        at = behind - memory.data + 1
    return False


cdef list measure(Sends sends, bytes added, Py_ssize_t body_bytes_max, Py_ssize_t record_bytes_max):
    # The sizes of the records; None where one of the sends is not stored so.
    cdef Py_ssize_t number, total = 0, size, at, end, topic_bytes, body_at, body_bytes, properties_at, properties_bytes
    cdef int own_flag
    cdef Bytes* memory = &sends.held.memory
    cdef Bytes extra = bytes_of(added)
    cdef Send* send
    cdef list sizes = []
    sends.total = -1
    if has_zero(&extra, 0, extra.size):
        return None
    for number in range(sends.count):
        send = &sends.sends[number]
        topic_bytes = len(<bytes>sends.topics[send.topic])
        if not 0 < topic_bytes <= TOPIC_MOST or send.body_bytes > body_bytes_max:
            return None
        if not send.batch:
            properties_bytes = send.text_bytes + extra.size
            size = RECORD_FRAME + topic_bytes + send.body_bytes + properties_bytes
            if properties_bytes > PROPERTIES_MOST or size > record_bytes_max:
                return None
            send.members, send.stored_bytes = 1, size
            sizes.append(size)
        else:
            send.members = send.stored_bytes = 0
            at, end = send.body_at, send.body_at + send.body_bytes
            while at < end:
                if not next_member(
                    memory, &at, end, &own_flag, &body_at, &body_bytes, &properties_at, &properties_bytes
                ):
                    return None
                size = RECORD_FRAME + topic_bytes + body_bytes + properties_bytes
                if size > record_bytes_max or has_zero(memory, properties_at, properties_bytes):
                    return None
                if ends_with_crc(memory, properties_at, properties_bytes):
                    return None
                if asks_for_more(memory, properties_at, properties_bytes):
                    return None
                send.members += 1
                send.stored_bytes += size
                sizes.append(size)
            if not 0 < send.members <= SENT_MEMBERS_MOST:
                return None
        total += send.stored_bytes
    if memory.strayed:
        return None
    sends.total, sends.records = total, len(sizes)
    return sizes


cdef Queue* queue_of(Queue* queues, Py_ssize_t* count, Send* send, list topics, dict next_offsets) except NULL:
    cdef Py_ssize_t number
    cdef Queue* queue
    for number in range(count[0]):
        queue = &queues[number]
        if queue.queue_id == send.queue_id and queue.topic == send.topic:
            return queue
    queue = &queues[count[0]]
    queue.topic, queue.queue_id = send.topic, send.queue_id
    queue.next = next_offsets.get((topics[send.topic], send.queue_id), 0)
    count[0] += 1
    return queue


cdef Py_ssize_t put_record(
    Bytes* out, Py_ssize_t at, Py_ssize_t size, long long crc, Send* send, int own_flag, long long queue_offset,
    long long position, long long store_time, Bytes* born_host, Bytes* store_host, Bytes* topic, Bytes* memory,
    Py_ssize_t body_at, Py_ssize_t body_bytes,
) noexcept:
    # All but the properties, whose place is returned; their length is what is left of `size`.
    put_number(out, at, 4, size)
    put_number(out, at + 4, 4, MAGIC_V1)
    put_number(out, at + 8, 4, crc)
    put_number(out, at + 12, 4, send.queue_id)
    put_number(out, at + 16, 4, own_flag)
    put_number(out, at + 20, 8, queue_offset)
    put_number(out, at + 28, 8, position)
    put_number(out, at + 36, 4, send.sys_flag & ~HOSTS_IPV6)
    put_number(out, at + 40, 8, send.born)
    put_bytes(out, at + 48, born_host, 0, IPV4_HOST)
    put_number(out, at + 56, 8, store_time)
    put_bytes(out, at + 64, store_host, 0, IPV4_HOST)
    put_number(out, at + 72, 4, send.times)
    put_number(out, at + 76, 8, 0)
    put_number(out, at + 84, 4, body_bytes)
    at = put_bytes(out, at + HEAD_BYTES, memory, body_at, body_bytes)
    put_number(out, at, 1, topic.size)
    at = put_bytes(out, at + 1, topic, 0, topic.size)
    put_number(out, at, 2, size - RECORD_FRAME - topic.size - body_bytes)
    return at + 2


cdef inline Py_ssize_t put_decimal(Bytes* out, Py_ssize_t at, long long value) noexcept:
    # Not negative but for what an opaque may be.
    cdef Byte[24] digits
    cdef int count = 0
    cdef unsigned long long rest
    if value < 0:
        put_number(out, at, 1, 0x2D)
        at += 1
        rest = <unsigned long long>(-value)
    else:
        rest = <unsigned long long>value
    while True:
        digits[count] = <Byte>(0x30 + rest % 10)
        count += 1
        rest //= 10
        if not rest:
            break
    while count:
        count -= 1
        put_number(out, at, 1, digits[count])
        at += 1
    return at


cdef inline Py_ssize_t put_hex(Bytes* out, Py_ssize_t at, Byte* data, Py_ssize_t count) noexcept:
    cdef Py_ssize_t each
    cdef const char* digits = b"0123456789ABCDEF"
    if holds(out, at, 2 * count):
        for each in range(count):
            out.data[at] = digits[data[each] >> 4]
            out.data[at + 1] = digits[data[each] & 15]
            at += 2
    return at


cdef inline Py_ssize_t put_position(Bytes* out, Py_ssize_t at, Bytes* store_host, long long position) noexcept:
    cdef Byte[8] data
    cdef Bytes own
    own.data, own.size, own.strayed = data, 8, False
    put_number(&own, 0, 8, position)
    return put_hex(out, put_hex(out, at, store_host.data, IPV4_HOST), data, 8)


cdef inline Py_ssize_t put_id(Bytes* out, Py_ssize_t at, long long number) noexcept:
    cdef Byte[8] data
    cdef Bytes own
    own.data, own.size, own.strayed = data, 8, False
    put_number(&own, 0, 8, number)
    return put_hex(out, at, data + 8 - ID_DIGITS // 2, ID_DIGITS // 2)


cdef tuple store(
    Sends sends, target, Py_ssize_t at, long long position, Py_ssize_t gap, Py_ssize_t lead, dict next_offsets,
    long long store_time, bytes born_host, bytes store_host, bytes added, reply,
):
    cdef Bytes* memory = &sends.held.memory
    cdef Bytes* text = &sends.text
    cdef Bytes born = bytes_of(born_host), own = bytes_of(store_host), extra = bytes_of(added), topic
    cdef tuple template = reply[0]
    cdef Bytes id_prefix = bytes_of(<bytes>reply[1])
    cdef long long given = reply[2]
    cdef Bytes[6] part
    cdef Held held = Held(target, True)
    cdef Bytes* out = &held.memory
    cdef Bytes replies, head
    cdef Py_ssize_t number, member, count = 0, size, begin, properties_at, reply_at = 0, frame_at = 0
    cdef Py_ssize_t body_at = 0, body_bytes = 0, own_at = 0, own_bytes = 0, member_at, end
    cdef Queue* queues = NULL
    cdef Queue* queue
    cdef Send* send
    cdef int own_flag = 0
    cdef long long crc, record_end = position
    cdef list ends = [], frame_ends = []
    cdef dict amounts = {}
    assert sends.total >= 0 and gap >= 0 and lead >= 0, "measured"
    assert holds(out, at, sends.total + gap * (sends.records - 1)), "there is room"
    assert born.size == IPV4_HOST and own.size == IPV4_HOST and len(template) == 6
    assert 0 <= given < (<long long>1 << 4 * ID_DIGITS) - sends.count, "ids of so many digits"
    for number in range(6):
        part[number] = bytes_of(<bytes>template[number])
    replies.data, replies.strayed = NULL, False
    replies.size = 0
    for number in range(sends.count):
        send = &sends.sends[number]
        replies.size += 4 + 4 + REPLY_NUMBERS + max(send.unique_bytes, id_prefix.size + ID_DIGITS)
        replies.size += send.members * (2 * (IPV4_HOST + 8) + 1)
        for member in range(6):
            replies.size += part[member].size
    try:
        queues = <Queue*>malloc(max(sends.count, 1) * sizeof(Queue))
        replies.data = <Byte*>malloc(replies.size)
        if queues is NULL or replies.data is NULL:
            raise MemoryError()
        for number in range(sends.count):
            send = &sends.sends[number]
            topic = bytes_of(<bytes>sends.topics[send.topic])
            queue = queue_of(queues, &count, send, sends.topics, next_offsets)
            if not send.flag & ONEWAY:
                # the frame's length, the header's length, the header
                frame_at = reply_at
                reply_at = put_bytes(&replies, frame_at + 8, &part[0], 0, part[0].size)
            member_at, end = send.body_at, send.body_at + send.body_bytes
            for member in range(send.members):
                if not send.batch:
                    body_at, body_bytes, own_flag = send.body_at, send.body_bytes, send.own_flag
                    size = send.stored_bytes
                else:
                    if not next_member(
                        memory, &member_at, end, &own_flag, &body_at, &body_bytes, &own_at, &own_bytes
                    ):
                        raise AssertionError("it was measured")
                    size = RECORD_FRAME + topic.size + body_bytes + own_bytes
                crc = checksum_of(memory, body_at, body_bytes) & CRC_MASK
                properties_at = put_record(
                    out, at, size, crc, send, own_flag, queue.next + member, position, store_time, &born, &own, &topic,
                    memory, body_at, body_bytes,
                )
                if not send.batch:
                    properties_at = put_bytes(out, properties_at, text, send.text_at, send.text_bytes)
                    put_bytes(out, properties_at, &extra, 0, extra.size)
                else:
                    put_bytes(out, properties_at, memory, own_at, own_bytes)
                if not send.flag & ONEWAY:
                    if member:
                        put_number(&replies, reply_at, 1, 0x2C)
                        reply_at += 1
                    reply_at = put_position(&replies, reply_at, &own, position)
                record_end = position + size
                at += size + gap
                position = record_end + lead
            given += send.unique_bytes == UNNAMED
            if not send.flag & ONEWAY:
                reply_at = put_bytes(&replies, reply_at, &part[1], 0, part[1].size)
                reply_at = put_decimal(&replies, reply_at, send.queue_id)
                reply_at = put_bytes(&replies, reply_at, &part[2], 0, part[2].size)
                reply_at = put_decimal(&replies, reply_at, queue.next)
                reply_at = put_bytes(&replies, reply_at, &part[3], 0, part[3].size)
                if send.unique_bytes == UNNAMED:
                    reply_at = put_bytes(&replies, reply_at, &id_prefix, 0, id_prefix.size)
                    reply_at = put_id(&replies, reply_at, given)
                else:
                    reply_at = put_bytes(&replies, reply_at, text, send.unique_at, send.unique_bytes)
                reply_at = put_bytes(&replies, reply_at, &part[4], 0, part[4].size)
                reply_at = put_decimal(&replies, reply_at, send.opaque)
                reply_at = put_bytes(&replies, reply_at, &part[5], 0, part[5].size)
                put_number(&replies, frame_at, 4, reply_at - frame_at - 4)
                put_number(&replies, frame_at + 4, 4, reply_at - frame_at - 8)
                ends.append(record_end)
                frame_ends.append(reply_at)
            queue.next += send.members
            kind = (sends.topics[send.topic], send.stored_bytes, send.members)
            amounts[kind] = amounts.get(kind, 0) + 1
        assert not (memory.strayed or text.strayed or out.strayed or replies.strayed or id_prefix.strayed), "what was measured has room"
        for number in range(count):
            next_offsets[sends.topics[queues[number].topic], queues[number].queue_id] = queues[number].next
        return record_end, ends, PyBytes_FromStringAndSize(<char*>replies.data, reply_at), frame_ends, amounts
    finally:
        free(queues)
        free(replies.data)
