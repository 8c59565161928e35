"""From the user's text to statements. Each statement, column and option is read by itself, so that one that is wrong
does not hide the others' faults."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.common.diagnostics import Span
from penstock.compiler import dialect
from penstock.compiler.cursor import Cursor
from penstock.compiler.diagnostics import Problems, Refused, did_you_mean, refusal
from penstock.compiler.positions import Text
from penstock.compiler.statements import (
    Column,
    CreateFunction,
    CreateTable,
    CreateView,
    Insert,
    Name,
    Option,
    Select,
    Set,
    Statement,
    Watermark,
)
from penstock.compiler.types import arrow_type, field_metadata

_DEEPEST: Final = 40
_CONSTRAINTS: Final = (
    "NOT",
    "NULL",
    "GENERATED",
    "METADATA",
    "PRIMARY",
    "DEFAULT",
    "UNIQUE",
    "CHECK",
    "REFERENCES",
    "AS",
)
_BEGINNINGS: Final = ("CREATE", "INSERT", "SELECT", "WITH", "SET")
_QUERY: Final = ("SELECT", "WITH", "(", "VALUES")


def parse(query: str, problems: Problems) -> tuple[Statement, ...]:
    """The statements of a text; what is wrong goes to `problems` and is left out."""
    text = Text(query)
    statements: list[Statement] = []
    with problems.collecting():
        for tokens in _split(_tokens(text)):
            with problems.collecting():
                try:
                    statements.append(_statement(Cursor(tokens, text), problems))
                except RecursionError:
                    raise _too_deep(text, tokens[0]) from None
    return tuple(statements)


def _tokens(text: Text) -> list[Token]:
    try:
        tokens = dialect.tokenize(text.content)
    except TokenError as error:
        raise _unreadable(text, error) from error
    depth = 0
    for token in tokens:
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if depth > _DEEPEST:
            raise _too_deep(text, token)
    return tokens


def _too_deep(text: Text, token: Token) -> Refused:
    hint = f"at most {_DEEPEST} parentheses can be inside each other; name parts of the query with WITH or CREATE VIEW"
    return refusal("too_complex", "the query is nested too deeply", text.of_tokens(token), hint)


def _unreadable(text: Text, error: TokenError) -> Refused:
    reason = str(error.__cause__ or error)
    if missing := re.match(r"Missing (.+) from \d+:(\d+)", reason):
        start = min(int(missing[2]), max(0, len(text.content) - 1))
        what = "comment" if missing[1] == "*/" else "name" if missing[1] == '"' else "text"
        return refusal("syntax", f"this {what} has no end: {missing[1]} is missing", text.between(start, start))
    start = error.start or 0
    return refusal("syntax", "this is not SQL", text.between(start, start))


def _split(tokens: list[Token]) -> Iterator[list[Token]]:
    statement: list[Token] = []
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            statement.append(token)
        elif statement:
            yield statement
            statement = []
    if statement:
        yield statement


def _statement(cursor: Cursor, problems: Problems) -> Statement:
    if cursor.takes("CREATE"):
        return _create(cursor, problems)
    if cursor.takes("INSERT"):
        return _insert(cursor)
    if cursor.takes("SET"):
        return _set(cursor)
    _refuse_values(cursor)
    if any(cursor.sees(word) for word in _QUERY):
        return Select(cursor.query(), cursor.span())
    unexpected = cursor.unexpected().diagnostic
    hint = did_you_mean(cursor.take().text, _BEGINNINGS) or f"a statement begins with {', '.join(_BEGINNINGS)}"
    raise refusal("syntax", unexpected.message, unexpected.span, hint)


def _create(cursor: Cursor, problems: Problems) -> Statement:
    if cursor.takes("OR", "REPLACE"):
        raise refusal("unsupported", "OR REPLACE is not supported", cursor.text.of_tokens(cursor.previous))
    if cursor.takes("FUNCTION"):
        return _function(cursor, problems)
    temporary = cursor.takes("TEMPORARY") or cursor.takes("TEMP")
    if cursor.takes("VIEW"):
        name = cursor.name("the name of the view")
        columns = cursor.names("a column") if cursor.sees("(") else ()
        cursor.expect("AS")
        return _view(name, columns, cursor, problems)
    if temporary and not cursor.sees("TABLE"):
        raise cursor.unexpected("expected TABLE or VIEW")
    if not cursor.takes("TABLE"):
        raise cursor.unexpected("expected TABLE, VIEW or FUNCTION")
    if cursor.takes("IF"):
        hint = "each table is created once in a query"
        raise refusal("unsupported", "IF NOT EXISTS is not supported", cursor.text.of_tokens(cursor.previous), hint)
    return _table(cursor.name("the name of the table"), cursor, problems)


def _view(name: Name, columns: tuple[Name, ...], cursor: Cursor, problems: Problems) -> CreateView:
    """A view whose query is wrong still has its name, so that who reads it is not told that there is none."""
    with problems.collecting():
        return CreateView(name, columns, cursor.query())
    return CreateView(name, columns, None)


def _function(cursor: Cursor, problems: Problems) -> CreateFunction:
    """`CREATE FUNCTION name LANGUAGE python [WITH (…)] AS $$…$$`; the clauses may come in any order."""
    name = cursor.name("the name of the function")
    if cursor.sees("(") or cursor.sees("RETURNS"):
        hint = "the types come from the hints of the Python function"
        raise refusal("syntax", "a function is created by its name alone", cursor.text.of_tokens(cursor.take()), hint)
    options: tuple[Option, ...] = ()
    source: Token | None = None
    while not cursor.at_end:
        if cursor.takes("LANGUAGE"):
            language = cursor.name("the language of the function")
            if language.text != "python":
                raise refusal("unsupported", f"there is no language {language.text}", language.span, "write python")
        elif cursor.takes("WITH"):
            options = _options(cursor, problems)
        elif cursor.takes("AS"):
            source = cursor.current
            cursor.string("the source of the function")
        else:
            raise cursor.unexpected("expected LANGUAGE, WITH or AS")
    if source is None:
        raise cursor.unexpected("expected AS $$…$$ with the source of the function")
    return _sourced(name, options, source, cursor.text.content)


def _sourced(name: Name, options: tuple[Option, ...], token: Token, content: str) -> CreateFunction:
    """The source without the margin that all its lines have in the user's text."""
    quotes = content.index("$", token.start + 1) - token.start + 1 if content[token.start] == "$" else 1
    source = textwrap.dedent(token.text)
    lines = zip(token.text.splitlines(), source.splitlines(), strict=False)
    margin = max((len(before) - len(after) for before, after in lines if after.strip()), default=0)
    return CreateFunction(name, options, source, token.start + quotes, margin)


