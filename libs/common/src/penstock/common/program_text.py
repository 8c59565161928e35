"""A program as text: for golden tests and the terminal, and as a Mermaid graph."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, assert_never

import pyarrow as pa

from penstock.common.program import (
    ArrowKey,
    ArrowValue,
    AsyncUdf,
    ConnectorSink,
    ConnectorSource,
    Edge,
    EdgeKind,
    Function,
    InstantJoin,
    Join,
    JoinSide,
    LookupJoin,
    Node,
    Operator,
    Output,
    Program,
    ProgramSettings,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    StageQuery,
    TemporalJoin,
    TtlTime,
    TumblingWindowAggregate,
    UpdatingAggregate,
    WindowFunction,
)
from penstock.common.redaction import MASK, looks_secret, redact

_OBSERVES: Final = ", observing event times"


def plan_text(program: Program) -> str:
    """The whole program, the same text for the same program."""
    lines = [*_settings_lines(program.settings), *map(_function_text, program.functions)]
    for node in program.nodes:
        lines.extend(_node_lines(program, node))
    return "\n".join(lines) + "\n"


def mermaid(program: Program) -> str:
    """The program as a Mermaid flow chart: a box for each chain."""
    names = {node.key: f"n{index}" for index, node in enumerate(program.nodes)}
    lines = ["flowchart LR"]
    for node in program.nodes:
        steps = "<br/>".join(_label(operator.description) for operator in node.operators)
        limit = f"<br/><i>at most {node.parallelism}</i>" if node.parallelism else ""
        lines.append(f'    {names[node.key]}["{steps}{limit}"]')
    for edge in program.edges:
        label = f"|{_label(_edge_text(edge))}| " if _edge_text(edge) else ""
        lines.append(f"    {names[edge.source]} -->{label or ' '}{names[edge.target]}")
    return "\n".join(lines) + "\n"


def _ttl_text(ttl_ms: int, time: TtlTime) -> str:
    ttl = f", ttl {ttl_ms} ms" if ttl_ms else ""
    return ttl if time is TtlTime.EVENT else f"{ttl or ', ttl'} by {time.name.lower()} time"


def _settings_lines(settings: ProgramSettings) -> Iterator[str]:
    for name in ("parallelism", "checkpoint_interval_ms", "updating_ttl_ms", "allowed_lateness_ms"):
        if value := getattr(settings, name):
            yield f"set {name} = {value}"
    if settings.updating_ttl_time is not TtlTime.EVENT:
        yield f"set updating_ttl_time = {settings.updating_ttl_time.name.lower()}"


def _function_text(function: Function) -> str:
    signature = function.signature
    parameters = _schema_text(signature.parameters)
    return f"function {function.key}: {signature.style} {signature.shape} ({parameters}) -> {signature.returns}"


def _node_lines(program: Program, node: Node) -> Iterator[str]:
    limit = f" (at most {node.parallelism})" if node.parallelism else ""
    yield f"node {node.key}{limit}"
    for edge in program.inputs_of(node.key):
        yield " ".join(filter(None, ["  from", edge.source, _edge_text(edge)]))
    for operator in node.operators:
        yield from (f"  {line}" for line in _operator_lines(operator))


def _operator_lines(operator: Operator) -> Iterator[str]:
    match operator.kind:
        case ConnectorSource(connector, table, options, metadata, idle_ms):
            idle = f" idle after {idle_ms} ms" if idle_ms else ""
            yield f"source {operator.key}: {connector} {table}{_options_text(options)}{idle}"
            for column, name in sorted(metadata.items()):
                yield f"  metadata {column} = {name}"
        case ConnectorSink(connector, table, options, schema):
            yield f"sink {operator.key}: {connector} {table}{_options_text(options)}"
            yield f"  <- {_schema_text(schema)}"
        case ArrowValue(sql, observes):
            yield f"value {operator.key}: {operator.description}{_OBSERVES if observes else ''}"
            yield f"  {sql}"
        case ArrowKey(query, observes):
            yield f"key {operator.key}: {operator.description}{_OBSERVES if observes else ''}"
            yield from _query_lines(query)
        case TumblingWindowAggregate(width_us, merge, final, lateness_us):
            yield f"tumbling window {operator.key}: width {width_us} us{_lateness_text(lateness_us)}"
            yield from _stage_lines(merge, final)
        case SlidingWindowAggregate(slide_us, width_us, merge, final, lateness_us):
            corrected = _lateness_text(lateness_us)
            yield f"sliding window {operator.key}: slide {slide_us} us, width {width_us} us{corrected}"
            yield from _stage_lines(merge, final)
        case SessionWindowAggregate(gap_us, merge, final):
            yield f"session window {operator.key}: gap {gap_us} us"
            yield from _stage_lines(merge, final)
        case UpdatingAggregate(merge, final, ttl_ms, ttl_time):
            yield f"updating {operator.key}: {operator.description}{_ttl_text(ttl_ms, ttl_time)}"
            yield from _stage_lines(merge, final)
        case WindowFunction(sql):
            yield f"window function {operator.key}: {operator.description}"
            yield f"  {sql}"
        case InstantJoin(left, right, sql):
            yield f"instant join {operator.key}: {operator.description}"
            yield f"  left {_schema_text(left)}"
            yield f"  right {_schema_text(right)}"
            yield f"  {sql}"
        case Join(left, right, sql, kind, ttl_ms, ttl_time):
            yield f"{kind.name.lower()} join {operator.key}: {operator.description}{_ttl_text(ttl_ms, ttl_time)}"
            yield from _side_lines("left", left)
            yield from _side_lines("right", right)
            yield f"  {sql}"
        case TemporalJoin(left, right, versions, sql, ttl_ms):
            yield f"temporal join {operator.key}: {operator.description}{f', ttl {ttl_ms} ms' if ttl_ms else ''}"
            yield f"  left {_schema_text(left)}"
            yield f"  right {_schema_text(right)}"
            yield f"  versions {versions}"
            yield f"  {sql}"
        case LookupJoin() as join:
            yield from _lookup_lines(operator, join)
        case AsyncUdf() as udf:
            order = "in order" if udf.ordered else "in any order"
            times = f"{udf.in_flight} at once {order}, each in {udf.timeout_ms} ms, {udf.retries} retries"
            yield f"async udf {operator.key}: {times}"
            yield f"  {udf.result} = {udf.function}({', '.join(udf.arguments)})"
        case _:
            assert_never(operator.kind)
    if operator.output is not None:
        yield f"  -> {_schema_text(operator.output)}"


def _side_lines(name: str, side: JoinSide) -> Iterator[str]:
    how = "counted" if side.counted else "as they come"
    retention = f", kept {side.retention_us} us" if side.retention_us else ""
    yield f"  {name} {how}{retention}: {_schema_text(side.rows)}"
    if side.counted:
        yield f"    {side.counted}"


def _lookup_lines(operator: Operator, join: LookupJoin) -> Iterator[str]:
    outer = " or nulls" if join.outer else ""
    yield f"lookup {operator.key}: {join.connector} {join.table}{_options_text(join.options)}{outer}"
    yield f"  by {', '.join(join.keys)}"
    yield f"  of {_schema_text(join.looked_up)}"
    for name, column in sorted(join.names.items()):
        yield f"  {name} = {column}"


def _stage_lines(merge: StageQuery, final: StageQuery) -> Iterator[str]:
    for name, query in (("merge", merge), ("final", final)):
        yield f"  {name}"
        yield from (f"  {line}" for line in _query_lines(query))


def _query_lines(query: StageQuery) -> Iterator[str]:
    if query.before:
        yield f"  {query.before}"
    if query.aggregation is not None and query.stage is not None:
        yield f"  {query.stage.name.lower()} of {query.aggregation.sql}"
        yield f"    of {_schema_text(query.aggregation.input)}"
    if query.after:
        yield f"  then {query.after}"


def _lateness_text(lateness_us: int) -> str:
    return f", corrected for {lateness_us} us" if lateness_us else ""


def _options_text(options: Mapping[str, str]) -> str:
    return "".join(f" {name}={_shown(name, value)!r}" for name, value in sorted(options.items()))


def _shown(name: str, value: str) -> object:
    is_template = value.startswith("{{") and value.endswith("}}")
    return MASK if looks_secret(name) and not is_template else redact(value)


def _schema_text(schema: pa.Schema) -> str:
    return ", ".join(map(_field_text, schema))


def _field_text(field: pa.Field) -> str:
    kind = (field.metadata or {}).get(b"penstock.type", b"").decode() or str(field.type)
    return f"{field.name} {kind}{'' if field.nullable else ' not null'}"


def _edge_text(edge: Edge) -> str:
    kind = "" if edge.kind is EdgeKind.FORWARD else " ".join([edge.kind.name.lower().replace("_", " "), *edge.keys])
    output = "" if edge.output is Output.ROWS else "dead letters"
    return ", ".join(filter(None, [kind, output]))


def _label(text: str) -> str:
    """Text that Mermaid takes for text."""
    return re.sub(r'[&<>"#|]', lambda match: f"#{ord(match.group())};", text)
