-- Functions in Python, against the same computed by a batch engine's own functions.

--- udf_scalar
CREATE FUNCTION doubled LANGUAGE python AS $$
def doubled(n: int) -> int:
    return n * 2
$$;
SELECT id, doubled(amount) AS d FROM events
--- duckdb
SELECT id, amount * 2 FROM events

--- udf_takes_nulls
CREATE FUNCTION label LANGUAGE python AS $$
def label(who: str | None, n: int | None) -> str:
    return f"{who or '?'}:{-1 if n is None else n}"
$$;
SELECT id, label(user, amount) AS l FROM events
--- duckdb
SELECT id, coalesce(nullif(user, ''), '?') || ':' || coalesce(amount, -1) FROM events

--- udf_in_where_and_in_a_key
CREATE FUNCTION initial LANGUAGE python AS $$
def initial(text: str) -> str | None:
    return text[0].upper() if text else None
$$;
CREATE FUNCTION is_large LANGUAGE python AS $$
def is_large(n: int) -> bool:
    return n > 20
$$;
SELECT initial(user) AS who, tumble(INTERVAL '1 minute') AS w, count(*) AS n, sum(amount) AS total
FROM events WHERE is_large(amount) GROUP BY initial(user), w
--- duckdb
SELECT nullif(upper(user[1]), '') AS who, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute') AS w, count(*), sum(amount)
FROM events WHERE amount > 20 GROUP BY 1, 2

--- udf_inside_another
CREATE FUNCTION plus_one LANGUAGE python AS $$
def plus_one(n: int) -> int:
    return n + 1
$$;
CREATE FUNCTION tripled LANGUAGE python AS $$
import pyarrow as pa
import pyarrow.compute as pc

def tripled(n: pa.Int64Array) -> pa.Int64Array:
    return pc.multiply(n, 3)
$$;
SELECT id, plus_one(tripled(plus_one(amount))) AS n FROM events WHERE tripled(id) % 2 = 0
--- duckdb
SELECT id, (amount + 1) * 3 + 1 FROM events WHERE id * 3 % 2 = 0

--- udf_of_arrow_arrays
CREATE FUNCTION cheaper LANGUAGE python AS $$
from typing import Annotated
import pyarrow as pa
import pyarrow.compute as pc

def cheaper(price: Annotated[pa.Array, float], n: Annotated[pa.Array, int]) -> Annotated[pa.Array, float]:
    return pc.subtract(price, pc.multiply(pc.cast(n, pa.float64()), 0.5))
$$;
SELECT id, cheaper(price, amount) AS p FROM events
--- duckdb
SELECT id, price - amount * 0.5 FROM events

--- udf_of_pandas_series
CREATE FUNCTION lengths LANGUAGE python AS $$
from typing import Annotated
import pandas as pd

def lengths(text: Annotated[pd.Series, str]) -> Annotated[pd.Series, int]:
    return text.str.len().astype("Int64")
$$;
SELECT tumble(INTERVAL '1 minute') AS w, max(lengths(user)) AS longest FROM events GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), max(length(user)) FROM events GROUP BY 1

--- udf_of_structs_times_and_decimals
CREATE FUNCTION told LANGUAGE python AS $$
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated

@dataclass
class Place:
    city: str | None
    zone: int | None

@dataclass
class Told:
    text: str
    day: date
    later: datetime
    cost: Annotated[Decimal, 12, 2]

def told(place: Place | None, ts: datetime, cost: Annotated[Decimal, 10, 2] | None) -> Told:
    city = "nowhere" if place is None or place.city is None else place.city
    return Told(city, ts.date(), ts + timedelta(hours=1), (cost or Decimal(0)) * 2)
$$;
SELECT id, t.text AS text, t.day AS day, t.later AS later, t.cost AS cost FROM (SELECT id, told(place, ts, cost) AS t FROM events)
--- duckdb
SELECT id, coalesce(place.city, 'nowhere'), ts::DATE, ts + INTERVAL '1 hour', (coalesce(cost, 0) * 2)::DECIMAL(12, 2) FROM events

--- udf_makes_rows
CREATE FUNCTION twice LANGUAGE python AS $$
from collections.abc import Iterator

def twice(tags: list[str]) -> Iterator[str]:
    for tag in tags:
        yield tag
        yield tag.upper()
$$;
SELECT e.id AS id, t.tag AS tag FROM events AS e CROSS JOIN UNNEST(twice(e.tags)) AS t(tag)
--- duckdb
SELECT id, unnest(tags || list_transform(tags, lambda x: upper(x))) FROM events

--- udf_aggregate_of_lists
CREATE FUNCTION squares LANGUAGE python WITH (kind = 'aggregate') AS $$
def squares(values: list[int]) -> int:
    return sum(value * value for value in values)
$$;
SELECT user, tumble(INTERVAL '1 minute') AS w, squares(amount) AS s, count(*) AS n FROM events GROUP BY 1, 2
--- duckdb
SELECT user, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute'), coalesce(sum(amount * amount), 0), count(*)
FROM events GROUP BY 1, 2

--- udf_aggregate_of_arrow_arrays_in_hops
CREATE FUNCTION spread LANGUAGE python AS $$
import pyarrow as pa
import pyarrow.compute as pc

