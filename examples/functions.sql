-- Functions in Python: one of values, one that makes rows, one of a group, and one that waits for an answer.
CREATE FUNCTION price_class LANGUAGE python AS $$
def price_class(price: int) -> str:
    return "high" if price > 1_000_000 else "low"
$$;

CREATE FUNCTION words LANGUAGE python AS $$
from collections.abc import Iterator

def words(text: str) -> Iterator[str]:
    yield from (word.strip(".,") for word in text.split())
$$;

CREATE FUNCTION middle LANGUAGE python AS $$
import statistics
import pyarrow as pa

def middle(prices: pa.Int64Array) -> float:
    return float(statistics.median(prices.to_pylist()))
$$;

CREATE FUNCTION looked_up LANGUAGE python WITH (in_flight = 200, timeout = '5s', retries = 2) AS $$
import asyncio

async def looked_up(bidder: int) -> str:
    await asyncio.sleep(0.01)  # an answer from elsewhere
    return f"bidder {bidder}"
$$;

CREATE TABLE nexmark WITH (connector = 'nexmark', events = '20000');

SELECT price_class(bid.price) AS class, middle(bid.price) AS middle, count(*) AS bids, tumble(INTERVAL '1 second') AS window
FROM nexmark WHERE bid.price > 0 GROUP BY 1, window;

SELECT word, looked_up(seller) AS seller FROM (
  SELECT auction.seller AS seller, w.word FROM nexmark CROSS JOIN UNNEST(words(auction.item_name)) AS w(word)
  WHERE auction.id % 50 = 0);
