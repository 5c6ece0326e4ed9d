"""Parser of expressions, by upstream's grammar.

Invariant: an accepted expression evaluates to true, false or None, and no part of it is a comparison that upstream rejects. As
in upstream, the parser stops at the end of the expression and reads only one token after it. Pure."""

from __future__ import annotations

from collections.abc import Callable

from filters.errors import FilterError, UnexpectedToken
from filters.lexer import Lexer, Token, TokenKind
from filters.syntax import (
    DEPTH_MAX,
    BooleanNode,
    Chained,
    Compared,
    Negated,
    Node,
    Not,
    Number,
    NumberKind,
    OneOf,
    Present,
    Property,
    Searched,
    Text,
    Truth,
)
from filters.values import double_of, order

ORDERS = {
    TokenKind.GREATER: ">",
    TokenKind.GREATER_EQUAL: ">=",
    TokenKind.LESS: "<",
    TokenKind.LESS_EQUAL: "<=",
}
SEARCHES = {
    TokenKind.CONTAINS: "CONTAINS",
    TokenKind.STARTSWITH: "STARTSWITH",
    TokenKind.ENDSWITH: "ENDSWITH",
}
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
SHOWN_MAX = 100


def parse(text: str) -> Node:
    """Parse the expression at the start of `text`. Raises FilterError; a SyntaxFault if `text` starts with no expression."""
    return _Parser(Lexer(text)).expression()


class _Parser:
    """Each method is one rule of the grammar. It starts at `self._token` and stops at the first token that the rule does not
    cover."""

    def __init__(self, lexer: Lexer) -> None:
        self._lexer = lexer
        self._seen: Token | None = None
        self._open = 0

    def expression(self) -> Node:
        return _condition(self._or())

    def _or(self) -> Node:
        return self._chain("OR", TokenKind.OR, lambda: self._chain("AND", TokenKind.AND, self._equality))

    def _chain(self, word: str, kind: TokenKind, part: Callable[[], Node]) -> Node:
        first = part()
        if self._token.kind is not kind:
            return first
        operands = [first]
        while self._took(kind):
            operands.append(part())
            operands[-2:] = map(_condition, operands[-2:])
        return Chained(word, operands)

    def _equality(self) -> Node:
        left = self._comparison()
        while True:
            if self._took(TokenKind.EQUAL):
                left = _equal(left, self._comparison())
            elif self._took(TokenKind.NOT_EQUAL):
                left = Not(_equal(left, self._comparison()))
            elif self._took(TokenKind.IS):
                negated = self._took(TokenKind.NOT)
                self._take(TokenKind.NULL, "NULL or NOT NULL" if not negated else "NULL")
                left = Compared("==", left, Truth(None))
                left = Not(left) if negated else left
            else:
                return left

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            kind = self._token.kind
            if kind in ORDERS:
                self._advance()
                left = _ordered(ORDERS[kind], left, self._unary())
            elif kind is TokenKind.NOT:
                left = self._worded(left, self._behind_not(), negated=True)
            elif kind in SEARCHES or kind in (TokenKind.BETWEEN, TokenKind.IN):
                left = self._worded(left, kind, negated=False)
            else:
                return left

    def _behind_not(self) -> TokenKind:
        token = self._token
        self._advance()
        kind = self._token.kind
        if kind not in SEARCHES and kind not in (TokenKind.BETWEEN, TokenKind.IN):
            raise self._lexer.unexpected(token, "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH after it")
        return kind

    def _worded(self, left: Node, kind: TokenKind, *, negated: bool) -> Node:
        self._advance()
        if kind in SEARCHES:
            return Searched(SEARCHES[kind], left, self._string(), negated)
        if kind is TokenKind.BETWEEN:
            low = self._unary()
            self._take(TokenKind.AND, "AND")
            return _between(left, low, self._unary(), negated=negated)
        self._take(TokenKind.OPEN, "(")
        values = [self._string()]
        while self._took(TokenKind.COMMA):
            values.append(self._string())
        self._take(TokenKind.CLOSE, '"," or ")"')
        if not isinstance(left, Property):
            raise FilterError(f"Expected a property for In expression, got: {_shown(left)}")
        return OneOf(left, values, negated)

    def _unary(self) -> Node:
        token = self._token
        if token.kind not in (TokenKind.PLUS, TokenKind.MINUS, TokenKind.NOT):
            return self._primary()
        self._advance()
        if token.kind is TokenKind.PLUS:
            return self._behind_plus(token)
        operand = self._nested(self._unary)
        if token.kind is TokenKind.NOT:
            return Not(_condition(operand))
        if isinstance(operand, Number):
            return Number(operand.kind, -operand.value, signed=True)
        return Negated(operand)

    def _behind_plus(self, plus: Token) -> Node:
        """The operand after a plus sign. As in upstream, the parser checks for an operand before it consumes the sign."""
        try:
            return self._nested(self._unary)
        except UnexpectedToken as fault:
            raise self._lexer.unexpected(plus, f"the operand of a sign; {fault}") from None

    def _primary(self) -> Node:
        token = self._token
        if token.kind is TokenKind.OPEN:
            self._advance()
            inside = self._nested(self._or)
            self._take(TokenKind.CLOSE, ")")
            return inside
        if token.kind is TokenKind.STRING:
            return Text(self._string())
        makes = PRIMARIES.get(token.kind)
        if makes is None:
            raise self._lexer.unexpected(token, "a property, a literal or (")
        self._advance()
        return makes(token.image)

    def _nested(self, rule: Callable[[], Node]) -> Node:
        """The operand of a sign, or an expression in parentheses. The depth is limited, because later readers of the nodes are
        recursive."""
        self._open += 1
        if self._open > DEPTH_MAX:
            raise FilterError(
                f"the expression is nested deeper than the {DEPTH_MAX} levels that are accepted"
            )
        inside = rule()
        self._open -= 1
        return inside

    def _string(self) -> str:
        return self._take(TokenKind.STRING, "a string in quotes").image[1:-1].replace("''", "'")

    def _took(self, kind: TokenKind) -> bool:
        if self._token.kind is not kind:
            return False
        self._advance()
        return True

    def _take(self, kind: TokenKind, wanted: str) -> Token:
        token = self._token
        if token.kind is not kind:
            raise self._lexer.unexpected(token, wanted)
        self._advance()
        return token

    @property
    def _token(self) -> Token:
        """The current token. It is read only on demand, so an error of the parser before this token is raised first."""
        if self._seen is None:
            self._seen = self._lexer.next()
        return self._seen

    def _advance(self) -> None:
        self._seen = None