def _table(name: Name, cursor: Cursor, problems: Problems) -> CreateTable:
    columns: list[Column] = []
    watermark: Watermark | None = None
    primary_key: list[Name] = []
    faults = len(problems.diagnostics)
    options: tuple[Option, ...] | None = None
    query: exp.Query | None = None
    with problems.collecting():
        for part in cursor.inside().parts() if cursor.sees("(") else ():
            with problems.collecting():
                if part.takes("WATERMARK", "FOR"):
                    watermark = _watermark(part, watermark)
                elif part.sees("PRIMARY", "KEY"):
                    primary_key.extend(_primary_key(part))
                elif part.sees("CONSTRAINT") or part.sees("UNIQUE") or part.sees("CHECK") or part.sees("FOREIGN"):
                    raise refusal("unsupported", "constraints are not supported", part.span())
                else:
                    column, is_key = _column(part)
                    columns.append(column)
                    primary_key.extend([column.name] if is_key else [])
        if cursor.takes("WITH"):
            options = _options(cursor, problems)
        if cursor.takes("AS"):
            query = cursor.query()
        else:
            cursor.end()
    has_faults = len(problems.diagnostics) > faults
    return CreateTable(name, tuple(columns), watermark, tuple(primary_key), options, query, has_faults)


def _watermark(part: Cursor, earlier: Watermark | None) -> Watermark:
    if earlier is not None:
        raise refusal("duplicate", "a table has one WATERMARK", part.span())
    column = part.name("the column of the event time")
    expression = part.rest().expression() if part.takes("AS") else None
    part.end()
    return Watermark(column, expression)


def _primary_key(part: Cursor) -> tuple[Name, ...]:
    part.expect("PRIMARY", "KEY")
    names = part.names("a column")
    part.end()
    return names


