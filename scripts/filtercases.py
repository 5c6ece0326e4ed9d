"""Expressions and messages for which two evaluators of SQL92 filters may differ, and Java's evaluator to compare with ours.

Invariant: the cases depend only on the random numbers. What a client notices is compared: whether an expression is accepted,
the position of a syntax error, and which messages match."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from filters.errors import FilterError, SyntaxFault
from filters.sql92 import compiled
from scripts.peers.javapeer import BROKER_JARS, QUICK_START, SOURCES
from scripts.peers.javapeer import compiled as java_classes
from scripts.peers.peerprocess import PeerProcess

NAMES = ("a", "b", "c", "Price", "$x_1", "TAGS", "NOTE", "gone")
NUMBERS = (
    "0", "1", "5", "05", "10", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "7l", "7L",
    "0l", "1.5", "2.", ".5", "5.0", "1e3", "1E-2", "1.5e+2", "0.0", "1e400", "1e-400", "4.9e-324",
    "1.7976931348623157e308", "9007199254740993", "9007199254740992.0", "0x10", "1_0", "3.4.5",
)  # fmt: skip
TEXTS = (
    "'x'",
    "'X'",
    "''",
    "'it''s'",
    "'true'",
    "'5'",
    "'é'",
    "'\U0001f600'",
    "'a b'",
    "'TagA'",
    "'1.5'",
    "'\n'",
    "'%'",
)
WORDS = (
    "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH", "=", "<>",
    "<", "<=", ">", ">=", "(", ")", ",", "+", "-", "--", "/*", "*/", "'", "!", "!=", ";", ".", "/", "\t", "\n", "\r\n",
    "é", "LIKE", "\"q\"", "\U0001f600",
)  # fmt: skip
VALUES = (
    "x", "X", "it's", "true", "TRUE", "tRuE", "false", "5", "05", "+5", "-5", " 5", "5 ", "1", "10", "1.5", "5.0", "5.",
    ".5", "5f", "5d", "5L", "0", "-0", "-0.0", "0.0", "NaN", "-NaN", "Infinity", "-Infinity", "1e3", "1E400", "-1e400",
    "1e-400", "0x1p3", "0x1.8p1d", "0x10", "2147483647", "2147483648", "-2147483648", "-2147483649",
    "9223372036854775807", "9223372036854775808", "9007199254740993", "99999999999999999999", "٣", "１２", "𝟏", "²",
    "1_000", "", "é", "\U0001f600", "TagA", "a b", "a\x01b", "\n", "%", "+", "-", "0" * 30 + "7",
)  # fmt: skip
PLACE = re.compile(r"line (\d+), column (\d+)")
MESSAGES = 6
DEPTH = 4


@dataclass(frozen=True)
class Difference:
    expression: str
    messages: list[bytes]
    java: str
    ours: str

    def __str__(self) -> str:
        return f"{self.expression!r}\n  of {self.messages}\n  Java {self.java}\n  ours {self.ours}"


class Java(PeerProcess):
    """java/filters/Filters.java in a separate JVM."""

    def __init__(self) -> None:
        classes = java_classes([SOURCES / "filters" / "Filters.java"], BROKER_JARS)
        super().__init__(
            ["java", "-Xmx256m", *QUICK_START, "-cp", f"{classes}:{SOURCES}:{BROKER_JARS}/*", "Filters"]
        )

    def judged(self, expression: str, messages: list[bytes]) -> str:
        """One letter for each message, or the position at which the expression is rejected."""
        answer = self.ask("judge", word(expression.encode()), *map(word, messages))
        if "refused" not in answer:
            return str(answer["said"]).replace("N", "F").replace("X", "F")
        place = PLACE.search(answer["refused"])
        return "refused" + (f" at {place[1]}:{place[2]}" if place else "")


def word(content: bytes) -> str:
    return b64encode(content).decode() or "-"


def ours(expression: str, messages: list[bytes]) -> str:
    """The same as Java.judged, by our evaluator."""
    try:
        judged = compiled(expression)
    except SyntaxFault as fault:
        return f"refused at {fault.line}:{fault.column}"
    except FilterError:
        return "refused"
    return "".join("T" if judged(message) else "F" for message in messages)


def compare(java: Java, random: Random, count: int) -> Iterator[Difference]:
    """The first differences of `count` random expressions."""
    for _ in range(count):
        expression = drawn_expression(random)
        messages = [drawn_properties(random) for _ in range(MESSAGES)]
        theirs, found = java.judged(expression, messages), ours(expression, messages)
        # upstream first parses everything after a plus sign, so it may report another of two errors
        other_fault = "+" in expression and theirs.startswith("refused") and found.startswith("refused")
        if theirs != found and not other_fault:
            yield Difference(expression, messages, theirs, found)


def drawn_properties(random: Random) -> bytes:
    pairs = [(random.choice(NAMES[:-1]), random.choice(VALUES)) for _ in range(random.randrange(9))]
    if random.random() < 0.05:
        pairs.append(("", "nameless"))
    end = "\x02" if random.random() < 0.8 else ""
    stored = ("\x02".join(f"{name}\x01{value}" for name, value in pairs) + end).encode()
    return stored.replace(b"\x01", b"", 1) if random.random() < 0.02 else stored


def drawn_expression(random: Random) -> str:
    """A random expression. Most are accepted by upstream; some have a word too many, too few, or a wrong word."""
    text = _condition(random, DEPTH)
    if random.random() < 0.25:
        words = re.findall(r"'(?:[^']|'')*'|[A-Za-z_$0-9.]+|[<>=]+|\s+|.", text)
        for _ in range(random.randint(1, 2)):
            at = random.randrange(len(words) + 1)
            words[at : at + random.randrange(2)] = random.choice(
                ([], [random.choice(WORDS)], [_operand(random, 0)])
            )
        text = "".join(words)
    return "".join(each.swapcase() if each.isascii() and random.random() < 0.01 else each for each in text)


def _condition(random: Random, depth: int) -> str:
    draw = random.random()
    if depth and draw < 0.35:
        word = random.choice((" AND ", " OR "))
        return word.join(_condition(random, depth - 1) for _ in range(random.randint(2, 3)))
    if depth and draw < 0.45:
        return f"({_condition(random, depth - 1)})"
    if depth and draw < 0.53:
        return f"NOT {random.choice(('(%s)', '%s'))}" % _condition(random, depth - 1)
    return _leaf(random, depth)


def _leaf(random: Random, depth: int) -> str:
    left, word = _operand(random, depth), random.choice(("", "", "NOT "))
    match random.randrange(12):
        case 0 | 1 | 2:
            return f"{left} {random.choice(('=', '<>'))} {_operand(random, depth)}"
        case 3 | 4 | 5:
            return f"{left} {random.choice(('<', '<=', '>', '>='))} {_operand(random, depth, texts=False)}"
        case 6:
            bounds = [_operand(random, depth, texts=False) for _ in range(2)]
            return f"{left} {word}BETWEEN {bounds[0]} AND {bounds[1]}"
        case 7:
            listed = ", ".join(random.choice(TEXTS) for _ in range(random.randint(1, 6)))
            return f"{random.choice(NAMES)} {word}IN ({listed})"
        case 8:
            return f"{left} IS {word}NULL"
        case 9 | 10:
            search = random.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
            return f"{left} {word}{search} {random.choice(TEXTS)}"
    return random.choice((*NAMES, "TRUE", "FALSE", "NULL"))


def _operand(random: Random, depth: int, *, texts: bool = True) -> str:
    draw = random.random()
    if draw < 0.5:
        return random.choice(NAMES)
    if draw < 0.72:
        return random.choice(("", "", "-", "+", "- -")) + random.choice(NUMBERS[:24])
    if draw < 0.76:
        return random.choice(NUMBERS)
    if draw < 0.79:
        return random.choice(("TRUE", "FALSE", "NULL"))
    if draw < 0.83 and depth:
        return f"({_condition(random, depth - 1)})"
    if draw < 0.86:
        return f"-{random.choice(NAMES)}"
    return random.choice(TEXTS) if texts else random.choice(NUMBERS[:8])
