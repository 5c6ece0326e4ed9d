cdef enum:
    MEMBERS_MOST = 32           # of the ext fields of a signed send
    DIGEST_BYTES = 20
    SIGNATURE_BYTES = 28        # in base64
    COPIED_MOST = 4096          # bytes of a body


cdef struct Member:
    Py_ssize_t key_at
    Py_ssize_t key_bytes
    Py_ssize_t value_at
    Py_ssize_t value_bytes


cdef inline Py_ssize_t quote_after(Bytes* memory, Py_ssize_t at, Py_ssize_t end) noexcept:
    # The quote that ends a text which begins at `at`; `end` if none does. A quote after an odd number of backslashes is escaped.
    cdef Byte* quote
    cdef Py_ssize_t found, escape
    while at < end:
        quote = <Byte*>memchr(memory.data + at, 0x22, end - at)
        if quote is NULL:
            return end
        found = escape = quote - memory.data
        while escape > at and memory.data[escape - 1] == 0x5C:
            escape -= 1
        if (found - escape) % 2 == 0:
            return found
        at = found + 1
    return end


cdef inline int key_order(Bytes* memory, Member* one, Member* other) noexcept:
    # Negative, 0 or positive, as in Java's String.compareTo, because keys are ASCII.
    cdef Py_ssize_t size = min(one.key_bytes, other.key_bytes)
    cdef int order = 0
    if holds(memory, one.key_at, size) and holds(memory, other.key_at, size):
        order = memcmp(memory.data + one.key_at, memory.data + other.key_at, size)
    return order if order else (one.key_bytes > other.key_bytes) - (one.key_bytes < other.key_bytes)


cdef inline bint put_in_order(Bytes* memory, Member* members, Py_ssize_t count, Member* member) noexcept:
    # Inserts the member into `count` others, which are in the order of their keys. False if one has its key, or for too many.
    cdef Py_ssize_t place = count
    cdef int order
    if count == MEMBERS_MOST:
        return False
    while place > 0:
        order = key_order(memory, member, &members[place - 1])
        if order == 0:
            return False
        if order > 0:
            break
        members[place] = members[place - 1]
        place -= 1
    members[place] = member[0]
    return True


cdef Py_ssize_t signed_members(Bytes* memory, Py_ssize_t at, Py_ssize_t end, Member* members) noexcept:
    # Lists the members of the object at `at` that are signed, in the order of their keys, and returns how many they are; -1 for
    # too many, if a key occurs twice, and with the key that old clients do not sign. read_ext accepted the object.
    cdef Py_ssize_t count = 0, key_end
    cdef Member member
    while at < end and memory.data[at] != 0x7D:
        member.key_at = after_space(memory, at + 1, end) + 1
        key_end = quote_after(memory, member.key_at, end)
        member.key_bytes = key_end - member.key_at
        at = after_space(memory, key_end + 1, end)
        member.value_at = after_space(memory, at + 1, end) + 1
        at = quote_after(memory, member.value_at, end)
        member.value_bytes = at - member.value_at
        at = after_space(memory, at + 1, end)
        if same(memory, member.key_at, member.key_bytes, b"_UNIQUE_KEY_QUERY", 17):
            return -1
        if same(memory, member.key_at, member.key_bytes, b"Signature", 9):
            continue  # read_ext accepts one
        if not put_in_order(memory, members, count, &member):
            return -1
        count += 1
    return count


cdef bint put_values(Bytes* text, Py_ssize_t* out, Bytes* memory, Send* send) noexcept:
    # Writes the values that are signed to the text of all, at `out`, which moves behind them. False for a send that is plain only
    # without an AccessKey.
    cdef Member[MEMBERS_MOST] members
    cdef Member* member
    cdef Py_ssize_t number, count = signed_members(memory, send.ext_at, send.body_at, members)
    send.values_at = out[0]
    for number in range(count):
        member = &members[number]
        if same(memory, member.key_at, member.key_bytes, b"i", 1):
            out[0] = put_bytes(text, out[0], text, send.text_at, send.sent_bytes)
        else:
            out[0] = put_bytes(text, out[0], memory, member.value_at, member.value_bytes)
    send.values_bytes = out[0] - send.values_at
    return count >= 0


