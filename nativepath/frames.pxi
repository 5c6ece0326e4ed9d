cdef enum:
    KIND_OTHER, KIND_TOPIC, KIND_QUEUE_NUMS, KIND_QUEUE_ID, KIND_SYS_FLAG, KIND_BORN, KIND_FLAG, KIND_PROPERTIES, KIND_TIMES
    KIND_BATCH, KIND_ACCESS_KEY, KIND_SIGNATURE
    NEEDED = 1 << KIND_TOPIC | 1 << KIND_QUEUE_ID | 1 << KIND_PROPERTIES

cdef enum:
    SEND_V2 = 310
    SEND_BATCH = 320
    ONEWAY = 2
    TRANSACTION = 0xC
    HOSTS_IPV6 = 0x30
    DIGITS_MAX = 18
    I32_MOST = 0x7FFFFFFF
    NAME_END = 1
    PIECE_END = 2
    UNIQUE_NAME_BYTES = 8
    UNNAMED = -1
    SENDS_FIRST = 16
    TOPICS_MOST = 64            # of one receive: each send looks for its own among them; as many access keys
    SIGNERS_MOST = 64           # pairs of the two
    UNSIGNED = -1
    TEXT_FIRST = 4096


cdef struct Send:
    int opaque
    int flag
    int queue_id
    int sys_flag
    int own_flag
    int times
    long long born
    bint batch
    Py_ssize_t topic
    Py_ssize_t text_at          # properties, in the text of all
    Py_ssize_t text_bytes
    Py_ssize_t sent_bytes       # of the properties as sent: without a PIECE_END that was added
    Py_ssize_t unique_at        # the value of UNIQ_KEY, there too
    Py_ssize_t unique_bytes     # UNNAMED: of a batch that has none
    Py_ssize_t body_at          # in the buffer
    Py_ssize_t body_bytes
    Py_ssize_t members          # records that it becomes, and their bytes; once measured
    Py_ssize_t stored_bytes
    Py_ssize_t ext_at           # the ext fields, in the buffer
    Py_ssize_t access_key       # its number; or UNSIGNED
    Py_ssize_t signature_at     # in the buffer
    Py_ssize_t signature_bytes
    Py_ssize_t values_at        # of a signed one: the values that are signed in front of the body, in the text of all
    Py_ssize_t values_bytes


