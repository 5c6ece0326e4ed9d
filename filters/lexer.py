"""Lexer of expressions.

Invariant: tokens are the longest that fit, and of two equally long ones a keyword wins over a name. Letters of keywords and
names are ASCII. The text is read only as far as the parser asks for tokens, so the text after an expression need not consist of
tokens. Pure."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from filters.errors import FilterError, SyntaxFault, UnexpectedToken

EXPRESSION_CHARS_MAX = 65_536
TOKENS_MAX = 8_192
"""Upstream has no limits. With this limit an expression blocks the broker's event loop for only some ms."""
TAB = 8


class TokenKind(Enum):
    """Kinds of tokens; the value is upstream's name in errors."""

    EOF = "<EOF>"
    NOT = '"NOT"'
    AND = '"AND"'
    OR = '"OR"'
    BETWEEN = '"BETWEEN"'
    IN = '"IN"'
    TRUE = '"TRUE"'
    FALSE = '"FALSE"'
    NULL = '"NULL"'
    IS = '"IS"'
    CONTAINS = '"CONTAINS"'
    STARTSWITH = '"STARTSWITH"'
    ENDSWITH = '"ENDSWITH"'
    DECIMAL = "<DECIMAL_LITERAL>"
    FLOAT = "<FLOATING_POINT_LITERAL>"
    STRING = "<STRING_LITERAL>"
    ID = "<ID>"
    EQUAL = '"="'
    NOT_EQUAL = '"<>"'
    GREATER = '">"'
    GREATER_EQUAL = '">="'
    LESS = '"<"'
    LESS_EQUAL = '"<="'
    OPEN = '"("'
    COMMA = '","'
    CLOSE = '")"'
    PLUS = '"+"'
    MINUS = '"-"'


KEYWORDS = {
    kind.name: kind
    for kind in (
        TokenKind.NOT, TokenKind.AND, TokenKind.OR, TokenKind.BETWEEN, TokenKind.IN, TokenKind.TRUE, TokenKind.FALSE,
        TokenKind.NULL, TokenKind.IS, TokenKind.CONTAINS, TokenKind.STARTSWITH, TokenKind.ENDSWITH,
    )
}  # fmt: skip
SIGNS = {
    kind.value.strip('"'): kind
    for kind in (
        TokenKind.EQUAL, TokenKind.NOT_EQUAL, TokenKind.GREATER, TokenKind.GREATER_EQUAL, TokenKind.LESS,
        TokenKind.LESS_EQUAL, TokenKind.OPEN, TokenKind.COMMA, TokenKind.CLOSE, TokenKind.PLUS, TokenKind.MINUS,
    )
}  # fmt: skip
BLANKS, LINE_COMMENT, BLOCK_COMMENT = (
    r"[ \t\n\r\f]+",
    r"--[^\n\r]*(?:\r\n|\n|\r)",
    r"/\*[^*]*\*+(?:[^*/][^*]*\*+)*/",
)
SKIPPED = re.compile(f"(?:{BLANKS}|{LINE_COMMENT}|{BLOCK_COMMENT})*")
SKIPPED_IN_LAST_LINE = re.compile(f"(?:{BLANKS}|{BLOCK_COMMENT})*")
"""Skips no line comment: a `--` without a line end after it is two minus signs. Without this pattern each such `--` would
search for a line end again."""
TOKEN = re.compile(
    r"(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<DECIMAL>[1-9][0-9]*[lL]?|0)"
    r"|(?P<STRING>'[^']*(?:''[^']*)*')"
    r"|(?P<ID>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<SIGN><>|<=|>=|[=<>(),+-])"
)


class Token(NamedTuple):
    """`at` is the index of its first character."""

    kind: TokenKind
    image: str
    at: int


class Lexer:
    """Returns the tokens of one text one by one, and EOF after the last token."""

    def __init__(self, text: str) -> None:
        if len(text) > EXPRESSION_CHARS_MAX:
            raise FilterError(
                f"the expression has {len(text)} characters, more than the {EXPRESSION_CHARS_MAX} that are accepted"
            )
        self._text = text
        self._lines_end = max(text.rfind("\n"), text.rfind("\r"))
        self._at = 0
        self._count = 0

    def next(self) -> Token:
        """The next token. Raises SyntaxFault if no token begins here, FilterError for too many tokens."""
        text = self._text
        skips = SKIPPED if self._at <= self._lines_end else SKIPPED_IN_LAST_LINE
        skipped = skips.match(text, self._at)
        at = skipped.end() if skipped else self._at
        if at == len(text):
            return Token(TokenKind.EOF, "", max(at - 1, 0))  # upstream's reader reports this position
        found = TOKEN.match(text, at)
        if found is None:
            raise self._no_token(at)
        self._count += 1
        if self._count > TOKENS_MAX:
            raise FilterError(f"the expression has more than the {TOKENS_MAX} words that are accepted")
        self._at = found.end()
        image = found.group()
        group = found.lastgroup or ""
        if group == "SIGN":
            return Token(SIGNS[image], image, at)
        return Token(
            KEYWORDS.get(image.upper(), TokenKind.ID) if group == "ID" else TokenKind[group], image, at
        )

    def unexpected(self, token: Token, wanted: str) -> UnexpectedToken:
        """The error if `token` comes where `wanted` is expected."""
        line, column = position(self._text, token.at) if self._text else (0, 0)
        seen = (
            token.kind.value
            if token.kind is TokenKind.EOF
            else f' {token.kind.value} "{escaped(token.image)} "'
        )
        return UnexpectedToken(
            f'Encountered "{seen}" at line {line}, column {column}. Was expecting {wanted}', line, column
        )

    def _no_token(self, at: int) -> SyntaxFault:
        """The error if no token begins at `at`. As in upstream, it names the first character that cannot continue a token."""
        text = self._text
        if text[at] == "'" or text.startswith("/*", at):
            at = len(text)
        elif text[at] in "./":
            at += 1
        if at < len(text) - 1 or text[at:] > "\uffff":
            seen = f'"{escaped(text[at])}"'
            line, column = position(text, at)
        else:
            seen = "<EOF>"
            line, column = position(text, len(text) - 1)
            line, column = (line + 1, 0) if text[-1] in "\r\n" else (line, column + _units(text[-1]))
        where = f"Lexical error at line {line}, column {column}"
        return SyntaxFault(f"{where}.  Encountered: {seen}", line, column)


def position(text: str, at: int) -> tuple[int, int]:
    """(line, column) of a character. Both count from 1; lines end as in upstream's reader. Columns count UTF-16 units, and a
    tab moves to the next multiple of eight."""
    line, column, last = 1, 0, ""
    for character in text[: at + 1]:
        column += _units(last)
        if last == "\n" or (last == "\r" and character != "\n"):
            line, column = line + 1, 1
        if character == "\t":
            column = column - 1 + TAB - (column - 1) % TAB
        last = character
    return line, column


def _units(character: str) -> int:
    return 2 if character > "\uffff" else 1


def escaped(image: str) -> str:
    """Escape and shorten an image for a remark."""
    shown = image if len(image) <= 64 else image[:64] + "..."
    return "".join(
        "\\" + each if each in "\"'\\" else each if " " <= each <= "~" else f"\\u{ord(each):04x}"
        for each in shown
    )