cdef int put_all_values(Sends found) except -1:
    # Writes the values that are signed, of each signed send. False where one of them is not plain.
    cdef Py_ssize_t number
    cdef Send* send
    for number in range(found.count):
        send = &found.sends[number]
        if send.access_key == UNSIGNED:
            continue
        found.text_room(send.body_at - send.ext_at)
        if not put_values(&found.text, &found.text_used, &found.held.memory, send):
            return False
    return not found.text.strayed


cdef int pair_up(Sends found) except -1:
    # Lists the pairs of access key and topic; False for too many.
    cdef Py_ssize_t[SIGNERS_MOST] access_keys
    cdef Py_ssize_t[SIGNERS_MOST] topics
    cdef Py_ssize_t number, pair, count = 0
    cdef Send* send
    found.pairs = []
    for number in range(found.count):
        send = &found.sends[number]
        pair = count - 1
        while pair >= 0 and (access_keys[pair] != send.access_key or topics[pair] != send.topic):
            pair -= 1
        if pair >= 0:
            continue
        if count == SIGNERS_MOST:
            return False
        access_keys[count], topics[count] = send.access_key, send.topic
        count += 1
        access_key = b"" if send.access_key == UNSIGNED else found.access_keys[send.access_key]
        found.pairs.append((access_key, found.topics[send.topic]))
    return True


cdef bint all_signed(Sends sends, states) except -1:
    cdef list found = []
    cdef Py_ssize_t number
    cdef Send* send
    for access_key in sends.access_keys or ():
        state = states.get(access_key)
        if state is None:
            return False
        found.append(state)
    for number in range(sends.count):
        send = &sends.sends[number]
        if send.access_key == UNSIGNED or not is_signed(sends, send, <tuple?>found[send.access_key]):
            return False
    return True


cdef bint is_signed(Sends sends, Send* send, tuple state) except -1:
    # RFC 2104: the outer hash is that of the inner one's digest.
    cdef Bytes digest
    if send.signature_bytes != SIGNATURE_BYTES:
        return False
    inner, outer = state[0].copy(), state[1].copy()
    hash_content(sends, send, inner)
    outer.update(inner.digest())
    signed = outer.digest()
    digest = bytes_of(<bytes?>signed)
    assert digest.size == DIGEST_BYTES, "of SHA-1"
    return is_base64_of(&sends.held.memory, send.signature_at, digest.data)


cdef int hash_content(Sends sends, Send* send, hashed) except -1:
    # A small body is copied behind its values, because a second call takes longer.
    cdef Bytes* text = &sends.text
    cdef Bytes* memory = &sends.held.memory
    cdef Py_ssize_t at = sends.text_used, size = send.values_bytes + send.body_bytes
    assert holds(text, send.values_at, send.values_bytes) and holds(memory, send.body_at, send.body_bytes), "it was read"
    if send.body_bytes <= COPIED_MOST:
        sends.text_room(size)
        put_bytes(text, put_bytes(text, at, text, send.values_at, send.values_bytes), memory, send.body_at, send.body_bytes)
        hashed.update(PyMemoryView_FromMemory(<char*>text.data + at, size, PyBUF_READ))
    else:
        hashed.update(PyMemoryView_FromMemory(<char*>text.data + send.values_at, send.values_bytes, PyBUF_READ))
        hashed.update(PyMemoryView_FromMemory(<char*>memory.data + send.body_at, send.body_bytes, PyBUF_READ))
    return 0


cdef bint is_base64_of(Bytes* memory, Py_ssize_t at, Byte* digest) noexcept:
    # The time does not depend on how many characters are right.
    cdef const char* digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    cdef Byte[SIGNATURE_BYTES] right
    cdef int each, differences = 0
    cdef unsigned int word
    if not holds(memory, at, SIGNATURE_BYTES):
        return False
    for each in range(SIGNATURE_BYTES // 4):
        word = <unsigned int>digest[3 * each] << 16 | <unsigned int>digest[3 * each + 1] << 8
        if 3 * each + 2 < DIGEST_BYTES:
            word |= digest[3 * each + 2]
        right[4 * each] = digits[word >> 18 & 63]
        right[4 * each + 1] = digits[word >> 12 & 63]
        right[4 * each + 2] = digits[word >> 6 & 63]
        right[4 * each + 3] = digits[word & 63]
    right[SIGNATURE_BYTES - 1] = 0x3D  # padding
    for each in range(SIGNATURE_BYTES):
        differences |= right[each] ^ memory.data[at + each]
    return differences == 0
