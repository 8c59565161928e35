"""From what Postgres means to what Spark means, on the tree of an expression or a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from sqlglot import exp

from penstock.compiler import functions
from penstock.compiler.diagnostics import refusal
from penstock.compiler.functions import call
from penstock.compiler.intervals import parse_interval, spark_interval
from penstock.compiler.positions import Text
from penstock.compiler.types import SPARK_TYPE, arrow_type, spark_name

_NO_KEY: Final = frozenset("'?\\")


def fold_names(tree: exp.Expr) -> exp.Expr:
    """Names as Postgres has them: in small letters, but for those in quotes."""
    for identifier in tree.find_all(exp.Identifier):
        if not identifier.args.get("quoted"):
            identifier.set("this", identifier.name.lower())
    return tree


def to_spark(tree: exp.Expr, text: Text) -> exp.Expr:
    """A copy of the tree that means in Spark what the user's means in Postgres."""
    root = exp.Paren(this=tree.copy())
    _with_json_arguments(root)
    for node in reversed(list(root.walk(bfs=True))):
        rewrite = _REWRITES.get(type(node))
        if rewrite is None or (replacement := rewrite(node, text)) is node:
            continue
        meta = node._meta
        if meta and "start" in meta and not (replacement._meta and "start" in replacement._meta):
            replacement.meta.update({key: meta[key] for key in ("start", "end", "line", "col") if key in meta})
        node.replace(replacement)
    result: exp.Expr = root.this
    root.set("this", None)
    return result


def _call(node: exp.Anonymous, text: Text) -> exp.Expr:
    rewrite = functions.REWRITES.get(node.name.lower())
    return rewrite(node, text) if rewrite else node


def _divide(node: exp.Div, _: Text) -> exp.Expr:
    return call("penstock_divide", _bare(node.this), _bare(node.expression))


def _bare(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Paren) else node


def _bracket(node: exp.Bracket, text: Text) -> exp.Expr:
    """Arrays count from 1, and what is not there is NULL; text is a key of a map or a field of a struct."""
    if len(node.expressions) != 1:
        raise refusal("unsupported", "an array is accessed with one index", text.span(node))
    (index,) = node.expressions
    if isinstance(index, exp.Slice):
        raise refusal(
            "unsupported", "slices of arrays are not supported", text.span(node), "use slice(x, start, length)"
        )
    return node if index.is_string else call("try_element_at", node.this, index)


def _interval(node: exp.Interval, text: Text) -> exp.Expr:
    value, unit = node.this, node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return node
    if not isinstance(value, exp.Literal):
        raise refusal("syntax", "an interval is written as text, such as INTERVAL '5 seconds'", text.span(node))
    return _interval_literal(value.name, unit.name if unit else None, text, node)


def _interval_literal(content: str, unit: str | None, text: Text, node: exp.Expr) -> exp.Expr:
    interval = parse_interval(content, unit)
    if interval is None:
        shown = f"{content} {unit.lower()}" if unit else content
        hint = "write a number and a unit, such as '5 seconds' or '1 day 2 hours'"
        raise refusal("invalid_interval", f"{shown!r} is not an interval", text.span(node, node.parent), hint)
    return exp.Var(this=spark_interval(interval))


def _cast(node: exp.Cast, text: Text) -> exp.Expr:
    if SPARK_TYPE in node.to.meta:
        return node
    if node.to.this is exp.DType.INTERVAL and node.this.is_string:
        return _interval_literal(node.this.name, None, text, node)
    node.to.meta[SPARK_TYPE] = spark_name(arrow_type(node.to, text, node))
    return node


def _extract(node: exp.Extract, _: Text) -> exp.Expr:
    return functions.extract(node.name, node.expression)


def _json_text(node: exp.JSONExtractScalar, text: Text) -> exp.Expr:
    """`->>`: the text of what is at the path; the `->` before it become steps of the path."""
    base, path = _json_path(node, text)
    return call("get_json_object", base, path)


def _json(node: exp.JSONExtract, text: Text) -> exp.Expr:
    """`->`: what is at the path, as JSON."""
    if isinstance(node.parent, exp.JSONExtract | exp.JSONExtractScalar) and node.arg_key == "this":
        return node
    base, path = _json_path(node, text)
    return call("to_json", call("variant_get", call("try_parse_json", base), path))


def _json_path(node: exp.Expr, text: Text) -> tuple[exp.Expr, str]:
    steps: list[str] = []
    while isinstance(node, exp.JSONExtract | exp.JSONExtractScalar):
        steps.append(_json_step(node.expression, text, node))
        node = node.this
    return node, "$" + "".join(reversed(steps))


