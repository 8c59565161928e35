"""What a query may not hold: refused with its reason before Spark sees it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from penstock.compiler import functions
from penstock.compiler.diagnostics import Refused, refusal
from penstock.compiler.positions import Text
from penstock.spark import FunctionKind

_UNBOUNDED_HINT: Final = "a stream has no end: its rows come in the order of their arrival, and never stop"
_CLAUSES: Final[Mapping[str, tuple[str, str, str | None]]] = MappingProxyType(
    {
        "order": ("unbounded", "ORDER BY needs all rows of a stream", _UNBOUNDED_HINT),
        "sort": ("unbounded", "SORT BY needs all rows of a stream", _UNBOUNDED_HINT),
        "limit": ("unbounded", "LIMIT on a stream would end it", _UNBOUNDED_HINT),
        "offset": ("unbounded", "OFFSET needs an order, which a stream has not", _UNBOUNDED_HINT),
        "group": ("unsupported", "GROUP BY is not supported yet", None),
        "having": ("unsupported", "HAVING is not supported yet", None),
        "distinct": ("unsupported", "DISTINCT is not supported yet", None),
        "qualify": ("unsupported", "QUALIFY is not supported", None),
        "windows": ("unsupported", "window functions are not supported yet", None),
    }
)
_KEYWORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "order": r"ORDER\s+BY",
        "sort": r"SORT\s+BY",
        "limit": "LIMIT",
        "offset": "OFFSET",
        "group": r"GROUP\s+BY",
        "having": "HAVING",
        "distinct": "DISTINCT",
        "qualify": "QUALIFY",
        "windows": "WINDOW",
    }
)
# They call any method of the JVM, which is nobody's query's business.
_FORBIDDEN: Final = frozenset({"reflect", "try_reflect", "java_method"})
_TAKEN: Final = frozenset({"expressions", "from_", "where", "joins", "laterals", "with_"})
_SET_OPERATION: Final = frozenset({"this", "expression", "distinct", "with_", "by_name", "side", "kind", "on"})


def check_clauses(query: exp.Query, text: Text) -> None:
    """Refuses clauses that a query over a stream cannot have."""
    taken = _TAKEN if isinstance(query, exp.Select) else _SET_OPERATION
    if isinstance(query, exp.Subquery):
        taken = frozenset({"this", "alias", "with_"})
    for name, clause in query.args.items():
        if not clause or name in taken:
            continue
        code, message, hint = _CLAUSES.get(name, ("unsupported", f"{_spoken(name)} is not supported", None))
        node = clause[0] if isinstance(clause, list) else clause
        first = node if isinstance(node, exp.Expr) and text.span(node) else query
        raise refusal(code, message, text.keyword(_KEYWORDS.get(name), first) or text.span(query), hint)


def _spoken(name: str) -> str:
    return name.rstrip("_").replace("_", " ").upper()


def check_expressions(tree: exp.Expr, kinds: Mapping[str, FunctionKind], text: Text) -> None:
    """Refuses in an expression what is not a function of one row."""
    for node in tree.walk():
        refused = _refused(node, kinds, text)
        if refused is not None:
            raise refused


def _refused(node: exp.Expr, kinds: Mapping[str, FunctionKind], text: Text) -> Refused | None:
    match node:
        case exp.Window():
            return refusal("unsupported", "window functions (OVER) are not supported yet", text.span(node))
        case exp.Query() | exp.Exists():
            hint = "write it as a query in FROM"
            return refusal("unsupported", "subqueries in expressions are not supported yet", text.span(node), hint)
        case exp.Filter() | exp.WithinGroup() | exp.Distinct() | exp.Order():
            return refusal("unsupported", "aggregates are not supported yet", text.span(node))
        case exp.Anonymous():
            return _refused_call(node, kinds, text)
    return None


def _refused_call(node: exp.Anonymous, kinds: Mapping[str, FunctionKind], text: Text) -> Refused | None:
    name = node.name.lower()
    place = text.place(node)
    if name in functions.WINDOWS:
        message = f"{name} is a window of event time, which belongs in GROUP BY; GROUP BY is not supported yet"
        return refusal("unsupported", message, place)
    kind = FunctionKind.AGGREGATE if name in functions.AGGREGATES else kinds.get(name)
    if kind is FunctionKind.AGGREGATE:
        return refusal("unsupported", f"aggregates such as {name} are not supported yet", place)
    if kind is FunctionKind.WINDOW:
        return refusal("unsupported", f"{name} needs OVER, and window functions are not supported yet", place)
    if name.startswith("penstock_") or name in _FORBIDDEN:
        return refusal("unknown_function", f"unknown function {name}", place)
    return None
