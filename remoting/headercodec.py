"""The two encodings of a command's header: JSON (type 0) and ROCKETMQ (type 1).

Any frame, in either direction, may use either encoding; the frame's type byte names it. JSON is written unless the command
names the other encoding. Invariant: a decoded header has string ext values and Java-sized integers, or FrameError is raised.
Bytes that are not UTF-8 become U+FFFD, as Java reads them. Pure."""

from __future__ import annotations

import re
from struct import Struct
from typing import Any

import orjson

from remoting import fastjson
from remoting.command import JSON, ROCKETMQ, RemotingCommand
from remoting.errors import FrameError
from remoting.wirefields import I32_RANGE, parse_integer

LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER",
    "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
)  # fmt: skip
OTHER_LANGUAGE = LANGUAGES.index("OTHER")
_LANGUAGE_NUMBERS = {name: number for number, name in enumerate(LANGUAGES)}

FIXED = Struct(
    ">"  # offset field
    "h"  #  0 code       truncated to 16 bits, so codes above 32767 do not survive
    "B"  #  2 language   index into LANGUAGES
    "h"  #  3 version
    "i"  #  5 opaque
    "i"  #  9 flag
    "i"  # 13 remark_size; the remark follows, then the ext size and the entries
)
SIZE = Struct(">i")  # of remark, ext section and ext values
KEY_SIZE = Struct(">h")

I32_MIN, I32_MAX = I32_RANGE.low, I32_RANGE.high

FREELY_READ_BYTES = 64 * 1024
"""Headers up to this size are read whatever they contain."""
DIALECT_BYTES_MAX = 16 * 1024
"""A header that is not strict JSON is read only up to this size. Each byte takes about 1 us."""
PIECES_MAX = 40_000
"""Limit of members and elements in a larger JSON header. Each takes up to 1 us, and 32,767 bytes of properties may be all
commas."""
ENTRIES_MAX = 2_000  # limit in a ROCKETMQ header; each entry takes up to 3 us
ENTRIES_FEW = 100
LOOKED_AT_BYTES = 1_024
"""The members before and after extFields are searched in this many bytes at either end of an unread header."""
_MEMBERS = {
    name: re.compile(rb'[{,]\s*"%s"\s*:\s*"?(-?[0-9]{1,10})"?\s*(?=[,}])' % name.encode())
    for name in ("code", "opaque", "flag")
}


def encode_header(command: RemotingCommand) -> bytes:
    """The header's bytes in the encoding that `command.serialize_type` names."""
    if command.serialize_type == JSON:
        return _encode_json(command)
    assert command.serialize_type == ROCKETMQ, command.serialize_type
    return _encode_rocketmq(command)


def decode_header(serialize_type: int, header: memoryview, *, bounded: bool = True) -> RemotingCommand:
    """The command with this header, without its body. If `bounded`, a header that is slow to decode is not decoded, and the
    command is marked `unread`. Raises FrameError."""
    if serialize_type == JSON:
        return _decode_json(header, bounded)
    if serialize_type == ROCKETMQ:
        return _decode_rocketmq(header, bounded)
    raise FrameError(f"unknown header serialize type {serialize_type}")


def unread_header(serialize_type: int, header: memoryview, why: str) -> RemotingCommand:
    """The command of a header that is too big to read, for the error reply. Raises FrameError."""
    if serialize_type == ROCKETMQ and len(header) >= FIXED.size:
        code, _, version, opaque, flag, _ = FIXED.unpack_from(header)
        return RemotingCommand(code, opaque, flag, version=version, serialize_type=ROCKETMQ, unread=why)
    if serialize_type != JSON:
        raise FrameError(f"unknown header serialize type {serialize_type}")
    head, tail = bytes(header[:LOOKED_AT_BYTES]), bytes(header[-LOOKED_AT_BYTES:])
    found: dict[str, int] = {}
    for name, pattern in _MEMBERS.items():
        before, behind = pattern.search(head), [*pattern.finditer(tail)]
        match = before if name == "code" or not behind else behind[-1]
        if match is not None:
            found[name] = _i32(name, int(match[1]))
    if "code" not in found or "opaque" not in found:
        raise FrameError(f"{why}, and its code and opaque are not at its ends")
    return RemotingCommand(found["code"], found["opaque"], found.get("flag", 0), unread=why)


def _encode_json(command: RemotingCommand) -> bytes:
    # the keys in the order Java writes them
    fields: dict[str, Any] = {"code": command.code}
    if command.ext:
        fields["extFields"] = command.ext
    fields["flag"] = command.flag
    fields["language"] = command.language
    fields["opaque"] = command.opaque
    if command.remark is not None:
        fields["remark"] = command.remark
    fields["serializeTypeCurrentRPC"] = "JSON"
    fields["version"] = command.version
    return orjson.dumps(fields)


