"""What a query may not hold: refused with its reason before Spark sees it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
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
        "qualify": ("unsupported", "QUALIFY is not supported", "put the query into FROM, and filter in WHERE"),
    }
)
_KEYWORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "order": r"ORDER\s+BY",
        "sort": r"SORT\s+BY",
        "limit": "LIMIT",
        "offset": "OFFSET",
        "qualify": "QUALIFY",
    }
)
# They call any method of the JVM, which is nobody's query's business.
_FORBIDDEN: Final = frozenset({"reflect", "try_reflect", "java_method"})
_TAKEN: Final = frozenset(
    {"expressions", "from_", "where", "joins", "laterals", "with_", "group", "having", "distinct", "windows"}
)
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


class Clause(StrEnum):
    """Where an expression is, which decides what can be in it."""

    SELECT = "SELECT"
    WHERE = "WHERE"
    HAVING = "HAVING"
    GROUP_BY = "GROUP BY"
    ON = "ON"
    COLUMN = "a computed column"


def check_expressions(tree: exp.Expr, clause: Clause, kinds: Mapping[str, FunctionKind], text: Text) -> None:
    """Refuses in an expression what cannot be there."""
    for node in tree.walk():
        refused = _refused(node, clause, kinds, text)
        if refused is not None:
            raise refused


def _refused(node: exp.Expr, clause: Clause, kinds: Mapping[str, FunctionKind], text: Text) -> Refused | None:
    match node:
        case exp.Window() if clause is not Clause.SELECT:
            hint = "compute it in a query in FROM, and use it in the query around that"
            return refusal("misplaced_over", f"OVER cannot be in {clause}", text.span(node), hint)
        case exp.Query() | exp.Exists():
            hint = "write it as a query in FROM"
            return refusal("unsupported", "subqueries in expressions are not supported yet", text.span(node), hint)
        case exp.Anonymous():
            return _refused_call(node, clause, kinds, text)
    return None


def _refused_call(node: exp.Anonymous, clause: Clause, kinds: Mapping[str, FunctionKind], text: Text) -> Refused | None:
    name = node.name.lower()
    place = text.place(node)
    if name in functions.WINDOWS and clause in (Clause.WHERE, Clause.ON, Clause.COLUMN):
        hint = "group by it in a query in FROM"
        return refusal("window_not_grouped", f"{name} is a window, which belongs in GROUP BY", place, hint)
    kind = FunctionKind.AGGREGATE if name in functions.AGGREGATES else kinds.get(name)
    if kind is FunctionKind.AGGREGATE and clause in (Clause.WHERE, Clause.ON, Clause.COLUMN):
        better = "use HAVING" if clause is Clause.WHERE else None
        written = node.meta.get(functions.WRITTEN, name)
        return refusal("misplaced_aggregate", f"the aggregate {written} cannot be in {clause}", place, better)
    if kind is FunctionKind.WINDOW and not _has_over(node):
        return refusal("missing_over", f"{name} needs OVER", place, f"write {name}(…) OVER (PARTITION BY … ORDER BY …)")
    if name.startswith("penstock_") or name in _FORBIDDEN:
        return refusal("unknown_function", f"unknown function {name}", place)
    return None


def _has_over(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        parent = parent.parent
    return isinstance(parent, exp.Window)