cdef class Sends:
    # See native.pyi.
    cdef readonly object view
    cdef readonly Py_ssize_t begin
    cdef readonly Py_ssize_t end
    cdef readonly int code
    cdef readonly list topics
    cdef readonly Py_ssize_t unnamed
    cdef list access_keys           # None: there are none
    cdef list pairs                 # of access key and topic; None without access keys
    cdef Held held
    cdef Send* sends
    cdef Py_ssize_t count
    cdef Py_ssize_t room
    cdef Bytes text
    cdef Py_ssize_t text_used
    cdef Py_ssize_t total          # bytes of all records, once measured, and how many they are
    cdef Py_ssize_t records

    def __cinit__(self):
        self.sends = NULL
        self.text.data = NULL
        self.count = self.room = self.text_used = self.unnamed = 0
        self.text.size = 0
        self.text.strayed = False
        self.total = -1
        self.records = 0

    def __dealloc__(self):
        free(self.sends)
        free(self.text.data)

    cdef Send* next_send(self) except NULL:
        cdef Send* grown
        cdef Py_ssize_t room
        if self.count == self.room:
            room = max(2 * self.room, SENDS_FIRST)
            grown = <Send*>realloc(self.sends, room * sizeof(Send))
            if grown is NULL:
                raise MemoryError()
            self.sends, self.room = grown, room
        return &self.sends[self.count]

    cdef int text_room(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t size
        cdef Byte* grown
        if self.text.size - self.text_used < more:
            size = max(2 * self.text.size, self.text_used + more, TEXT_FIRST)
            grown = <Byte*>realloc(self.text.data, size)
            if grown is NULL:
                raise MemoryError()
            self.text.data, self.text.size = grown, size
        return 0

    cdef Py_ssize_t topic_number(self, Bytes* memory, Py_ssize_t at, Py_ssize_t size) except -2:
        return number_of(self.topics, memory, at, size)

    cdef Py_ssize_t access_key_number(self, Bytes* memory, Py_ssize_t at, Py_ssize_t size) except -2:
        if self.access_keys is None:
            self.access_keys = []
        return number_of(self.access_keys, memory, at, size) if size else -1

    @property
    def signers(self):
        """See native.pyi."""
        return [(b"", topic) for topic in self.topics] if self.pairs is None else self.pairs

    def signed_by(self, states):
        """See native.pyi."""
        return all_signed(self, states)

    def queues_within(self, list limits):
        """Whether each send names a queue below the limit of its topic."""
        cdef Py_ssize_t number
        for number in range(self.count):
            if self.sends[number].queue_id >= <long long>limits[self.sends[number].topic]:
                return False
        return True

    def measured(self, bytes added_properties, Py_ssize_t body_bytes_max, Py_ssize_t record_bytes_max):
        """See native.pyi."""
        return measure(self, added_properties, body_bytes_max, record_bytes_max)

    def stored(
        self, target, Py_ssize_t at, long long physical_offset, Py_ssize_t gap, Py_ssize_t lead, dict next_offsets,
        long long store_timestamp, bytes born_host, bytes store_host, bytes added_properties, reply,
    ):
        """See native.pyi."""
        return store(
            self, target, at, physical_offset, gap, lead, next_offsets, store_timestamp, born_host, store_host,
            added_properties, reply,
        )


cdef Py_ssize_t number_of(list texts, Bytes* memory, Py_ssize_t at, Py_ssize_t size) except -2:
    # The text's place in the list, to which a new text is added; -1 if the list is full.
    cdef Py_ssize_t number
    cdef Bytes known
    for number in range(len(texts) - 1, -1, -1):
        known = bytes_of(<bytes>texts[number])
        if same(memory, at, size, <char*>known.data, known.size):
            return number
    if len(texts) == TOPICS_MOST or not holds(memory, at, size):
        return -1
    texts.append(PyBytes_FromStringAndSize(<char*>memory.data + at, size))
    return len(texts) - 1


def read_sends(view, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t frame_bytes_max, Py_ssize_t header_bytes_max):
    """See native.pyi."""
    cdef Sends found
    cdef Bytes* memory
    cdef Py_ssize_t at = begin, frame_bytes, header_bytes, header_end, frame_end
    cdef long long word
    cdef Send* send
    cdef Held held = Held(view, False)
    memory = &held.memory
    if not 0 <= begin <= end <= memory.size or end - begin < 8 or byte_at(memory, begin + 4) != 0:
        return None
    found = Sends.__new__(Sends)
    found.view, found.held, found.begin, found.topics, found.code = view, held, begin, [], 0
    while end - at >= 8:
        frame_bytes = 4 + (number_at(memory, at, 4) & 0xFFFFFFFF)
        word = number_at(memory, at + 4, 4) & 0xFFFFFFFF
        header_bytes = word & 0xFFFFFF
        if not 8 <= frame_bytes <= frame_bytes_max or word >> 24 or not header_bytes or header_bytes > header_bytes_max:
            return None
        header_end, frame_end = at + 8 + header_bytes, at + frame_bytes
        if header_end > frame_end:
            return None
        if frame_end > end:
            break
        send = found.next_send()
        found.text_room(header_bytes + 1)
        if not read_header(found, memory, at + 8, header_end, send):
            return None
        send.body_at, send.body_bytes = header_end, frame_end - header_end
        send.members = send.stored_bytes = 0
        found.unnamed += send.unique_bytes == UNNAMED
        found.count += 1
        at = frame_end
    if not found.count or memory.strayed or found.text.strayed:
        return None
    if found.access_keys is not None and not (put_all_values(found) and pair_up(found)):
        return None
    if 0 < end - at < 8 and end - at >= 4 and not 8 <= 4 + (number_at(memory, at, 4) & 0xFFFFFFFF) <= frame_bytes_max:
        return None
    found.end = at
    return found


cdef inline Py_ssize_t after_space(Bytes* memory, Py_ssize_t at, Py_ssize_t end) noexcept:
    cdef int byte
    while at < end:
        byte = memory.data[at]
        if byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09:
            break
        at += 1
    return at


cdef inline Py_ssize_t text_end(Bytes* memory, Py_ssize_t at, Py_ssize_t end) noexcept:
    # Where the quote stands that ends a plain text which begins at `at`; -1 for one that is not plain.
    cdef int byte
    while at < end:
        byte = memory.data[at]
        if byte == 0x22:
            return at
        if byte == 0x5C or byte < 0x20 or byte > 0x7E:
            return -1
        at += 1
    return -1


cdef Py_ssize_t whole_end(Bytes* memory, Py_ssize_t at, Py_ssize_t end, long long* value) noexcept:
    # Where a plain decimal ends; -1 where there is none.
    cdef Py_ssize_t begin
    cdef bint minus = at < end and memory.data[at] == 0x2D
    cdef long long found = 0
    if minus:
        at += 1
    begin = at
    while at < end and 0x30 <= memory.data[at] <= 0x39:
        if at - begin == DIGITS_MAX:
            return -1
        found = 10 * found + (memory.data[at] - 0x30)
        at += 1
    if at == begin or (memory.data[begin] == 0x30 and (at - begin > 1 or minus)):
        return -1
    value[0] = -found if minus else found
    return at


cdef inline bint i32_in(Bytes* memory, Py_ssize_t at, Py_ssize_t end, int* value) noexcept:
    cdef long long found = 0
    if whole_end(memory, at, end, &found) != end or not -I32_MOST <= found <= I32_MOST:
        return False
    value[0] = <int>found
    return True


cdef int read_header(Sends found, Bytes* memory, Py_ssize_t at, Py_ssize_t end, Send* send) except -1:
    # Whether the header is that of a plain send; `at` and `end` lie within the memory.
    cdef Py_ssize_t key_at, key_end
    cdef long long value = 0
    cdef bint has_code = False, has_ext = False, has_opaque = False, has_flag = False
    send.opaque = send.flag = 0
    at = after_space(memory, at, end)
    if at >= end or memory.data[at] != 0x7B:
        return 0
    at += 1
    while True:
        at = after_space(memory, at, end)
        if at >= end or memory.data[at] != 0x22:
            return 0
        key_at, key_end = at + 1, text_end(memory, at + 1, end)
        if key_end < 0:
            return 0
        at = after_space(memory, key_end + 1, end)
        if at >= end or memory.data[at] != 0x3A:
            return 0
        at = after_space(memory, at + 1, end)
        if at >= end:
            return 0
        if same(memory, key_at, key_end - key_at, b"extFields", 9):
            if has_ext or not has_code:
                return 0
            has_ext = True
            at = read_ext(found, memory, at, end, send)
        elif same(memory, key_at, key_end - key_at, b"code", 4):
            at = whole_end(memory, at, end, &value)
            if has_code or (value != SEND_V2 and value != SEND_BATCH) or (found.code and value != found.code):
                return 0
            has_code, found.code = True, <int>value
        elif same(memory, key_at, key_end - key_at, b"opaque", 6):
            at = whole_end(memory, at, end, &value)
            if has_opaque or not -I32_MOST <= value <= I32_MOST:
                return 0
            has_opaque, send.opaque = True, <int>value
        elif same(memory, key_at, key_end - key_at, b"flag", 4):
            at = whole_end(memory, at, end, &value)
            if has_flag or (value != 0 and value != ONEWAY):
                return 0
            has_flag, send.flag = True, <int>value
        elif same(memory, key_at, key_end - key_at, b"version", 7):
            at = whole_end(memory, at, end, &value)
            if not 0 <= value <= I32_MOST:
                return 0
        elif (
            same(memory, key_at, key_end - key_at, b"language", 8)
            or same(memory, key_at, key_end - key_at, b"serializeTypeCurrentRPC", 23)
        ):
            if memory.data[at] != 0x22:
                return 0
            at = text_end(memory, at + 1, end)
            if at >= 0:
                at += 1
        else:
            return 0
        if at < 0:
            return 0
        at = after_space(memory, at, end)
        if at >= end:
            return 0
        if memory.data[at] == 0x7D:
            return has_code and has_ext and has_opaque and after_space(memory, at + 1, end) == end
        if memory.data[at] != 0x2C:
            return 0
        at += 1


cdef inline int kind_of(int name) noexcept:
    # What a member of the short form is, by its letter.
    if name == 0x62:
        return KIND_TOPIC
    if name == 0x64:
        return KIND_QUEUE_NUMS
    if name == 0x65:
        return KIND_QUEUE_ID
    if name == 0x66:
        return KIND_SYS_FLAG
    if name == 0x67:
        return KIND_BORN
    if name == 0x68:
        return KIND_FLAG
    if name == 0x69:
        return KIND_PROPERTIES
    if name == 0x6A:
        return KIND_TIMES
    if name == 0x6D:
        return KIND_BATCH
    return KIND_OTHER


cdef inline int long_kind_of(Bytes* memory, Py_ssize_t at, Py_ssize_t size) noexcept:
    # What a member is whose name has more than one letter.
    if same(memory, at, size, b"AccessKey", 9):
        return KIND_ACCESS_KEY
    if same(memory, at, size, b"Signature", 9):
        return KIND_SIGNATURE
    return KIND_OTHER


cdef Py_ssize_t read_ext(Sends found, Bytes* memory, Py_ssize_t at, Py_ssize_t end, Send* send) except -2:
    # Where the object ends; -1 where it is not that of a plain send.
    cdef Py_ssize_t key_at, key_end, value_at, value_end
    cdef int kind, seen = 0
    send.sys_flag = send.own_flag = send.times = 0
    send.born = 0
    send.batch = False
    send.ext_at, send.access_key, send.signature_bytes = at, UNSIGNED, 0
    if memory.data[at] != 0x7B:
        return -1
    at += 1
    while True:
        at = after_space(memory, at, end)
        if at >= end or memory.data[at] != 0x22:
            return -1
        key_at, key_end = at + 1, text_end(memory, at + 1, end)
        if key_end < 0:
            return -1
        at = after_space(memory, key_end + 1, end)
        if at >= end or memory.data[at] != 0x3A:
            return -1
        at = after_space(memory, at + 1, end)
        if at >= end or memory.data[at] != 0x22:
            return -1
        value_at = at + 1
        if key_end - key_at == 1:
            kind = kind_of(memory.data[key_at])
        else:
            kind = long_kind_of(memory, key_at, key_end - key_at)
        if kind != KIND_OTHER:
            if seen & 1 << kind:
                return -1
            seen |= 1 << kind
        if kind == KIND_PROPERTIES:
            value_end = read_properties(found, memory, value_at, end, send)
            if value_end < 0:
                return -1
        else:
            value_end = text_end(memory, value_at, end)
            if value_end < 0 or not read_value(found, memory, kind, value_at, value_end, send):
                return -1
        at = after_space(memory, value_end + 1, end)
        if at >= end:
            return -1
        if memory.data[at] == 0x7D:
            if seen & NEEDED != NEEDED or (send.unique_bytes == UNNAMED and not send.batch):
                return -1
            return at + 1
        if memory.data[at] != 0x2C:
            return -1
        at += 1


cdef inline int read_value(Sends found, Bytes* memory, int kind, Py_ssize_t at, Py_ssize_t end, Send* send) except -1:
    # Whether a plain send may have this value; read_properties reads that of the properties.
    cdef long long value = 0
    if kind == KIND_TOPIC:
        send.topic = found.topic_number(memory, at, end - at)
        return send.topic >= 0
    if kind == KIND_QUEUE_NUMS:
        return whole_end(memory, at, end, &value) == end
    if kind == KIND_QUEUE_ID:
        return i32_in(memory, at, end, &send.queue_id) and send.queue_id >= 0
    if kind == KIND_SYS_FLAG:
        return i32_in(memory, at, end, &send.sys_flag) and not send.sys_flag & TRANSACTION
    if kind == KIND_BORN:
        return whole_end(memory, at, end, &send.born) == end
    if kind == KIND_FLAG:
        return i32_in(memory, at, end, &send.own_flag)
    if kind == KIND_TIMES:
        return i32_in(memory, at, end, &send.times)
    if kind == KIND_BATCH:
        send.batch = is_true(memory, at, end - at)
    elif kind == KIND_ACCESS_KEY:
        send.access_key = found.access_key_number(memory, at, end - at)
        return send.access_key >= 0
    elif kind == KIND_SIGNATURE:
        send.signature_at, send.signature_bytes = at, end - at
    return 1


cdef inline bint is_true(Bytes* memory, Py_ssize_t at, Py_ssize_t size) noexcept:
    return (
        same(memory, at, size, b"true", 4)
        or same(memory, at, size, b"1", 1)
        or same(memory, at, size, b"True", 4)
        or same(memory, at, size, b"TRUE", 4)
    )


cdef inline int hex_digit(int byte) noexcept:
    if 0x30 <= byte <= 0x39:
        return byte - 0x30
    if 0x61 <= byte <= 0x66:
        return byte - 0x61 + 10
    if 0x41 <= byte <= 0x46:
        return byte - 0x41 + 10
    return -1


cdef Py_ssize_t read_properties(Sends found, Bytes* memory, Py_ssize_t at, Py_ssize_t end, Send* send) except -2:
    # Writes the properties, in stored form, to the text of all; where the quote stands that ends them, -1 for any that a plain
    # send has not. Whoever calls has made room for all of the header and a byte.
    cdef Bytes* text = &found.text
    cdef Py_ssize_t begin = found.text_used, out = found.text_used, piece = found.text_used, name_end = -1
    cdef Py_ssize_t unique = -1, size
    cdef int byte, high, low
    cdef bint is_ended = False
    if not holds(text, begin, end - at + 1):
        return -1
    while True:
        if at >= end:
            return -1
        byte = memory.data[at]
        at += 1
        if byte == 0x22:
            if out == begin or text.data[out - 1] == PIECE_END:
                break
            at -= 1  # read again, behind the end of the last piece
            byte = PIECE_END
            is_ended = True
        elif byte == 0x5C:
            if at >= end:
                return -1
            byte = memory.data[at]
            at += 1
            if byte == 0x75:
                if end - at < 4 or memory.data[at] != 0x30 or memory.data[at + 1] != 0x30:
                    return -1
                high, low = hex_digit(memory.data[at + 2]), hex_digit(memory.data[at + 3])
                if not 0 <= high <= 7 or low < 0:
                    return -1
                byte = high << 4 | low
                at += 4
                if byte == 0:
                    return -1
            elif byte == 0x6E:
                byte = 0x0A
            elif byte == 0x74:
                byte = 0x09
            elif byte == 0x72:
                byte = 0x0D
            elif byte == 0x62:
                byte = 0x08
            elif byte == 0x66:
                byte = 0x0C
            elif byte != 0x22 and byte != 0x5C and byte != 0x2F:
                return -1
        elif byte < 0x20 or byte > 0x7E:
            return -1
        if byte == NAME_END:
            if out - piece >= UNIQUE_NAME_BYTES and memcmp(text.data + out - UNIQUE_NAME_BYTES, b"UNIQ_KEY", 8) == 0:
                unique = out - UNIQUE_NAME_BYTES
                if unique != piece:
                    return -1
            if name_end < 0:
                name_end = out
                size = out - piece
                if (
                    same(text, piece, size, b"DELAY", 5)
                    or same(text, piece, size, b"TRAN_MSG", 8)
                    or same(text, piece, size, b"REPLY_TO_CLIENT", 15)
                    or (size >= 9 and memcmp(text.data + piece, b"TIMER_DEL", 9) == 0)
                ):
                    return -1
        elif byte == PIECE_END:
            if name_end - piece == 4 and memcmp(text.data + piece, b"WAIT", 4) == 0:
                if not same(text, name_end + 1, out - name_end - 1, b"true", 4):
                    return -1
            if unique == piece:
                send.unique_at = unique + UNIQUE_NAME_BYTES + 1
                send.unique_bytes = out - send.unique_at
            piece, name_end = out + 1, -1
        text.data[out] = <Byte>byte
        out += 1
    if unique < 0:
        send.unique_at, send.unique_bytes = begin, UNNAMED
    for size in range(send.unique_at, send.unique_at + send.unique_bytes):
        byte = text.data[size]
        if byte < 0x20 or byte > 0x7E or byte == 0x22 or byte == 0x5C:
            return -1
    send.text_at, send.text_bytes, send.sent_bytes = begin, out - begin, out - begin - is_ended
    found.text_used = out
    return at - 1
