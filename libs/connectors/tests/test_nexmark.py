"""Nexmark's events are a function of their numbers, distributed as the standard has them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.connectors.errors import OptionError
from penstock.connectors.nexmark import Nexmark, generate_events
from penstock.connectors.nexmark_events import COLUMNS, Timeline
from penstock.connectors.testing import rows_of, table_spec

TIMELINE = Timeline(start=0, interval=100)


def events(count: int, columns: pa.Schema = COLUMNS, first: int = 0) -> pa.RecordBatch:
    return generate_events(columns, np.arange(first, first + count), TIMELINE)


def bids(count: int) -> pa.StructArray:
    array = events(count).column("bid")
    return array.filter(array.is_valid())


async def rows(parallelism: int, batch_rows: int, **options: str) -> pa.Table:
    tables = [
        await rows_of(
            Nexmark().open_source(
                table_spec(COLUMNS, options, subtask=subtask, parallelism=parallelism, batch_rows=batch_rows)
            )
        )
        for subtask in range(parallelism)
    ]
    return pa.concat_tables(tables).sort_by("_timestamp").combine_chunks()


async def test_rows_are_the_same_for_any_parallelism_and_batch_size() -> None:
    expected = await rows(1, 10_000, events="2030")
    assert expected.num_rows == 2030
    assert expected.equals(await rows(3, 77, events="2030"))
    assert expected.equals(await rows(7, 13, events="2030"))


def test_50_events_are_a_person_three_auctions_and_46_bids() -> None:
    batch = events(5000)
    present = {name: np.asarray(batch.column(name).is_valid()) for name in COLUMNS.names}
    assert {name: int(mask.sum()) for name, mask in present.items()} == {"person": 100, "auction": 300, "bid": 4600}
    assert (np.sum(list(present.values()), axis=0) == 1).all()
    batch.validate(full=True)


def test_ids_are_those_of_persons_and_auctions_that_exist_or_are_about_to() -> None:
    batch = events(50_000)
    persons, auctions = batch.column("person"), batch.column("auction")
    assert persons.filter(persons.is_valid()).field("id").to_pylist() == list(range(1000, 2000))
    assert auctions.filter(auctions.is_valid()).field("id").to_pylist() == list(range(1000, 4000))
    bid = bids(50_000)
    assert pc.min(bid.field("auction")).as_py() >= 1000
    assert pc.max(bid.field("auction")).as_py() <= 4010
    assert pc.max(bid.field("bidder")).as_py() <= 2010


def test_half_of_the_bids_are_for_hot_auctions_and_most_by_hot_bidders() -> None:
    bid = bids(200_000)
    hot_auctions = np.mean(np.asarray(bid.field("auction")) % 100 == 0)
    hot_bidders = np.mean(np.asarray(bid.field("bidder")) % 100 == 1)
    assert 0.49 < hot_auctions < 0.52
    assert 0.74 < hot_bidders < 0.77


def test_the_logarithm_of_a_price_is_evenly_distributed() -> None:
    price = np.asarray(bids(200_000).field("price"))
    exponents = np.log10(price / 100) / 6
    counts, _ = np.histogram(exponents, bins=10, range=(0, 1))
    assert counts.sum() == len(price)
    assert abs(counts / len(price) - 0.1).max() < 0.005


def test_half_of_the_channels_are_hot_and_each_has_its_address() -> None:
    bid = bids(100_000)
    channels = bid.field("channel").to_pylist()
    hot = {"Google", "Facebook", "Baidu", "Apple"}
    assert set(channels) > hot
    assert 0.48 < np.mean([channel in hot for channel in channels]) < 0.52
    pairs = set(zip(channels, bid.field("url").to_pylist(), strict=True))
    assert len(pairs) == len(set(channels))
    assert all(url.startswith("https://www.nexmark.com/") for _, url in pairs)


def test_an_auction_ends_after_it_began_and_reserves_more_than_its_first_bid() -> None:
    auctions = events(50_000).column("auction").drop_null()
    assert pc.all(pc.greater(auctions.field("expires"), auctions.field("datetime"))).as_py()
    assert pc.all(pc.greater(auctions.field("reserve"), auctions.field("initial_bid"))).as_py()
    assert set(auctions.field("category").to_pylist()) == {10, 11, 12, 13, 14}


def test_only_wanted_members_are_made_and_are_the_same() -> None:
    members = pa.struct([("price", pa.int64()), ("auction", pa.int64())])
    wanted = pa.schema([("bid", members), ("person", pa.struct([("state", pa.string())]))])
    batch, full = events(1000, wanted), events(1000)
    assert batch.schema == wanted
    assert batch.column("bid").field("price").equals(full.column("bid").field("price"))
    assert pc.struct_field(batch.column("person"), "state").equals(pc.struct_field(full.column("person"), "state"))
    assert events(10, pa.schema([("bid", pa.struct([]))])).column("bid").null_count == 4


@pytest.mark.parametrize("size", [1, 2, 10, 100])
async def test_events_out_of_order_stay_within_their_group(size: int) -> None:
    spec = table_spec(COLUMNS, {"events": "1000", "out_of_order": str(size), "base_time": "1970-01-01"})
    times = np.asarray((await rows_of(Nexmark().open_source(spec)))["_timestamp"].cast(pa.int64())) // 100
    assert sorted(times.tolist()) == list(range(1000))
    assert (times // size == np.arange(1000) // size).all()
    assert (np.diff(times) < 0).any() == (size > 2)


@pytest.mark.parametrize("size", [7, 600, 953, 1906])
async def test_events_out_of_order_are_the_first_ones_whatever_their_order(size: int) -> None:
    ordered = await rows(1, 4000, events="2030")
    assert ordered.equals(await rows(2, 333, events="2030", out_of_order=str(size)))


async def test_no_event_comes_later_than_the_greatest_delay() -> None:
    options = {"events": "5000", "inter_event_delay": "5ms", "max_delay": "3s", "base_time": "1970-01-01"}
    table = await rows_of(Nexmark().open_source(table_spec(COLUMNS, options)))
    times = np.asarray(table["_timestamp"].cast(pa.int64()))
    delays = np.maximum.accumulate(times) - times
    assert delays.max() <= 3_000_000
    assert delays.max() > 2_900_000


def test_groups_and_delays_are_not_given_together() -> None:
    spec = table_spec(COLUMNS, {"out_of_order": "10", "max_delay": "1s"})
    with pytest.raises(OptionError, match="give one of them"):
        Nexmark().open_source(spec)


async def test_ratios_say_how_hot_auctions_sellers_and_bidders_are() -> None:
    table = await rows(
        1, 50_000, events="50000", hot_auction_ratio="10", hot_seller_ratio="1", hot_bidder_ratio="2", seed="3"
    )
    bid, auction = (table[name].combine_chunks().drop_null() for name in ("bid", "auction"))
    assert 0.89 < np.mean(np.asarray(bid.field("auction")) % 100 == 0) < 0.92
    assert 0.48 < np.mean(np.asarray(bid.field("bidder")) % 100 == 1) < 0.53
    assert np.mean(np.asarray(auction.field("seller")) % 100 == 0) < 0.03


async def test_few_auctions_in_flight_and_active_people_are_the_newest() -> None:
    only = {"hot_auction_ratio": "1", "hot_bidder_ratio": "1"}
    table = await rows(1, 50_000, events="50000", auctions_in_flight="5", active_people="3", **only)
    newest = table["bid"].combine_chunks()[-1].as_py()
    assert newest["auction"] >= 3999 - 5
    assert newest["bidder"] >= 1999 - 3


async def test_another_seed_gives_other_values_of_the_same_events() -> None:
    one, other = await rows(1, 1000, events="1000"), await rows(1, 1000, events="1000", seed="1")
    assert one["_timestamp"].equals(other["_timestamp"])
    prices = [pc.struct_field(table["bid"].combine_chunks(), "price") for table in (one, other)]
    assert prices[0].null_count == prices[1].null_count
    assert pc.sum(pc.equal(*prices)).as_py() < 20


async def test_event_times_follow_the_rate_or_the_delay() -> None:
    async def second(**options: str) -> str:
        spec = table_spec(COLUMNS, {"events": "2", **options})
        return str((await rows_of(Nexmark().open_source(spec)))["_timestamp"][1])

    assert await second() == "2015-07-15 00:00:00.000100"
    assert await second(event_rate="1000") == "2015-07-15 00:00:00.001000"
    assert await second(inter_event_delay="5s", base_time="2023-01-01T00:00:00Z") == "2023-01-01 00:00:05"
