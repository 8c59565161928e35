"""What a connector is: options that are checked when a table is created, and sources and sinks opened in a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Literal, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, model_validator

from penstock.common.quantities import Size

TIMESTAMP_COLUMN: Final = "_timestamp"
TIMESTAMP_TYPE: Final = pa.timestamp("us")
"""Event time, in UTC without a zone: the last column of every batch of every source."""

DEAD_LETTERS: Final = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),  # the table that the row was meant for
        pa.field("position", pa.string(), nullable=False),  # where it was: "clicks.json:17"
        pa.field("reason", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),  # the row as it came, cut at a limit
        pa.field(TIMESTAMP_COLUMN, TIMESTAMP_TYPE, nullable=False),  # when it was refused
    ]
)
"""The rows of the dead-letter output of a source."""

LINES: Final = pa.schema(
    [
        pa.field("_line", pa.string(), nullable=False, metadata={b"penstock.type": b"line"}),
        pa.field(TIMESTAMP_COLUMN, TIMESTAMP_TYPE, nullable=False),
    ]
)
"""Rows that a query has encoded: each a line of JSON with its newline, so the column's memory is a file's content."""


NONE_HELD: Final[frozenset[int]] = frozenset()


class Role(StrEnum):
    """What a table is for; the option `type`."""

    SOURCE = "source"
    SINK = "sink"
    LOOKUP = "lookup"


class Guarantee(StrEnum):
    """How often a row is seen in a sink, whatever fails."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


class BadData(StrEnum):
    """What becomes of a row that cannot be decoded."""

    FAIL = "fail"
    DROP = "drop"
    DEAD_LETTER = "dead_letter"


class Options(BaseModel):
    """The base of a connector's options, as given in WITH (…); an unknown one is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class DecodeOptions(Options):
    """What every source that decodes bytes takes."""

    format: Literal["json", "debezium_json"] = "json"
    bad_data: BadData = BadData.FAIL
    dead_letter: str | None = None
    """The sink table that gets what `bad_data = 'dead_letter'` refuses."""
    max_line_bytes: Size = 16 * 1024 * 1024
    """A longer line is a bad row, and is never in memory whole."""

    @model_validator(mode="after")
    def _check_dead_letter(self) -> Self:
        if self.bad_data is BadData.DEAD_LETTER and self.dead_letter is None:
            raise ValueError("bad_data = 'dead_letter' needs the option dead_letter, which names a sink table")
        if self.bad_data is not BadData.DEAD_LETTER and self.dead_letter is not None:
            raise ValueError("the option dead_letter needs bad_data = 'dead_letter'")
        return self


class EncodeOptions(Options):
    """What every sink that encodes rows takes."""

    format: Literal["json", "debezium_json"] = "json"
    timestamp_format: Literal["rfc3339", "unix_millis"] = "rfc3339"


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """What a source read: rows, and those that were refused.

    `dead_letters` holds rows only under `bad_data = 'dead_letter'`; `bad_rows` counts the refused under either policy.
    """

    rows: pa.RecordBatch
    bad_rows: int = 0
    dead_letters: pa.RecordBatch | None = None
    partition: int = 0
    """Which partition all of the rows are of."""
    ended: tuple[int, ...] = ()
    """The partitions that have no more rows after these."""


class Source(Protocol):
    """One subtask's share of a source table: partitions, each of which gives its rows in its own order."""

    @property
    def partitions(self) -> int:
        """How many there are, numbered from 0; asked before the first read and after each, for it may grow.

        A partition holds the watermark back until it gives a row; without any the subtask holds nothing back."""
        ...

    async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
        """The next rows, when there are some; None when the source has ended. Cancelling a read loses no row.

        Partitions that are `held` are ahead of the others, and give nothing now; a source with one has none to hold.
        There is always one that is neither held nor at its end. What the others have, they give in turn.
        Raises `BadRow` under `bad_data = 'fail'`. Long computation is done in a thread.
        """
        ...

    def partition_name(self, partition: int) -> str:
        """The name of a partition, by which its position is found again, in whichever subtask."""
        ...

    def positions(self) -> Mapping[str, bytes]:
        """How far each partition has been given away, by its name, those that have ended included. Asked between reads;
        takes no time worth mentioning. What was read ahead and not given away is read again."""
        ...

    async def close(self) -> None:
        """Gives back what the source holds."""
        ...


class Sink(Protocol):
    """One subtask's share of a sink table."""

    async def write(self, batch: pa.RecordBatch) -> None:
        """Takes rows in; returns when there is room for more, which is how a slow sink slows its job."""
        ...

    async def flush(self) -> None:
        """Makes all rows so far visible to readers of the sink. Called when the stream pauses, and at the end."""
        ...

    async def close(self) -> None:
        """Gives back what the sink holds; rows that were not flushed may be lost."""
        ...


