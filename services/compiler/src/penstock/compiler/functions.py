"""The names of functions that users of Postgres and DataFusion know, as Spark has them; all others are Spark's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.time import format_time

from penstock.compiler.diagnostics import refusal
from penstock.compiler.intervals import unit_of
from penstock.compiler.positions import Text
from penstock.compiler.types import spark_sql_cast as cast

WRITTEN: Final = "written"
"""The key in the meta of a call, under which is how the user spelled a function that has another name here."""

Rewrite = Callable[[exp.Anonymous, Text], exp.Expr]


def call(name: str, *arguments: exp.Expr | str | int) -> exp.Anonymous:
    """A call of a function of Spark's."""
    return exp.Anonymous(
        this=name,
        expressions=[argument if isinstance(argument, exp.Expr) else exp.Literal.string(argument)
                     if isinstance(argument, str) else exp.Literal.number(argument) for argument in arguments],
    )  # fmt: skip


def _renamed(name: str) -> Rewrite:
    return lambda node, _: call(name, *node.expressions)


def _moment(name: str) -> Rewrite:
    """A function that makes a timestamp with a zone of a number; here it has none."""
    return lambda node, _: cast(call(name, *node.expressions), "TIMESTAMP_NTZ")


def _date_trunc(node: exp.Anonymous, text: Text) -> exp.Expr:
    _arguments(node, text, 2)
    unit, moment = node.expressions
    if unit.is_string and unit_of(unit.name) is None:
        raise refusal("invalid_argument", f"date_trunc has no unit {unit.name!r}", text.span(unit),
                      "year, quarter, month, week, day, hour, minute, second")  # fmt: skip
    return cast(call("date_trunc", unit, moment), "TIMESTAMP_NTZ")


def _date_bin(node: exp.Anonymous, text: Text) -> exp.Expr:
    """stride, moment [, origin]: the beginning of the moment's bin."""
    _arguments(node, text, 2, 3)
    stride, moment, *rest = node.expressions
    origin: exp.Expr = _micros(rest[0]) if rest else exp.Literal.number(0)
    seconds = cast(cast(stride, "INTERVAL SECOND"), "DECIMAL(18, 6)")
    micros = cast(exp.Mul(this=seconds, expression=exp.Literal.number(1_000_000)), "BIGINT")
    since = exp.Paren(this=exp.Sub(this=_micros(moment), expression=origin.copy()))
    start = exp.Sub(this=_micros(moment.copy()), expression=call("pmod", since, micros))
    return cast(call("timestamp_micros", start), "TIMESTAMP_NTZ")


def _micros(moment: exp.Expr) -> exp.Expr:
    return call("unix_micros", cast(moment, "TIMESTAMP_LTZ"))


def extract(field: str, value: exp.Expr) -> exp.Expr:
    """A field of a moment, with Postgres' names and numbers."""
    match field.upper():
        case "EPOCH":
            micros = cast(call("unix_micros", cast(value, "TIMESTAMP_LTZ")), "DECIMAL(20, 0)")
            return cast(exp.Div(this=micros, expression=exp.Literal.number(1_000_000)), "DECIMAL(20, 6)")
        case "DOW":
            return exp.Paren(this=exp.Sub(this=call("dayofweek", value), expression=exp.Literal.number(1)))
        case "ISODOW":
            return exp.Paren(this=exp.Add(this=call("weekday", value), expression=exp.Literal.number(1)))
        case "MILLISECOND" | "MILLISECONDS":
            return _seconds_times(value, 1_000)
        case "MICROSECOND" | "MICROSECONDS":
            return _seconds_times(value, 1_000_000)
        case other:
            return exp.Extract(this=exp.Var(this=other), expression=value)


def _seconds_times(value: exp.Expr, factor: int) -> exp.Expr:
    seconds = exp.Extract(this=exp.Var(this="SECOND"), expression=value)
    return exp.Paren(this=exp.Mul(this=seconds, expression=exp.Literal.number(factor)))


def _date_part(node: exp.Anonymous, text: Text) -> exp.Expr:
    _arguments(node, text, 2)
    field, value = node.expressions
    if not field.is_string:
        raise refusal("invalid_argument", "the first argument of date_part is a text", text.span(field))
    return extract(field.name, value)


