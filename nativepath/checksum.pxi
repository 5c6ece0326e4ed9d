cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define FOLD_BYTES 64

    static int folds_crc(void) {
        return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    }

    #define FOLDED(x, k) _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11))

    __attribute__((target("pclmul,sse4.1")))
    static uint32_t folded_crc(const unsigned char *data, size_t size, uint32_t crc) {
        /* Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), reflected */
        const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
        const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i by_4 = _mm_set_epi64x(0, 0x0163cd6124);
        const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
        const __m128i low = _mm_setr_epi32(~0, 0, ~0, 0);
        const __m128i *next = (const __m128i *)data;
        __m128i a = _mm_xor_si128(_mm_loadu_si128(next), _mm_cvtsi32_si128((int)crc));
        __m128i b = _mm_loadu_si128(next + 1), c = _mm_loadu_si128(next + 2), d = _mm_loadu_si128(next + 3), rest;
        for (next += 4, size -= 64; size >= 64; next += 4, size -= 64) {
            a = _mm_xor_si128(FOLDED(a, by_64), _mm_loadu_si128(next));
            b = _mm_xor_si128(FOLDED(b, by_64), _mm_loadu_si128(next + 1));
            c = _mm_xor_si128(FOLDED(c, by_64), _mm_loadu_si128(next + 2));
            d = _mm_xor_si128(FOLDED(d, by_64), _mm_loadu_si128(next + 3));
        }
        a = _mm_xor_si128(FOLDED(a, by_16), b);
        a = _mm_xor_si128(FOLDED(a, by_16), c);
        a = _mm_xor_si128(FOLDED(a, by_16), d);
        for (; size >= 16; next += 1, size -= 16)
            a = _mm_xor_si128(FOLDED(a, by_16), _mm_loadu_si128(next));
        a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_16, 0x10));
        a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low), by_4, 0x00));
        rest = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low), polynomial, 0x10), low);
        a = _mm_xor_si128(a, _mm_clmulepi64_si128(rest, polynomial, 0x00));
        return (uint32_t)_mm_extract_epi32(a, 1);
    }
    #else
    #define FOLD_BYTES 64
    static int folds_crc(void) { return 0; }
    static uint32_t folded_crc(const unsigned char *data, size_t size, uint32_t crc) { return crc; }
    #endif
    """
    int FOLD_BYTES
    int folds_crc() nogil
    unsigned int folded_crc(const Byte* data, size_t size, unsigned int crc) nogil
    # of 64 bytes or more, a multiple of 16; neither end inverted

cdef unsigned int[256] CRC_TABLE
cdef bint FOLDS = folds_crc() != 0


cdef void make_crc_table() noexcept:
    cdef unsigned int value
    cdef int each, bit
    for each in range(256):
        value = each
        for bit in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        CRC_TABLE[each] = value


make_crc_table()


cdef long long checksum_of(Bytes* memory, Py_ssize_t at, Py_ssize_t count, unsigned int before=0) except -1:
    # The CRC-32 of these bytes, continued from `before`, as zlib's, which does it where this processor has no instruction for it.
    cdef unsigned int crc = before ^ 0xFFFFFFFFu
    cdef Py_ssize_t folded = 0, each
    if not holds(memory, at, count):
        return 0
    if not FOLDS:
        return crc32(PyMemoryView_FromMemory(<char*>memory.data + at, count, PyBUF_READ), before)
    if count >= FOLD_BYTES:
        folded = count - count % 16
        crc = folded_crc(memory.data + at, folded, crc)
    for each in range(at + folded, at + count):
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ memory.data[each]) & 0xFF]
    return <long long>(crc ^ 0xFFFFFFFFu)


def checksum(buffer, unsigned int before=0):
    """See native.pyi."""
    cdef Held held = Held(buffer, False)
    return checksum_of(&held.memory, 0, held.memory.size, before)
