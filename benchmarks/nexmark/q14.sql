-- Query 14: calculation. Bids of some prices, at what time of the day they were made, and how many c are in their text.
--
-- The function is Python, called with a batch of bids at a time; the original's is Java.

CREATE FUNCTION count_char LANGUAGE python AS $$
import pyarrow as pa
import pyarrow.compute as pc

def count_char(text: pa.StringArray, character: pa.StringArray) -> pa.Int64Array:
    return pc.count_substring(text, character[0].as_py()).cast(pa.int64())
$$;

INSERT INTO result
SELECT
  auction,
  bidder,
  0.908 * price AS price,
  CASE
    WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'dayTime'
    WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END AS bidTimeType,
  dateTime,
  extra,
  count_char(extra, 'c') AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