def _decode_json(header: memoryview, bounded: bool) -> RemotingCommand:
    if bounded and len(header) > FREELY_READ_BYTES:
        pieces = fastjson.pieces_in(header)
        if pieces > PIECES_MAX:
            return unread_header(JSON, header, f"a header of {len(header)} bytes in {pieces} pieces")
    in_dialect = False
    try:
        fields = orjson.loads(header)
    except orjson.JSONDecodeError:
        in_dialect = True
        try:
            fields = fastjson.loads(header, dialect_max=DIALECT_BYTES_MAX)
        except fastjson.FastJsonError as error:
            raise FrameError(f"header is not JSON: {error}") from None
    if type(fields) is not dict:
        raise FrameError("header is not a JSON object")
    get = fields.get
    ext = get("extFields")
    if ext is None:
        ext = {}
    elif type(ext) is not dict:
        raise FrameError("extFields is not a JSON object")
    else:
        for value in ext.values():
            if type(value) is not str:
                ext = {key: _ext_text(value) for key, value in ext.items() if value is not None}
                break
    remark = get("remark")
    if remark is not None and type(remark) is not str:
        remark = _ext_text(remark)
    return RemotingCommand(
        _i32("code", get("code")),
        _i32("opaque", get("opaque")),
        _i32("flag", get("flag")),
        remark,
        ext,
        None,
        _language(get("language")),
        _i32("version", get("version")),
        JSON,
        was_slow=in_dialect,
    )


def _i32(name: str, value: Any) -> int:
    """An int as Java's fastjson reads it: absent or null is 0, a quoted decimal is accepted."""
    if type(value) is int and I32_MIN <= value <= I32_MAX:
        return value
    if value is None:
        return 0
    if type(value) is int:
        raise FrameError(f"header member {name} is outside 32 bits")
    number = parse_integer(value, I32_RANGE) if type(value) is str else None
    if number is None:
        raise FrameError(f"header member {name} is not an integer of 32 bits")
    return number


def _language(value: object) -> str:
    """A name or, from old C++ clients, its ordinal; a language unknown to Java becomes OTHER."""
    if type(value) is str and value in _LANGUAGE_NUMBERS:
        return value
    if type(value) is int and 0 <= value < len(LANGUAGES):
        return LANGUAGES[value]
    return LANGUAGES[OTHER_LANGUAGE]


def _ext_text(value: object) -> str:
    """An ext value as Java turns it into a string: numbers and booleans in their JSON form."""
    if type(value) is str:
        return value
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        raise FrameError("a number in the header is too big") from None


def _encode_rocketmq(command: RemotingCommand) -> bytes:
    remark = command.remark.encode() if command.remark else b""
    code = (command.code + 0x8000 & 0xFFFF) - 0x8000
    version = (command.version + 0x8000 & 0xFFFF) - 0x8000
    language = _LANGUAGE_NUMBERS.get(command.language, OTHER_LANGUAGE)
    entries: list[bytes] = []
    for key, value in command.ext.items():
        key_bytes, value_bytes = key.encode(), value.encode()
        entries += (KEY_SIZE.pack(len(key_bytes)), key_bytes, SIZE.pack(len(value_bytes)), value_bytes)
    ext = b"".join(entries)
    fixed = FIXED.pack(code, language, version, command.opaque, command.flag, len(remark))
    return b"".join((fixed, remark, SIZE.pack(len(ext)), ext))


def _decode_rocketmq(header: memoryview, bounded: bool) -> RemotingCommand:
    size = len(header)
    if size < FIXED.size + SIZE.size:
        raise FrameError(f"ROCKETMQ header of {size} bytes is too short")
    code, language, version, opaque, flag, remark_size = FIXED.unpack_from(header)
    remark_end = FIXED.size + remark_size
    if remark_size < 0 or remark_end + SIZE.size > size:
        raise FrameError(f"remark of {remark_size} bytes does not fit the header")
    remark = str(header[FIXED.size : remark_end], "utf-8", "replace") if remark_size else None
    (ext_size,) = SIZE.unpack_from(header, remark_end)
    at = remark_end + SIZE.size
    if ext_size < 0 or at + ext_size != size:
        raise FrameError(f"ext section of {ext_size} bytes does not end with the header")
    ext: dict[str, str] = {}
    entries = 0
    while at < size:
        key_end = _end(header, KEY_SIZE, at, size)
        key = str(header[at + KEY_SIZE.size : key_end], "utf-8", "replace")
        value_end = _end(header, SIZE, key_end, size)
        ext[key] = str(header[key_end + SIZE.size : value_end], "utf-8", "replace")
        at = value_end
        entries += 1
        if bounded and entries > ENTRIES_MAX:
            unread = unread_header(ROCKETMQ, header, f"a header of more than {ENTRIES_MAX} entries")
            unread.was_slow = True
            return unread
    name = LANGUAGES[language if language < len(LANGUAGES) else OTHER_LANGUAGE]
    command = RemotingCommand(code, opaque, flag, remark, ext, None, name, version, ROCKETMQ)
    command.was_slow = entries > ENTRIES_FEW
    return command


def _end(header: memoryview, size_field: Struct, at: int, limit: int) -> int:
    """The end of the text at `at`, which begins with its size. The end is always beyond `at`, so a reader always advances."""
    begin = at + size_field.size
    if begin > limit:
        raise FrameError("ext entry is cut off")
    (length,) = size_field.unpack_from(header, at)
    if length < 0 or begin + length > limit:
        raise FrameError(f"ext text of {length} bytes does not fit the header")
    return int(begin + length)
