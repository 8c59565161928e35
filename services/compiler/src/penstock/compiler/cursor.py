"""A place in the tokens of a statement, and what can be asked and expected there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.common.diagnostics import Span
from penstock.compiler import dialect
from penstock.compiler.diagnostics import Refused, did_you_mean, refusal
from penstock.compiler.dialect import SyntaxProblem
from penstock.compiler.positions import Text
from penstock.compiler.rewrite import fold_names
from penstock.compiler.statements import Name

_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
# What an expression cannot begin with, after a comma or an opening parenthesis.
_NO_BEGINNING: Final = frozenset({TokenType.COMMA, TokenType.FROM, TokenType.WHERE})
_LONGEST: Final = 40
_KEYWORDS: Final = ("FROM", "WHERE", "UNION ALL", "CROSS JOIN", "AS", "AND", "OR", "THEN", "ELSE", "END")


class Cursor:
    """Reads tokens from the left; what is not as expected is refused with its place."""

    def __init__(self, tokens: Sequence[Token], text: Text) -> None:
        self.tokens = tokens
        self.text = text
        self._index = 0

    @property
    def at_end(self) -> bool:
        return self._index >= len(self.tokens)

    @property
    def current(self) -> Token | None:
        return None if self.at_end else self.tokens[self._index]

    @property
    def previous(self) -> Token:
        return self.tokens[max(0, self._index - 1)]

    def sees(self, *words: str) -> bool:
        """Whether these keywords or marks come next."""
        ahead = self.tokens[self._index : self._index + len(words)]
        return len(ahead) == len(words) and all(
            token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) and token.text.upper() == word
            for token, word in zip(ahead, words, strict=True)
        )

    def takes(self, *words: str) -> bool:
        """Goes past these keywords if they come next."""
        if not self.sees(*words):
            return False
        self._index += len(words)
        return True

    def expect(self, *words: str) -> Token:
        """Goes past these keywords, which must come next."""
        if not self.takes(*words):
            raise self.unexpected(f"expected {' '.join(words)}")
        return self.previous

    def take(self) -> Token:
        """Goes past the next token."""
        token = self.tokens[self._index]
        self._index += 1
        return token

    def name(self, what: str) -> Name:
        """A name, folded unless it is in quotes."""
        token = self.current
        is_word = token is not None and (token.text[:1].isalpha() or token.text[:1] == "_")
        if token is None or (
            token.token_type is not TokenType.IDENTIFIER
            and (not is_word or token.token_type in (TokenType.STRING, TokenType.NUMBER))
        ):
            raise self.unexpected(f"expected {what}")
        self._index += 1
        folded = token.text if token.token_type is TokenType.IDENTIFIER else token.text.lower()
        if self.sees("."):
            span = self.text.of_tokens(token, self.current)
            raise refusal("syntax", "names have no schema", span, "write the name alone, without a dot")
        return Name(folded, self.text.of_tokens(token))

    def string(self, what: str) -> Name:
        """A text in single quotes."""
        token = self.current
        if token is None or token.token_type not in (TokenType.STRING, TokenType.HEREDOC_STRING):
            raise self.unexpected(f"expected {what} in single quotes")
        self._index += 1
        return Name(token.text, self.text.of_tokens(token))

    def names(self, what: str) -> tuple[Name, ...]:
        """Names in parentheses."""
        inner = self.inside()
        names = []
        while not inner.at_end:
            names.append(inner.name(what))
            if not inner.at_end:
                inner.expect(",")
        if not names:
            raise refusal("syntax", f"expected {what}", self.text.of_tokens(self.previous))
        return tuple(names)

    def inside(self) -> Cursor:
        """What is between the parentheses that come next, past which this goes."""
        start = self.expect("(")
        first = self._index
        while not self.at_end:
            if self.sees(")"):
                self._index += 1
                return Cursor(self.tokens[first : self._index - 1], self.text)
            self.skip()
        raise refusal("syntax", "this parenthesis is not closed", self.text.of_tokens(start))

    def skip(self) -> None:
        """Goes past a token, or past all that is in parentheses, or in the angle brackets of a type."""
        opened: list[Token] = []
        is_type = self.sees("STRUCT", "<") or self.sees("MAP", "<") or self.sees("ARRAY", "<")
        if is_type:
            opened.append(self.take())
            self.take()
        while not self.at_end:
            token = self.take()
            if token.token_type in _OPENING or (is_type and token.text == "<"):
                opened.append(token)
            elif token.token_type in _CLOSING or (is_type and token.text == ">"):
                if not opened:
                    raise refusal("syntax", f"unexpected {token.text!r}", self.text.of_tokens(token))
                opened.pop()
            if not opened:
                return
        what = "type" if is_type else "parenthesis"
        raise refusal("syntax", f"this {what} is not closed", self.text.of_tokens(opened[0]))

    def until(self, *ends: str) -> Cursor:
        """What comes before one of these keywords or the end, outside all parentheses."""
        first = self._index
        while not self.at_end and not any(self.sees(end) for end in ends):
            self.skip()
        return Cursor(self.tokens[first : self._index], self.text)

    def rest(self) -> Cursor:
        """All that is left."""
        rest = Cursor(self.tokens[self._index :], self.text)
        self._index = len(self.tokens)
        return rest

    def parts(self) -> list[Cursor]:
        """What is left, cut at commas."""
        found = []
        while not self.at_end:
            part = self.until(",")
            if part.at_end:
                raise self.unexpected("expected a definition")
            found.append(part)
            if self.takes(",") and self.at_end:
                raise refusal("syntax", "unexpected ',' at the end of a list", self.text.of_tokens(self.previous))
        return found

    def end(self) -> None:
        """Refuses what is left."""
        if not self.at_end:
            raise self.unexpected()

    def query(self) -> exp.Query:
        """What is left, as a query."""
        tree = self._parsed(exp.Query, "a query")
        if not isinstance(tree, exp.Query):
            raise refusal("syntax", "expected a query", self.text.span(tree), "a query begins with SELECT or WITH")
        return tree

    def expression(self) -> exp.Expr:
        """What is left, as an expression."""
        return self._parsed(exp.Expr, "an expression")

    def data_type(self) -> exp.DataType | None:
        """What is left, as a type; None when it is none."""
        try:
            tree = dialect.parse(self.tokens[self._index :], self.text.content, exp.DataType)
        except SyntaxProblem:
            return None
        return fold_names(tree) if isinstance(tree, exp.DataType) else None  # type: ignore[return-value]

    def span(self) -> Span:
        """All of it."""
        return self.text.of_tokens(self.tokens[0], self.tokens[-1])

    def unexpected(self, expected: str = "") -> Refused:
        """The error that the next token is not as expected."""
        token = self.current
        if token is None:
            message = f"{expected}, but the statement ends here" if expected else "the statement ends too early"
            return refusal("syntax", message, self.text.of_tokens(self.previous))
        message = f"{expected}, found {_shown(token)}" if expected else f"unexpected {_shown(token)}"
        return refusal("syntax", message, self.text.of_tokens(token))

    def _parsed(self, into: type[exp.Expr], what: str) -> exp.Expr:
        if self.at_end:
            raise self.unexpected(f"expected {what}")
        tokens = self.tokens[self._index :]
        _refuse_gaps(tokens, self.text)
        try:
            tree = dialect.parse(tokens, self.text.content, into)
        except SyntaxProblem as problem:
            raise _syntax(problem, tokens, self.text) from problem
        if tree is None:
            raise self.unexpected(f"expected {what}")
        return fold_names(tree)


def _refuse_gaps(tokens: Sequence[Token], text: Text) -> None:
    """Refuses what the parser lets pass: an empty place in a list, and an empty SELECT list."""
    for before, after in itertools.pairwise(tokens):
        pair = (before.token_type, after.token_type)
        starts = before.token_type in (TokenType.COMMA, TokenType.SELECT)
        if (starts and after.token_type in _NO_BEGINNING) or pair in (
            (TokenType.L_PAREN, TokenType.COMMA),
            (TokenType.COMMA, TokenType.R_PAREN),
        ):
            raise refusal("syntax", f"expected an expression, found {_shown(after)}", text.of_tokens(after))
    if tokens[-1].token_type in (TokenType.COMMA, TokenType.SELECT):
        raise refusal("syntax", "expected an expression, but the statement ends here", text.of_tokens(tokens[-1]))


_EXPECTATIONS: Final[tuple[tuple[str, Callable[[str], str]], ...]] = (
    ("Expected table name", lambda _: "expected the name of a table"),
    ("Expecting ", lambda description: f"expected {description.removeprefix('Expecting ').strip()!r}"),
    ("Expected ", lambda description: f"expected {description.removeprefix('Expected ').strip()}"),
    ("Required keyword", lambda _: "expected an expression"),
    ("Failed to parse any statement", lambda _: "expected a query"),
)


def _syntax(problem: SyntaxProblem, tokens: Sequence[Token], text: Text) -> Refused:
    token, span = problem.token, text.of_tokens(problem.token)
    expected = next(
        (say(problem.description) for start, say in _EXPECTATIONS if problem.description.startswith(start)), ""
    )
    if problem.at_end:
        message = f"{expected}, but the statement ends here" if expected else "the statement ends too early"
        return refusal("syntax", message, span)
    message = f"{expected}, found {_shown(token)}" if expected else f"unexpected {_shown(token)}"
    return refusal("syntax", message, span, _misspelled(tokens, token))


def _misspelled(tokens: Sequence[Token], token: Token) -> str | None:
    """A hint that the word before, which was taken for a name, was meant for a keyword."""
    before = next((one for one, other in itertools.pairwise(tokens) if other.start == token.start), None)
    if before is None or before.token_type is not TokenType.VAR:
        return None
    return did_you_mean(before.text, _KEYWORDS)


def _shown(token: Token) -> str:
    content = token.text if len(token.text) <= _LONGEST else f"{token.text[:_LONGEST]}…"
    return f"text {content!r}" if token.token_type is TokenType.STRING else repr(content)