def _decimal(image: str) -> Node:
    digits = image.rstrip("lL")
    if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
        raise FilterError(f'For input string: "{digits[:SHOWN_MAX]}"')
    value = int(digits)
    return Number(NumberKind.INT if value <= INT_MAX else NumberKind.LONG, value)


def _float(image: str) -> Node:
    value = double_of(image)
    if value == float("inf"):
        raise FilterError(f"{image[:SHOWN_MAX]} is greater than 1.7976931348623157E308")
    if value == 0:
        raise FilterError(f"{image[:SHOWN_MAX]} is less than 4.9E-324")
    return Number(NumberKind.DOUBLE, value)


PRIMARIES: dict[TokenKind, Callable[[str], Node]] = {
    TokenKind.DECIMAL: _decimal,
    TokenKind.FLOAT: _float,
    TokenKind.ID: Property,
    TokenKind.TRUE: lambda image: Truth(True),
    TokenKind.FALSE: lambda image: Truth(False),
    TokenKind.NULL: lambda image: Truth(None),
}


def _condition(node: Node) -> Node:
    if isinstance(node, BooleanNode | Truth):
        return node
    if isinstance(node, Property):
        return Present(node)
    raise FilterError(f"Expression will not result in a boolean value: {_shown(node)}")


def _equal(left: Node, right: Node) -> Node:
    for operand in (left, right):
        if isinstance(operand, Truth) and operand.value is None:
            raise FilterError("'NULL' cannot be compared.")
    if isinstance(left, Truth) and _is_constant(right) and not isinstance(right, Truth):
        raise FilterError(f"'{left}' cannot be compared with '{_shown(right)}'")
    return Compared("==", left, right)


def _ordered(sign: str, left: Node, right: Node) -> Node:
    for operand in (left, right):
        if isinstance(operand, Text | Truth | BooleanNode):
            raise FilterError(f"Value '{_shown(operand)}' cannot be compared.")
    return Compared(sign, left, right)


def _between(value: Node, low: Node, high: Node, *, negated: bool) -> Node:
    """Nodes for BETWEEN and NOT BETWEEN. BETWEEN with bounds that no number lies between is rejected; NOT BETWEEN is not
    checked."""
    if negated:
        return Chained("OR", [_ordered("<", value, low), _ordered(">", value, high)])
    if _is_constant(low) and _is_constant(high):
        if isinstance(low, Truth | Text) or isinstance(high, Truth | Text):
            raise FilterError("Illegal values of between, values can not be null or no numbers!")
        assert isinstance(low, Number) and isinstance(high, Number)
        if order(high.value, low.value) < 0:
            raise FilterError(
                f"Illegal values of between, left value({low}) must less than or equal to right value({high})"
            )
    return Chained("AND", [_ordered(">=", value, low), _ordered("<=", value, high)])


def _is_constant(node: Node) -> bool:
    return isinstance(node, Text | Truth) or (isinstance(node, Number) and not node.signed)


def _shown(node: Node) -> str:
    shown = str(node)
    return shown if len(shown) <= SHOWN_MAX else shown[:SHOWN_MAX] + "..."
