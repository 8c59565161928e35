"""Programs as messages, and back."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias, assert_never

import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.common.program import (
    Aggregation,
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
    JoinKind,
    JoinSide,
    LookupJoin,
    Node,
    NodeKey,
    Operator,
    OperatorKey,
    OperatorKind,
    Output,
    Program,
    ProgramSettings,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    Stage,
    StageQuery,
    TemporalJoin,
    TtlTime,
    TumblingWindowAggregate,
    UpdatingAggregate,
    WindowFunction,
)
from penstock.common.proto import program_pb2 as proto
from penstock.common.udfs import Shape, Signature, Style


def program_to_proto(program: Program) -> proto.Program:
    """The program as a message."""
    settings = program.settings
    return proto.Program(
        nodes=[
            proto.Node(
                id=node.key,
                description=node.description,
                parallelism=node.parallelism,
                operators=map(_operator_to_proto, node.operators),
            )
            for node in program.nodes
        ],
        edges=[
            proto.Edge(
                source=edge.source,
                target=edge.target,
                kind=edge.kind.value,
                keys=edge.keys,
                output=edge.output.value,
            )
            for edge in program.edges
        ],
        settings=proto.ProgramSettings(
            parallelism=settings.parallelism,
            checkpoint_interval_ms=settings.checkpoint_interval_ms,
            updating_ttl_ms=settings.updating_ttl_ms,
            allowed_lateness_ms=settings.allowed_lateness_ms,
            updating_ttl_time=settings.updating_ttl_time.value,
        ),
        functions=map(function_to_proto, program.functions),
    )


def program_from_proto(message: proto.Program) -> Program:
    """The program in a message."""
    settings = message.settings
    return Program(
        nodes=tuple(
            Node(
                NodeKey(node.id),
                node.description,
                tuple(map(_operator_from_proto, node.operators)),
                node.parallelism,
            )
            for node in message.nodes
        ),
        edges=tuple(
            Edge(NodeKey(edge.source), NodeKey(edge.target), EdgeKind(edge.kind), tuple(edge.keys), Output(edge.output))
            for edge in message.edges
        ),
        settings=ProgramSettings(
            settings.parallelism,
            settings.checkpoint_interval_ms,
            settings.updating_ttl_ms,
            settings.allowed_lateness_ms,
            TtlTime(settings.updating_ttl_time),
        ),
        functions=tuple(map(function_from_proto, message.functions)),
    )


def function_to_proto(function: Function) -> proto.Function:
    """A Python function as a message."""
    signature = function.signature
    return proto.Function(
        key=function.key,
        name=signature.name,
        hash=function.hash,
        url=function.url,
        shape=proto.FunctionShape.Value(f"FUNCTION_SHAPE_{signature.shape.name}"),
        style=proto.FunctionStyle.Value(f"FUNCTION_STYLE_{signature.style.name}"),
        parameters=_schema_to_bytes(signature.parameters),
        returns=_schema_to_bytes(pa.schema([("value", signature.returns)])),
        catches=function.catches,
    )


def function_from_proto(message: proto.Function) -> Function:
    """The Python function in a message."""
    shape = Shape[proto.FunctionShape.Name(message.shape).removeprefix("FUNCTION_SHAPE_")]
    style = Style[proto.FunctionStyle.Name(message.style).removeprefix("FUNCTION_STYLE_")]
    returns = _schema_of(message.returns).field(0).type
    signature = Signature(message.name, shape, style, _schema_of(message.parameters), returns)
    return Function(message.key, signature, message.hash, message.url, message.catches)


def _operator_to_proto(operator: Operator) -> proto.Operator:
    message = proto.Operator(
        id=operator.key, description=operator.description, output=_schema_to_bytes(operator.output)
    )
    match operator.kind:
        case ConnectorSource(connector, table, options, metadata, idle_ms):
            message.source.CopyFrom(
                proto.ConnectorSource(
                    connector=connector, table=table, options=dict(options), metadata=dict(metadata), idle_ms=idle_ms
                )
            )
        case ConnectorSink(connector, table, options, schema):
            message.sink.CopyFrom(
                proto.ConnectorSink(
                    connector=connector, table=table, options=dict(options), input=_schema_to_bytes(schema)
                )
            )
        case ArrowValue(sql, observes):
            message.value.CopyFrom(proto.ArrowValue(sql=sql, observes=observes))
        case ArrowKey(query, observes):
            message.key.CopyFrom(proto.ArrowKey(query=_query_to_proto(query), observes=observes))
        case TumblingWindowAggregate(width_us, merge, final, lateness_us):
            message.tumbling_window.CopyFrom(
                proto.TumblingWindowAggregate(
                    width_us=width_us,
                    lateness_us=lateness_us,
                    merge=_query_to_proto(merge),
                    final=_query_to_proto(final),
                )
            )
        case SlidingWindowAggregate(slide_us, width_us, merge, final, lateness_us):
            message.sliding_window.CopyFrom(
                proto.SlidingWindowAggregate(
                    slide_us=slide_us,
                    width_us=width_us,
                    lateness_us=lateness_us,
                    merge=_query_to_proto(merge),
                    final=_query_to_proto(final),
                )
            )
        case SessionWindowAggregate(gap_us, merge, final):
            message.session_window.CopyFrom(
                proto.SessionWindowAggregate(gap_us=gap_us, merge=_query_to_proto(merge), final=_query_to_proto(final))
            )
        case UpdatingAggregate(merge, final, ttl_ms, ttl_time):
            message.updating.CopyFrom(
                proto.UpdatingAggregate(
                    merge=_query_to_proto(merge),
                    final=_query_to_proto(final),
                    ttl_ms=ttl_ms,
                    ttl_time=ttl_time.value,
                )
            )
        case WindowFunction(sql):
            message.window_function.CopyFrom(proto.WindowFunction(sql=sql))
        case InstantJoin(left, right, sql):
            message.instant_join.CopyFrom(
                proto.InstantJoin(left=_schema_to_bytes(left), right=_schema_to_bytes(right), sql=sql)
            )
        case Join(left, right, sql, kind, ttl_ms, ttl_time):
            message.join.CopyFrom(
                proto.Join(
                    left=_side_to_proto(left),
                    right=_side_to_proto(right),
                    sql=sql,
                    kind=kind.value,
                    ttl_ms=ttl_ms,
                    ttl_time=ttl_time.value,
                )
            )
        case TemporalJoin(left, right, versions, sql, ttl_ms):
            message.temporal_join.CopyFrom(
                proto.TemporalJoin(
                    left=_schema_to_bytes(left),
                    right=_schema_to_bytes(right),
                    versions=versions,
                    sql=sql,
                    ttl_ms=ttl_ms,
                )
            )
        case LookupJoin() as join:
            message.lookup_join.CopyFrom(_lookup_to_proto(join))
        case AsyncUdf() as udf:
            message.async_udf.CopyFrom(
                proto.AsyncUdf(
                    function=udf.function,
                    arguments=udf.arguments,
                    result=udf.result,
                    ordered=udf.ordered,
                    in_flight=udf.in_flight,
                    timeout_ms=udf.timeout_ms,
                    retries=udf.retries,
                )
            )
        case _:
            assert_never(operator.kind)
    return message


def _side_to_proto(side: JoinSide) -> proto.JoinSide:
    return proto.JoinSide(rows=_schema_to_bytes(side.rows), counted=side.counted, retention_us=side.retention_us)


def _side_from_proto(side: proto.JoinSide) -> JoinSide:
    return JoinSide(_schema_of(side.rows), side.counted, side.retention_us)


def _lookup_to_proto(join: LookupJoin) -> proto.LookupJoin:
    return proto.LookupJoin(
        connector=join.connector,
        table=join.table,
        options=dict(join.options),
        looked_up=_schema_to_bytes(join.looked_up),
        keys=join.keys,
        names=dict(join.names),
        outer=join.outer,
    )


def _query_to_proto(query: StageQuery) -> proto.StageQuery:
    message = proto.StageQuery(before=query.before, after=query.after)
    if query.aggregation is not None and query.stage is not None:
        aggregation = query.aggregation
        message.stage = query.stage.value
        message.aggregation.CopyFrom(
            proto.Aggregation(
                sql=aggregation.sql,
                input=_schema_to_bytes(aggregation.input),
                partial=_schema_to_bytes(aggregation.partial),
            )
        )
    return message


def _operator_from_proto(message: proto.Operator) -> Operator:
    output = _schema_from_bytes(message.output)
    return Operator(OperatorKey(message.id), message.description, _kind_from_proto(message), output)


def _kind_from_proto(message: proto.Operator) -> OperatorKind:
    match message.WhichOneof("kind"):
        case "source":
            source = message.source
            return ConnectorSource(
                source.connector, source.table, _frozen(source.options), _frozen(source.metadata), source.idle_ms
            )
        case "sink":
            sink = message.sink
            return ConnectorSink(sink.connector, sink.table, _frozen(sink.options), _schema_of(sink.input))
        case "value":
            return ArrowValue(message.value.sql, message.value.observes)
        case "key":
            return ArrowKey(_query_from_proto(message.key.query), message.key.observes)
        case "tumbling_window":
            tumbling = message.tumbling_window
            return TumblingWindowAggregate(tumbling.width_us, *_merge_and_final(tumbling), tumbling.lateness_us)
        case "sliding_window":
            sliding = message.sliding_window
            return SlidingWindowAggregate(
                sliding.slide_us, sliding.width_us, *_merge_and_final(sliding), sliding.lateness_us
            )
        case "session_window":
            return SessionWindowAggregate(message.session_window.gap_us, *_merge_and_final(message.session_window))
        case "updating":
            updating = message.updating
            return UpdatingAggregate(*_merge_and_final(updating), updating.ttl_ms, TtlTime(updating.ttl_time))
        case "window_function":
            return WindowFunction(message.window_function.sql)
        case "instant_join":
            instant = message.instant_join
            return InstantJoin(_schema_of(instant.left), _schema_of(instant.right), instant.sql)
        case "join":
            join = message.join
            sides = _side_from_proto(join.left), _side_from_proto(join.right)
            return Join(*sides, join.sql, JoinKind(join.kind), join.ttl_ms, TtlTime(join.ttl_time))
        case "temporal_join":
            temporal = message.temporal_join
            schemas = _schema_of(temporal.left), _schema_of(temporal.right)
            return TemporalJoin(*schemas, temporal.versions, temporal.sql, temporal.ttl_ms)
        case "lookup_join":
            return _lookup_from_proto(message.lookup_join)
        case "async_udf":
            udf = message.async_udf
            return AsyncUdf(
                udf.function,
                tuple(udf.arguments),
                udf.result,
                udf.ordered,
                udf.in_flight,
                udf.timeout_ms,
                udf.retries,
            )
        case other:
            raise InternalError(f"operator {message.id} is of an unknown kind: {other}")


def _lookup_from_proto(message: proto.LookupJoin) -> LookupJoin:
    return LookupJoin(
        message.connector,
        message.table,
        _frozen(message.options),
        _schema_of(message.looked_up),
        tuple(message.keys),
        _frozen(message.names),
        message.outer,
    )


_Staged: TypeAlias = (
    proto.TumblingWindowAggregate
    | proto.SlidingWindowAggregate
    | proto.SessionWindowAggregate
    | proto.UpdatingAggregate
)


def _merge_and_final(message: _Staged) -> tuple[StageQuery, StageQuery]:
    return _query_from_proto(message.merge), _query_from_proto(message.final)


def _query_from_proto(message: proto.StageQuery) -> StageQuery:
    if not message.HasField("aggregation"):
        return StageQuery(before=message.before, after=message.after)
    found = message.aggregation
    aggregation = Aggregation(found.sql, _schema_of(found.input), _schema_of(found.partial))
    return StageQuery(message.before, aggregation, Stage(message.stage), message.after)


def _schema_of(content: bytes) -> pa.Schema:
    schema = _schema_from_bytes(content)
    if schema is None:
        raise InternalError("a program lacks the schema of some rows")
    return schema


def _schema_to_bytes(schema: pa.Schema | None) -> bytes:
    return b"" if schema is None else schema.serialize().to_pybytes()


def _schema_from_bytes(content: bytes) -> pa.Schema | None:
    return pa.ipc.read_schema(pa.py_buffer(content)) if content else None


def _frozen(strings: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(strings))