def _to_char(node: exp.Anonymous, _: Text) -> exp.Expr:
    if (pattern := _java_pattern(node)) is None:
        return node
    return call("date_format", node.expressions[0], pattern)


def _parsed_by(name: str) -> Rewrite:
    def rewrite(node: exp.Anonymous, _: Text) -> exp.Expr:
        pattern = _java_pattern(node)
        return node if pattern is None else call(name, node.expressions[0], pattern)

    return rewrite


def _java_pattern(node: exp.Anonymous) -> str | None:
    """Postgres' pattern of a moment as Java's; None when it is none, or Java's already."""
    if len(node.expressions) != 2 or not node.expressions[1].is_string:
        return None
    pattern = node.expressions[1].name
    if not any(mark in pattern for mark in ("YYYY", "YY", "MI", "HH24", "HH12", "DD", "SS", "Mon", "Day")):
        return None
    python = format_time(
        pattern, {**Postgres.TIME_MAPPING, "HH": "%I", "Mon": "%b", "MS": "%L", "AM": "%p", "PM": "%p"}
    )
    java = {
        "%Y": "yyyy", "%y": "yy", "%m": "MM", "%-m": "M", "%d": "dd", "%-d": "d", "%H": "HH", "%-H": "H", "%I": "hh",
        "%-I": "h", "%M": "mm", "%-M": "m", "%S": "ss", "%-S": "s", "%f": "SSSSSS", "%L": "SSS", "%b": "MMM",
        "%B": "MMMM", "%a": "EEE", "%A": "EEEE", "%p": "a", "%j": "DDD", "%z": "XXX", "%Z": "zzz",
    }  # fmt: skip
    return format_time(python, java) if python else None


def _split_by_text(node: exp.Anonymous, text: Text) -> exp.Expr:
    _arguments(node, text, 2)
    value, delimiter = node.expressions
    if delimiter.is_string:
        return call("split", value, f"\\Q{delimiter.name}\\E")
    return call("split", value, call("concat", "\\Q", delimiter, "\\E"))


def _array_length(node: exp.Anonymous, text: Text) -> exp.Expr:
    _arguments(node, text, 1, 2)
    return call("nullif", call("array_size", node.expressions[0]), 0)


def _regexp_replace(node: exp.Anonymous, _: Text) -> exp.Expr:
    """Postgres' flags; Spark replaces all anyway."""
    if len(node.expressions) != 4 or not node.expressions[3].is_string:
        return node
    value, pattern, replacement, flags = node.expressions
    inline = "".join(flag for flag in flags.name if flag in "ims")
    if inline:
        pattern = call("concat", f"(?{inline})", pattern)
    return call("regexp_replace", value, pattern, replacement)


def _sha(bits: int) -> Rewrite:
    return lambda node, _: call("sha2", *node.expressions, bits)


def _to_hex(node: exp.Anonymous, _: Text) -> exp.Expr:
    return call("lower", call("hex", *node.expressions))


def _string_agg(node: exp.Anonymous, text: Text) -> exp.Expr:
    """The order is inside the parentheses in Postgres, and behind them in Spark."""
    *values, last = node.expressions
    if not isinstance(last, exp.Order):
        return call("listagg", *node.expressions)
    order = exp.Order(expressions=[found.copy() for found in last.expressions])
    return exp.WithinGroup(this=call("listagg", *values, last.this), expression=order)


def _array_agg(node: exp.Anonymous, text: Text) -> exp.Expr:
    """All values, nulls too, which Spark's own leaves out: inside structs, with what orders them, and then alone."""
    _arguments(node, text, 1)
    (argument,) = node.expressions
    ordered = argument.expressions if isinstance(argument, exp.Order) else []
    value = argument.this if ordered else argument
    is_distinct = isinstance(value, exp.Distinct)
    if is_distinct:
        (value,) = value.expressions
    if is_distinct and any(found.this != value for found in ordered):
        raise refusal("unsupported", "DISTINCT values can be ordered by themselves only", text.span(node))
    fields: list[exp.Expr | str] = []
    for number, found in enumerate(ordered):  # nulls come last, or first when it descends
        fields += [f"n{number}", call("isnull", found.this.copy()), f"o{number}", found.this.copy()]
    pair: exp.Expr = call("named_struct", *fields, "value", value.copy())
    pairs: exp.Expr = call("collect_list", exp.Distinct(expressions=[pair]) if is_distinct else pair)
    directions = {bool(found.args.get("desc")) for found in ordered}
    if len(directions) > 1:
        raise refusal("unsupported", "array_agg can be ordered in one direction", text.span(node))
    if directions:
        pairs = call("sort_array", pairs, exp.Boolean(this=directions == {False}))
    parameter = exp.Identifier(this="pair", quoted=True)
    alone = exp.Lambda(
        this=exp.Dot(this=parameter, expression=exp.Identifier(this="value", quoted=True)),
        expressions=[parameter.copy()],
    )
    return call("transform", pairs, alone)