def _column(part: Cursor) -> tuple[Column, bool]:
    name = part.name("the name of a column")
    written = part.until(*_CONSTRAINTS)
    if written.at_end:
        raise part.unexpected(f"expected the type of column {name.text}")
    tree = written.data_type()
    if tree is None:
        word = written.tokens[0]
        hint = did_you_mean(word.text, _TYPE_NAMES) or "the types are listed in the SQL reference"
        raise refusal("unknown_type", f"unknown type {word.text}", written.span(), hint)
    try:
        kind = arrow_type(tree, part.text)
    except Refused as refused:  # a type has no place of its own
        raise refusal(
            refused.diagnostic.code, refused.diagnostic.message, written.span(), refused.diagnostic.hint
        ) from None
    nullable, computed, metadata_key, is_key = True, None, None, False
    while not part.at_end:
        if part.takes("NOT", "NULL"):
            nullable = False
        elif part.takes("NULL"):
            pass
        elif part.takes("PRIMARY", "KEY"):
            nullable, is_key = False, True
        elif part.takes("GENERATED", "ALWAYS", "AS") or part.takes("AS"):
            computed = part.inside().expression()
            _ = part.takes("STORED") or part.takes("VIRTUAL")
        elif part.takes("METADATA", "FROM"):
            metadata_key = part.string("the connector's name of the metadata")
        else:
            raise part.unexpected("expected NOT NULL, PRIMARY KEY, GENERATED ALWAYS AS (…) or METADATA FROM '…'")
    if computed is not None and metadata_key is not None:
        raise refusal("syntax", f"column {name.text} is both computed and metadata", name.span)
    metadata = field_metadata(tree)
    field = pa.field(name.text, kind, nullable, metadata and dict(metadata))
    return Column(name, field, computed, metadata_key), is_key


_TYPE_NAMES: Final = (
    "BOOLEAN", "SMALLINT", "INT", "INTEGER", "BIGINT", "REAL", "FLOAT", "DOUBLE", "DECIMAL", "NUMERIC", "TEXT",
    "VARCHAR", "BYTEA", "DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "INTERVAL", "JSON", "STRUCT", "ARRAY", "MAP",
)  # fmt: skip


def _options(cursor: Cursor, problems: Problems) -> tuple[Option, ...]:
    options: dict[str, Option] = {}
    for part in cursor.inside().parts():
        with problems.collecting():
            option = _option(part)
            if option.name in options:
                raise refusal("duplicate", f"the option {option.name} is given twice", option.span)
            options[option.name] = option
    return tuple(options.values())


def _option(part: Cursor) -> Option:
    token = part.current
    if token is not None and token.token_type is TokenType.STRING:
        name = part.string("the name of an option")
    else:
        first = part.until("=")
        if first.at_end:
            raise part.unexpected("expected the name of an option")
        # A dotted name is one option.
        spelled = "".join(token.text for token in first.tokens)
        name = Name(spelled.lower(), first.span())
    part.expect("=")
    value, span = _value(part)
    part.end()
    return Option(name.text, value, name.span, span)


def _value(part: Cursor) -> tuple[str, Span]:
    """A literal; INTERVAL may stand before one that is text."""
    first = part.current
    part.takes("INTERVAL")
    negative = part.takes("-")
    token = part.current
    if token is None or first is None:
        raise part.unexpected("expected a value")
    is_word = token.token_type in (TokenType.TRUE, TokenType.FALSE)
    if not is_word and token.token_type not in (TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.NUMBER):
        refused = part.unexpected("expected a value")
        hint = f"write it in single quotes: '{token.text}'" if token.text[:1].isalpha() else None
        raise refusal("syntax", refused.diagnostic.message, refused.diagnostic.span, hint)
    part.take()
    content = token.text.lower() if is_word else token.text
    return f"-{content}" if negative else content, part.text.of_tokens(first, token)


def _insert(cursor: Cursor) -> Insert:
    cursor.expect("INTO")
    table = cursor.name("the name of a table")
    columns = cursor.names("a column") if cursor.sees("(") and not _is_query_ahead(cursor) else ()
    _refuse_values(cursor)
    if not any(cursor.sees(word) for word in _QUERY):
        raise cursor.unexpected("expected a query")
    return Insert(table, columns, cursor.rest().query())


def _refuse_values(cursor: Cursor) -> None:
    if cursor.takes("VALUES"):
        hint = "read rows from a source, such as a single_file"
        raise refusal("unsupported", "VALUES is not supported", cursor.text.of_tokens(cursor.previous), hint)


def _is_query_ahead(cursor: Cursor) -> bool:
    return any(cursor.sees("(", word) for word in _QUERY)


def _set(cursor: Cursor) -> Set:
    name = cursor.name("the name of a setting")
    if not cursor.takes("="):
        cursor.expect("TO")
    value, span = _value(cursor)
    cursor.end()
    return Set(name, value, span)
