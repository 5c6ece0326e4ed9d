ctypedef unsigned char Byte

cdef struct Bytes:
    # Memory of `size` bytes. `strayed`: somebody asked for what is outside.
    Byte* data
    Py_ssize_t size
    bint strayed


cdef inline bint holds(Bytes* memory, Py_ssize_t at, Py_ssize_t count) noexcept:
    if at < 0 or count < 0 or count > memory.size or at > memory.size - count:
        memory.strayed = True
        return False
    return True


cdef inline int byte_at(Bytes* memory, Py_ssize_t at) noexcept:
    if at < 0 or at >= memory.size:
        memory.strayed = True
        return 0
    return memory.data[at]


cdef inline long long number_at(Bytes* memory, Py_ssize_t at, int width) noexcept:
    # A big-endian number of 2, 4 or 8 bytes; of 2 bytes unsigned, else with its sign.
    cdef unsigned long long value = 0
    cdef Byte* data
    cdef int each
    if not holds(memory, at, width):
        return 0
    data = memory.data + at
    if width == 4:
        return <int>(<unsigned int>data[0] << 24 | <unsigned int>data[1] << 16 | <unsigned int>data[2] << 8 | data[3])
    for each in range(width):
        value = value << 8 | data[each]
    return <long long>value


cdef inline void put_number(Bytes* memory, Py_ssize_t at, int width, long long value) noexcept:
    cdef unsigned long long rest = <unsigned long long>value
    cdef Byte* data
    cdef int each
    if holds(memory, at, width):
        data = memory.data + at
        for each in range(width - 1, -1, -1):
            data[each] = <Byte>(rest & 0xFF)
            rest >>= 8


cdef inline Py_ssize_t put_bytes(Bytes* memory, Py_ssize_t at, Bytes* source, Py_ssize_t begin, Py_ssize_t count) noexcept:
    # Where what follows goes.
    if holds(memory, at, count) and holds(source, begin, count):
        memcpy(memory.data + at, source.data + begin, count)
    return at + count


cdef inline bint same(Bytes* memory, Py_ssize_t at, Py_ssize_t count, const char* wanted, Py_ssize_t wanted_size) noexcept:
    return count == wanted_size and holds(memory, at, count) and memcmp(memory.data + at, wanted, count) == 0


cdef inline bint has_zero(Bytes* memory, Py_ssize_t at, Py_ssize_t count) noexcept:
    return not holds(memory, at, count) or (count > 0 and memchr(memory.data + at, 0, count) != NULL)


cdef Bytes bytes_of(bytes text) except *:
    cdef Bytes found
    cdef char* data
    PyBytes_AsStringAndSize(text, &data, &found.size)
    found.data = <Byte*>data
    found.strayed = False
    return found


cdef class Held:
    # The memory of an object with a buffer, for as long as this lives.
    cdef Py_buffer buffer
    cdef Bytes memory
    cdef bint is_held

    def __cinit__(self, owner, bint writable):
        self.is_held = False
        PyObject_GetBuffer(owner, &self.buffer, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.is_held = True
        self.memory.data = <Byte*>self.buffer.buf
        self.memory.size = self.buffer.len
        self.memory.strayed = False

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.buffer)