def _ordered_value(earliest: str, latest: str) -> Rewrite:
    """`first_value(x ORDER BY y)` as an aggregate; without an order, or with OVER, it is Spark's own."""

    def rewrite(node: exp.Anonymous, text: Text) -> exp.Expr:
        order = node.expressions[0] if len(node.expressions) == 1 else None
        if not isinstance(order, exp.Order):
            return node
        if len(order.expressions) != 1:
            raise refusal("unsupported", f"{node.name} can be ordered by one value only", text.span(node))
        (by,) = order.expressions
        return call(latest if by.args.get("desc") else earliest, order.this.copy(), by.this.copy())

    return rewrite


def _approx_median(node: exp.Anonymous, text: Text) -> exp.Expr:
    _arguments(node, text, 1)
    return exp.Anonymous(this="approx_percentile", expressions=[*node.expressions, exp.Literal.number("0.5")])


def _arguments(node: exp.Anonymous, text: Text, *numbers: int) -> None:
    if len(node.expressions) not in numbers:
        wanted = " or ".join(map(str, numbers))
        message = f"{node.name} takes {wanted} arguments, not {len(node.expressions)}"
        raise refusal("wrong_arguments", message, text.place(node))


REWRITES: Final[Mapping[str, Rewrite]] = MappingProxyType(
    {
        "approx_distinct": _renamed("approx_count_distinct"),
        "approx_median": _approx_median,
        "approx_percentile_cont": _renamed("approx_percentile"),
        "array_agg": _array_agg,
        "array_has": _renamed("array_contains"),
        "array_length": _array_length,
        "array_to_string": _renamed("array_join"),
        "covar": _renamed("covar_samp"),
        "date_bin": _date_bin,
        "date_part": _date_part,
        "date_trunc": _date_trunc,
        "datetrunc": _date_trunc,
        "ends_with": _renamed("endswith"),
        "extract_json_string": _renamed("get_json_object"),
        "first_value": _ordered_value("min_by", "max_by"),
        "gen_random_uuid": _renamed("uuid"),
        "generate_series": _renamed("sequence"),
        "get_first_json_object": _renamed("get_json_object"),
        "last_value": _ordered_value("max_by", "min_by"),
        "list_contains": _renamed("array_contains"),
        "make_array": _renamed("array"),
        "regexp_replace": _regexp_replace,
        "row": _renamed("struct"),
        "sha224": _sha(224),
        "sha256": _sha(256),
        "sha384": _sha(384),
        "sha512": _sha(512),
        "starts_with": _renamed("startswith"),
        "string_agg": _string_agg,
        "string_to_array": _split_by_text,
        "strpos": _renamed("instr"),
        "to_char": _to_char,
        "to_date": _parsed_by("to_date"),
        "to_hex": _to_hex,
        "to_timestamp": _parsed_by("to_timestamp"),
        "to_timestamp_micros": _moment("timestamp_micros"),
        "to_timestamp_millis": _moment("timestamp_millis"),
        "to_timestamp_seconds": _moment("timestamp_seconds"),
        "unnest": _renamed("explode"),
        "var": _renamed("var_samp"),
    }
)

# Names of aggregates that are not Spark's own; of those the engine knows the kind.
AGGREGATES: Final = frozenset({"approx_distinct", "approx_median", "approx_percentile_cont", "covar", "var"})
# Windows of event time.
WINDOWS: Final = frozenset({"tumble", "hop", "session"})