def _json_step(key: exp.Expr, text: Text, near: exp.Expr) -> str:
    if key.is_int:
        return f"[{key.name}]"
    if not key.is_string or _NO_KEY & set(key.name):
        hint = "use get_json_object(value, path) for any other path"
        raise refusal("unsupported", "-> and ->> take a literal key or index", text.span(key, near), hint)
    return f"['{key.name}']"


def _with_json_arguments(root: exp.Expr) -> None:
    """`f(x -> 'key')` is a key of JSON and not a function, when what is right of the arrow begins with a literal."""
    for node in list(root.find_all(exp.Lambda)):
        leftmost: exp.Expr = node.this
        while isinstance(leftmost, exp.JSONExtract | exp.JSONExtractScalar):
            leftmost = leftmost.this
        if len(node.expressions) != 1 or not isinstance(leftmost, exp.Literal):
            continue
        step = exp.JSONExtract(this=exp.Column(this=node.expressions[0]), expression=leftmost.copy())
        leftmost.replace(step)
        node.replace(node.this)


def _matches(node: exp.RegexpILike, _: Text) -> exp.Expr:
    return call("rlike", node.this, call("concat", "(?i)", node.expression))


def _same_constant(name: str) -> Callable[[exp.Expr, Text], exp.Expr]:
    return lambda _node, _text: call(name)


def _equal(node: exp.EQ, _: Text) -> exp.Expr:
    """`x = ANY(array)`."""
    if not isinstance(node.expression, exp.Any):
        return node
    return call("array_contains", _bare(node.expression.this), node.this)


def _any(node: exp.Any, text: Text) -> exp.Expr:
    if isinstance(node.parent, exp.EQ) and node.arg_key == "expression":
        return node
    raise refusal(
        "unsupported", "ANY is supported after = only", text.span(node, node.parent), "use exists(array, x -> …)"
    )


def _unsupported(what: str, hint: str | None = None) -> Callable[[exp.Expr, Text], exp.Expr]:
    def refuse(node: exp.Expr, text: Text) -> exp.Expr:
        raise refusal("unsupported", f"{what} not supported", text.span(node, node.parent), hint)

    return refuse


_REWRITES: Final[Mapping[type[exp.Expr], Callable[[Any, Text], exp.Expr]]] = MappingProxyType(
    {
        exp.All: _unsupported("ALL is", "use forall(array, x -> …)"),
        exp.Anonymous: _call,
        exp.Any: _any,
        exp.AtTimeZone: _unsupported(
            "AT TIME ZONE is", "use convert_timezone('UTC', 'Europe/Berlin', x) for the clock of a zone"
        ),
        exp.Bracket: _bracket,
        exp.Cast: _cast,
        exp.TryCast: _cast,
        exp.CurrentCatalog: _unsupported("CURRENT_CATALOG is"),
        exp.CurrentRole: _unsupported("CURRENT_ROLE is"),
        exp.CurrentSchema: _unsupported("CURRENT_SCHEMA is"),
        exp.CurrentUser: _unsupported("CURRENT_USER is"),
        exp.SessionUser: _unsupported("SESSION_USER is"),
        exp.Div: _divide,
        exp.EQ: _equal,
        exp.Extract: _extract,
        exp.Interval: _interval,
        exp.JSONExtract: _json,
        exp.JSONExtractScalar: _json_text,
        exp.JSONBExtract: _unsupported("the operator #> is", "use get_json_object(value, '$.a.b')"),
        exp.JSONBExtractScalar: _unsupported("the operator #>> is", "use get_json_object(value, '$.a.b')"),
        exp.JSONBContains: _unsupported("the operator ? is"),
        exp.ArrayContainsAll: _unsupported("the operators @> and <@ are", "use array_contains or arrays_overlap"),
        exp.ArrayOverlaps: lambda node, _: call("arrays_overlap", node.this, node.expression),
        exp.Localtime: _same_constant("current_time"),
        exp.Localtimestamp: _same_constant("localtimestamp"),
        exp.Parameter: _unsupported("parameters are"),
        exp.Placeholder: _unsupported("parameters are"),
        exp.RegexpILike: _matches,
        exp.SimilarTo: _unsupported("SIMILAR TO is", "use ~ with a regular expression"),
        exp.MatchAgainst: _unsupported("the operator @@ is"),
        exp.Collate: _unsupported("COLLATE is"),
    }
)