class StagingSink(Sink, Protocol):
    """A sink whose rows are seen exactly once: they are staged with each checkpoint, and seen when it is committed.

    `flush` need not make them visible. Whatever ends the process between two calls, `recover` makes good."""

    async def recover(self, commits: Sequence[bytes]) -> None:
        """The first call. Commits what all subtasks had staged for the checkpoint from which the job goes on, and
        drops whatever earlier processes staged after it. Without commits the job starts from its beginning."""
        ...

    async def stage(self, epoch: int) -> bytes:
        """Makes all rows since the last stage safe, yet not to be seen; returns by what they are committed, also when
        there are none. Rows that come later are of the next epoch."""
        ...

    async def commit(self, data: bytes) -> None:
        """Has staged rows seen: any number of times, also when another process has done so already."""
        ...


class OutputPort(Protocol):
    """Where preview rows go."""

    async def send(self, batch: pa.RecordBatch) -> None:
        """Sends rows to whoever watches the job."""
        ...


ParsedLines: TypeAlias = tuple[pa.RecordBatch, int, npt.NDArray[np.int32]]
"""The rows of the lines that a parser took, in their order; how many lines there are; the indexes of the others."""


class LineParser(Protocol):
    """Decodes blocks of JSON lines fast. It may leave any line, but what it takes means what `json_line` says."""

    def decode(self, block: bytes | memoryview) -> ParsedLines:
        """The rows of a block of complete lines. Blocks its thread, which is not the event loop's."""
        ...

    def decode_file(self, path: str, offset: int, length: int) -> ParsedLines:
        """The same of a block that is in a file, which the parser reads itself."""
        ...

    def close(self) -> None:
        """Gives back what the parser holds."""
        ...


class LineParsers(Protocol):
    """Where parsers of lines come from."""

    def line_decoder(self, schema: pa.Schema, max_line_bytes: int) -> LineParser | None:
        """A parser for the columns of a schema, which leaves longer lines; None when it cannot have all of them."""
        ...


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What a subtask opens: its table as the program has it, and its own place among the table's subtasks."""

    table: str
    options: Mapping[str, str]
    """As the user gave them, without `connector` and `type`, secrets filled in."""
    schema: pa.Schema
    """Source: the columns to produce, perhaps fewer than the table has (inside structs too), `_timestamp` last.
    Sink: the columns that `write` is given, `_timestamp` last; a sink does not write `_timestamp` out."""
    metadata: Mapping[str, str]
    """Source only: columns of the schema that are metadata, with the connector's name for each."""
    subtask: int
    parallelism: int
    batch_rows: int
    """About how many rows a source should put in a batch when it has plenty."""
    output: OutputPort
    job: str = ""
    """The job's id, for names that no other job has."""
    transactional: bool = False
    """Sink only: the job has checkpoints, so that rows can be staged with them."""
    restored: Mapping[str, bytes] | None = None
    """Source only: the positions of all subtasks' partitions where the job goes on, of which this subtask takes its
    share; None at its beginning."""
    lines: LineParsers | None = None
    """Source only: what may decode its lines faster than Python's libraries do."""


@dataclass(frozen=True, slots=True)
class SourceKind:
    """What a connector says of its sources."""

    options: type[Options]
    metadata: Mapping[str, pa.DataType]


@dataclass(frozen=True, slots=True)
class SinkKind:
    """What a connector says of its sinks."""

    options: type[Options]
    stages: bool = False
    """Whether its sinks are `StagingSink`s where the table is transactional."""
    takes_lines: bool = False
    """Whether its sinks, whose options are `EncodeOptions`, write `LINES` as they are; they take other rows as well."""

    @property
    def guarantee(self) -> Guarantee:
        """How often a row is seen in its sinks, whatever fails, when the job has checkpoints."""
        return Guarantee.EXACTLY_ONCE if self.stages else Guarantee.AT_LEAST_ONCE


class Connector(Protocol):
    """One kind of system that tables are in. Stateless; one instance a process, in `registry`."""

    name: ClassVar[str]
    description: ClassVar[str]
    source: ClassVar[SourceKind | None]
    sink: ClassVar[SinkKind | None]

    def schema(self, options: Options) -> pa.Schema | None:
        """The columns that a source has of itself, without `_timestamp`; None when the user must say them."""
        ...

    def max_parallelism(self, role: Role, options: Options) -> int | None:
        """The most subtasks that such a table can have; None for any number."""
        ...

    def open_source(self, spec: TableSpec) -> Source:
        """A source; opens nothing yet: the first `read` does."""
        ...

    def open_sink(self, spec: TableSpec) -> Sink:
        """A sink; opens nothing yet: the first `write` or `flush` does."""
        ...
