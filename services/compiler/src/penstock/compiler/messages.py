"""Spark's errors in the language's own words: no word of Spark's plans, and names as the user wrote them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.compiler.diagnostics import did_you_mean, listed
from penstock.compiler.relations import HIDDEN
from penstock.spark.errors import QueryError


@dataclass(frozen=True, slots=True)
class Said:
    """What is told of an error."""

    code: str
    message: str
    hint: str | None = None


_BACKTICKS: Final = re.compile(r"`((?:[^`]|``)*)`")
_QUOTED: Final = re.compile(r'"([^"]*)"')
_ADVICE: Final = re.compile(
    r"\s*(?:If (?:necessary|this)|To (?:fix|resolve|tolerate|bypass)|Did you mean|Use `?try_|Please|SQLSTATE)\b.*$"
)
_TYPES: Final = (
    ("TIMESTAMP_NTZ", "TIMESTAMP"),
    ("TIMESTAMP_LTZ", "TIMESTAMPTZ"),
    ("STRING", "TEXT"),
    ("BINARY", "BYTEA"),
    ("VOID", "NULL"),
)


def explain(error: QueryError, columns: Sequence[str], functions: Collection[str], written: str) -> Said:
    """An error of Spark's analysis, about a query over these columns; `written` is what the user has at its place."""
    family, _, kind = error.error_class.partition(".")
    names = [name.replace("``", "`") for name in _BACKTICKS.findall(error.message)]
    match family:
        case "UNRESOLVED_COLUMN" | "MISSING_ATTRIBUTES":
            return _unknown_column(names[0] if names else written, columns)
        case "UNRESOLVED_STAR":
            return Said("unknown_column", f"there is nothing called {written} whose columns could be taken")
        case "FIELD_NOT_FOUND":
            field = names[0] if names else written
            return Said("unknown_column", f"there is no field {field}", _fields_hint(field, names[1:]))
        case "INVALID_EXTRACT_BASE_FIELD_TYPE" | "INVALID_EXTRACT_FIELD_TYPE":
            return Said("type_mismatch", f"{written or 'this'} is not a struct, an array or a map")
        case "UNRESOLVED_ROUTINE":
            name = names[0].split(".")[-1] if names else written
            return Said("unknown_function", f"unknown function {name}", did_you_mean(name, functions))
        case "WRONG_NUM_ARGS":
            return _wrong_count(error.message, names, written)
        case "AMBIGUOUS_REFERENCE":
            name = names[0] if names else written
            return Said("ambiguous_column", f"column {name} could be one of several", "write the table before it")
        case "DATATYPE_MISMATCH":
            return _mismatch(kind, error.message)
        case "FAILED_TO_PARSE_TOO_COMPLEX":
            return Said("too_complex", "the query is too complex", "split it with WITH or CREATE VIEW")
        case "PARSE_SYNTAX_ERROR" | "PARSE_EMPTY_STATEMENT":
            return Said("syntax", f"this is not understood near {written!r}" if written else "this is not understood")
        case "UNSUPPORTED_GENERATOR":
            hint = "use CROSS JOIN UNNEST(…)"
            return Said("unsupported", "a function that makes rows stands alone in the SELECT list", hint)
        case "INVALID_LAMBDA_FUNCTION_CALL":
            return Said("type_mismatch", f"{written or 'this function'} does not take a function such as x -> x + 1")
        case "INVALID_USAGE_OF_STAR_OR_REGEX":
            return Said("syntax", "a star stands alone in the SELECT list")
        case "DIVIDE_BY_ZERO":
            return Said("invalid_literal", "this divides by zero")
        case "INVALID_TYPED_LITERAL" | "CAST_INVALID_INPUT" | "INVALID_FORMAT":
            return Said("invalid_literal", _told(error.message.partition(". ")[0]))
        case "MISSING_GROUP_BY" | "MISSING_AGGREGATION" | "GROUP_BY_AGGREGATE" | "INVALID_WHERE_CONDITION":
            return Said("unsupported", "aggregates are not supported here")
        case "NUM_COLUMNS_MISMATCH":
            return Said("column_count", "the sides of UNION ALL have different numbers of columns")
        case "INCOMPATIBLE_COLUMN_TYPE":
            return Said("type_mismatch", _told(error.message))
        case _:
            return Said(_code(family), _told(error.message))


def _unknown_column(name: str, columns: Sequence[str]) -> Said:
    shown = name.replace("`", "")
    known = [column for column in columns if column not in HIDDEN]
    last = shown.split(".")[-1]
    same = next((column for column in known if column.lower() == last.lower() and column != last), None)
    if same is not None:
        return Said("unknown_column", f"unknown column {shown}", f'names fold to small letters; write "{same}"')
    hint = did_you_mean(last, known) or (f"the columns are {listed(known)}" if known else None)
    return Said("unknown_column", f"unknown column {shown}", hint)


def _fields_hint(field: str, fields: Sequence[str]) -> str | None:
    return did_you_mean(field, fields) or (f"the fields are {listed(fields)}" if fields else None)


def _wrong_count(message: str, names: Sequence[str], written: str) -> Said:
    name = (names[0] if names else written).split(".")[-1]
    counts = re.search(r"requires (.+?) parameters? but the actual number is (\d+)", message)
    if counts is None:
        return Said("wrong_arguments", f"{name} does not take so many arguments")
    wanted = counts[1].replace("[", "").replace("]", "").replace(", ", " or ")
    noun = "argument" if wanted == "1" else "arguments"
    return Said("wrong_arguments", f"{name} takes {wanted} {noun}, not {counts[2]}")


def _mismatch(kind: str, message: str) -> Said:
    types = [_type(name) for name in _QUOTED.findall(message)]
    match kind:
        case "BINARY_OP_DIFF_TYPES" if len(types) >= 3:
            return Said(
                "type_mismatch", f"the two sides have types that do not go together: {types[-2]} and {types[-1]}"
            )
        case "CAST_WITHOUT_SUGGESTION" | "CAST_WITH_CONF_SUGGESTION" | "CAST_WITH_FUNC_SUGGESTION" if len(types) >= 3:
            return Said("type_mismatch", f"{types[-2]} cannot be cast to {types[-1]}")
        case "FILTER_NOT_BOOLEAN" if types:
            return Said("type_mismatch", f"a condition is BOOLEAN, not {types[-1]}")
    reason = re.sub(r'^Cannot resolve "(?:[^"]|"(?! due to))*" due to data type mismatch: ', "", message)
    return Said("type_mismatch", _told(reason))


def _type(name: str) -> str:
    for theirs, ours in _TYPES:
        name = re.sub(rf"\b{theirs}\b", ours, name)
    return name


def _told(message: str) -> str:
    """Spark's sentence without marks, advice and a full stop."""
    said = _ADVICE.sub("", message.partition("\n")[0])
    said = _QUOTED.sub(lambda match: _type(match[1]), _BACKTICKS.sub(r"\1", said))
    said = re.sub(r"\bpenstock_divide\(", "(", said).replace("SQL statement", "query").replace("input.", "")
    if "org.apache" in said:
        return "this is not possible in a query"
    said = said.strip().rstrip(".:").strip()
    return said[:1].lower() + said[1:] if said[1:2].islower() else said


def _code(family: str) -> str:
    return "invalid_query" if not family else family.lower()
