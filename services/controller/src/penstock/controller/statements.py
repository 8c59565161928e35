"""The controller's statements, by name, and what their failures mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import Final

import asyncpg

from penstock.common.database import database_errors
from penstock.common.errors import DatabaseUnavailable, NotFound
from penstock.common.redaction import redact_message

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


class JobGone(NotFound):
    """Something was written about a job that has been deleted."""


def read_queries() -> Mapping[str, str]:
    text = files(__package__).joinpath("queries.sql").read_text("utf-8")
    _, *parts = _NAME.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@contextmanager
def statements() -> Iterator[None]:
    """The block of some statements. Whatever is not the fault of what is written may pass, as a full disk does, or a
    connection that asyncpg lost track of as it broke."""
    try:
        with database_errors():
            yield
    except asyncpg.ForeignKeyViolationError as error:
        raise JobGone("the job was deleted") from error
    except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError):
        raise
    except (asyncpg.PostgresError, asyncpg.InternalClientError) as error:
        raise DatabaseUnavailable(f"the database failed: {redact_message(str(error))}") from error
