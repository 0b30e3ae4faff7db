"""Rates and lags from looks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.base.rates import Sample
from kbroker.client.groups import GroupListing
from kbroker.tools.diagnosis.group_watch import Judged
from kbroker.tools.diagnosis.stuck_groups import LaggingPartition, Member, Progress, Stall
from kbroker.tools.top.facts import RequestTimes, Scrape
from kbroker.tools.top.history import MAX_TIMES, Age, GroupLag, age_by_history, first
from kbroker.types import TopicPartition
from tests.top.looks import NOW_MS, look
from tests.with_each import examples

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_rates_are_differences_of_offsets_and_sizes() -> None:
    history = first(look(10.0, {("t", 0): 100}, sizes={T0: 1000}))
    assert not history.records_in and not history.log_growth
    history = history.after(look(14.0, {("t", 0): 180}, sizes={T0: 9000}))
    assert history.records_in == {T0: 20.0} and history.log_growth == {T0: 2000.0}


def test_a_partition_that_was_not_asked_for_keeps_its_rate_and_has_one_over_its_own_time() -> None:
    topics = look(0.0, {("t", 1): 0}).cluster.topics
    history = first(look(0.0, {("t", 0): 0, ("t", 1): 0}))
    history = history.after(look(2.0, {("t", 0): 10}, topics=topics))
    history = history.after(look(4.0, {("t", 1): 40}, topics=topics))
    assert history.records_in == {T0: 5.0, T1: 10.0}


def test_a_log_that_shrinks_keeps_its_rate_and_goes_on_from_there() -> None:
    history = first(look(0.0, {("t", 0): 0}, sizes={T0: 1000}))
    history = history.after(look(1.0, {("t", 0): 0}, sizes={T0: 1500}))
    history = history.after(look(2.0, {("t", 0): 0}, sizes={T0: 100}))
    assert history.log_growth == {T0: 500.0} and history.sizes[T0].value == 100
    assert history.after(look(3.0, {("t", 0): 0}, sizes={T0: 107})).log_growth == {T0: 7.0}


def test_a_member_that_has_committed_nothing_has_all_that_the_log_has_as_lag() -> None:
    waiting = LaggingPartition(T1, None, 4, 10, Stall(0), member=Member("m", "c", "h"))
    judged = {"g": Judged((waiting,), (), Progress("never-committed"))}
    history = first(look(0.0, {("t", 0): 9, ("t", 1): 10}, committed={"g": {("t", 0): 7}}, judged=judged))
    lag = history.lags["g"]
    assert (lag.records, lag.partitions) == (2 + 6, 2)
    left = [GroupListing("g", "Consumer", "consumer", "Empty")]
    history = history.after(look(1.0, {("t", 0): 9, ("t", 1): 10}, committed={"g": {("t", 0): 7}}, groups=left))
    assert history.lags["g"].records == 2 and not history.judged


def test_what_is_gone_is_forgotten() -> None:
    history = first(look(0.0, {("t", 0): 5}, committed={"g": {("t", 0): 1}}))
    history = history.after(look(1.0, {("u", 0): 5}, committed={}))
    assert set(history.ends) == {TopicPartition("u", 0)} and not history.lags and not history.end_samples


def test_lag_in_records_and_in_time_by_when_the_end_passed_the_offset() -> None:
    history = first(look(0.0, {("t", 0): 100}, committed={"g": {("t", 0): 100}}))
    assert history.lags["g"] == GroupLag(0, Age(0.0), 1)
    history = history.after(look(10.0, {("t", 0): 200}, committed={"g": {("t", 0): 150}}))
    assert history.lags["g"] == GroupLag(50, Age(5.0), 1)
    history = history.after(look(20.0, {("t", 0): 200}, committed={"g": {("t", 0): 150}}))
    assert history.lags["g"] == GroupLag(50, Age(15.0), 1)


def test_a_lag_that_is_older_than_the_first_look_is_at_least_so_long_until_its_record_is_found() -> None:
    history = first(look(0.0, {("t", 0): 100}, committed={"g": {("t", 0): 30}}))
    history = history.after(look(7.0, {("t", 0): 100}, committed={"g": {("t", 0): 30}}))
    assert history.lags["g"] == GroupLag(70, Age(7.0, exact=False), 1)
    assert history.wanted_times() == [(T0, 30)]
    told = {T0: (30, NOW_MS - 53_000)}
    history = history.after(look(8.0, {("t", 0): 100}, committed={"g": {("t", 0): 30}}, record_times=told))
    assert history.lags["g"] == GroupLag(70, Age(61.0), 1)
    assert history.wanted_times() == []


def test_times_are_wanted_of_the_worst_lags_alone() -> None:
    ends = {("t", number): 100 for number in range(20)}
    committed = {"g": {("t", number): number for number in range(20)}, "h": {("t", 3): 0}}
    wanted = first(look(0.0, ends, committed=committed)).wanted_times()
    assert len(wanted) == MAX_TIMES
    assert (TopicPartition("t", 3), 0) in wanted and wanted[0] == (TopicPartition("t", 0), 0)


def test_a_page_of_metrics_knows_the_lag_in_time() -> None:
    page = Scrape("http://n/metrics", 1, 0.0, lag_seconds={"g": {T0: 12.5}})
    history = first(look(0.0, {("t", 0): 9}, committed={"g": {("t", 0): 3}}, scrapes=(page,)))
    assert history.lags["g"].age == Age(12.5) and history.wanted_times() == []


def test_a_partition_that_no_page_knows_the_lag_in_time_of_may_be_further_behind() -> None:
    page = Scrape("http://n/metrics", 1, 0.0, lag_seconds={"g": {T0: 12.5}})
    offsets = {"g": {("t", 0): 3, ("t", 1): 4}}
    history = first(look(0.0, {("t", 0): 9, ("t", 1): 9}, committed=offsets, scrapes=(page,)))
    assert history.lags["g"].age == Age(12.5, exact=False) and history.wanted_times() == [(T1, 4)]
    history = history.after(look(0.0, {("t", 1): 9}, committed=offsets, record_times={T1: (4, NOW_MS - 60_000)}))
    assert history.lags["g"].age == Age(60.0)


def test_share_groups_have_the_lag_that_is_told() -> None:
    groups = (GroupListing("s", "Share", "share", "Stable"), GroupListing("old", "Share", "share", "Stable"))
    history = first(look(0.0, {("t", 0): 9}, groups=groups, share_lags={"s": 4, "old": None}))
    assert history.lags == {"s": GroupLag(4, None), "old": GroupLag(None, None)}


def test_rates_of_pages_and_a_node_that_was_started_again() -> None:
    def page(at: float, count: float, sent: float) -> Scrape:
        times = (RequestTimes("Produce", count, 1.0, 2.0),)
        return Scrape("u", 1, at, {"t": sent}, {"t": 2 * sent}, requests=times, cpu_seconds=count / 100)

    history = first(look(0.0, {}, scrapes=(page(0.0, 100, 1000),)))
    history = history.after(look(5.0, {}, scrapes=(page(5.0, 150, 2000),)))
    assert history.bytes_in == {"u": {"t": 200.0}} and history.bytes_out == {"u": {"t": 400.0}}
    assert history.request_rates == {("u", "Produce"): 10.0} and history.cpu == {"u": 0.1}
    history = history.after(look(7.0, {}))  # no page in this look
    assert history.bytes_in == {"u": {"t": 200.0}}
    history = history.after(look(10.0, {}, scrapes=(page(10.0, 5, 50),)))
    assert history.bytes_in == {"u": {"t": 10.0}} and history.request_rates == {("u", "Produce"): 1.0}


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 50)), min_size=1, max_size=12), st.integers(0, 300))
def test_an_age_is_between_the_looks_around_it(steps: list[tuple[int, int]], offset: int) -> None:
    samples: list[Sample] = []
    at = end = 0
    for seconds, records in steps:
        at, end = at + seconds, end + records
        samples.append(Sample(at, end))
    found = age_by_history(tuple(samples), offset, at)
    after = [sample.at for sample in samples if sample.value > offset]
    if not after:
        assert found is None
        return
    assert found is not None
    before = [sample.at for sample in samples if sample.value <= offset]
    assert found.exact == bool(before)
    assert at - after[0] <= found.seconds <= at - (before[-1] if before else after[0])