def spread(values: pa.Int64Array) -> int | None:
    found = pc.min_max(values).as_py()
    return None if found["min"] is None else found["max"] - found["min"]
$$;
SELECT kind, hop(INTERVAL '30 seconds', INTERVAL '2 minutes') AS w, spread(amount) AS s FROM events GROUP BY 1, 2
--- duckdb
SELECT kind, span(window_start, INTERVAL '2 minutes'), max(amount) - min(amount)
FROM hopped(INTERVAL '30 seconds', INTERVAL '2 minutes') GROUP BY 1, window_start

--- udf_aggregate_of_series_in_sessions
CREATE FUNCTION weighted LANGUAGE python AS $$
from typing import Annotated
import pandas as pd

def weighted(values: Annotated[pd.Series, int], weights: Annotated[pd.Series, int]) -> int:
    return int((values.fillna(0) * weights.fillna(0)).sum())
$$;
SELECT user, session(INTERVAL '5 seconds') AS w, weighted(amount, id) AS s FROM events GROUP BY 1, 2
--- duckdb
SELECT user, {'start': min(ts), 'end': max(ts) + INTERVAL '5 seconds'}, coalesce(sum(amount * id), 0)::BIGINT
FROM sessions(INTERVAL '5 seconds') GROUP BY user, session

--- udf_aggregate_sees_values_in_order
CREATE FUNCTION listed LANGUAGE python WITH (kind = 'aggregate') AS $$
def listed(ids: list[int], kinds: list[str | None]) -> str:
    return ",".join(f"{id}{kind or '-'}" for id, kind in zip(ids, kinds))
$$;
SELECT tumble(INTERVAL '20 seconds') AS w, listed(id, kind) AS l FROM events GROUP BY 1
--- duckdb
SELECT span(bucket(INTERVAL '20 seconds', ts), INTERVAL '20 seconds'), string_agg(id || coalesce(kind, '-'), ',' ORDER BY id)
FROM events GROUP BY 1

--- udf_aggregate_with_filter_and_distinct
CREATE FUNCTION total LANGUAGE python WITH (kind = 'aggregate') AS $$
def total(values: list[int]) -> int:
    return sum(values)
$$;
SELECT kind, tumble(INTERVAL '2 minutes') AS w, total(amount) FILTER (WHERE ok) AS good, total(DISTINCT amount) AS different,
       sum(id) AS ids
FROM events GROUP BY 1, 2
--- duckdb
SELECT kind, span(bucket(INTERVAL '2 minutes', ts), INTERVAL '2 minutes'), coalesce(sum(amount) FILTER (WHERE ok), 0)::BIGINT,
       coalesce(sum(DISTINCT amount), 0)::BIGINT, sum(id)
FROM events GROUP BY 1, 2

--- udf_aggregate_without_a_window
--- updating: user
CREATE FUNCTION total LANGUAGE python WITH (kind = 'aggregate') AS $$
def total(values: list[int]) -> int:
    return sum(values)
$$;
SELECT user, total(amount) AS t FROM events GROUP BY user
--- duckdb
SELECT user, coalesce(sum(amount), 0)::BIGINT FROM events GROUP BY user

--- udf_of_changes
--- updating
CREATE FUNCTION parity LANGUAGE python AS $$
def parity(n: int) -> str:
    return "even" if n % 2 == 0 else "odd"
$$;
SELECT user, parity(n) AS p, n FROM (SELECT user, count(*) AS n FROM events GROUP BY user)
--- duckdb
SELECT user, CASE WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END, n FROM (SELECT user, count(*) AS n FROM events GROUP BY user)

--- udf_async
CREATE FUNCTION fetched LANGUAGE python WITH (in_flight = 50) AS $$
import asyncio

async def fetched(id: int, who: str | None) -> str:
    await asyncio.sleep(0.0001 * (id % 7))
    return f"{id} {who or '?'}"
$$;
SELECT id, fetched(id, user) AS f FROM events WHERE amount > 50
--- duckdb
SELECT id, id || ' ' || coalesce(nullif(user, ''), '?') FROM events WHERE amount > 50

--- udf_async_unordered_before_a_window
CREATE FUNCTION class_of LANGUAGE python WITH (in_flight = 100, ordered = false) AS $$
import asyncio

async def class_of(n: int) -> int:
    await asyncio.sleep(0.0001 * (n % 3))
    return n % 5
$$;
SELECT class_of(amount) AS c, tumble(INTERVAL '1 minute') AS w, count(*) AS n FROM events WHERE class_of(amount) <> 3 GROUP BY 1, 2
--- duckdb
SELECT ((amount % 5) + 5) % 5 AS c, span(bucket(INTERVAL '1 minute', ts), INTERVAL '1 minute') AS w, count(*)
FROM events WHERE ((amount % 5) + 5) % 5 <> 3 GROUP BY 1, 2

--- udf_async_of_changes
--- updating
CREATE FUNCTION shouted LANGUAGE python WITH (ordered = false) AS $$
async def shouted(text: str) -> str:
    return text.upper()
$$;
SELECT shouted(user) AS who, n FROM (SELECT user, count(*) AS n FROM events GROUP BY user)
--- duckdb
SELECT upper(user), n FROM (SELECT user, count(*) AS n FROM events GROUP BY user)
