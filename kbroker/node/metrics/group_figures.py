"""Figures of what this broker coordinates: groups, transactional ids, states of share groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kbroker.node.metrics.figures import PAUSE, STRIDE, Figures, lately, summary
from kbroker.observe.metrics import coordinator_families as c
from kbroker.observe.metrics import families as f

if TYPE_CHECKING:
    from kbroker.node.coordinators.coordinator_driver import CoordinatorDriver
    from kbroker.node.coordinators.coordinators import Coordinators
    from kbroker.node.share.groups import ShareGroups
    from kbroker.observe.metrics.exposition import Sample
    from kbroker.observe.metrics.histogram import Histogram
    from kbroker.observe.metrics.rates import Rates
    from kbroker.observe.metrics.share_traffic import ShareTraffic
    from kbroker.observe.metrics.traffic import Traffic

LOADS_SECONDS = 30.0
"""Times of loading count for so long, as in Kafka."""


def figures(coordinators: Coordinators, rates: Rates, now: float) -> Figures:
    """The number of groups, and the members and offsets of each."""
    admins = [core.admin for core in coordinators.groups.loaded_cores()]
    states: Counter[tuple[str, str]] = Counter()
    committed = 0
    for admin in admins:
        for number, type_and_state in enumerate(admin.states(), 1):
            states[type_and_state] += 1
            if not number % STRIDE:
                yield PAUSE
        for number, count in enumerate(admin.offset_counts(), 1):
            committed += count
            if not number % STRIDE:
                yield PAUSE
        yield PAUSE

    def offsets() -> Iterator[Sample]:
        for admin in admins:
            for group, topic, index, offset in admin.committed_offsets():
                yield (group, topic, str(index)), offset

    yield c.GROUPS, [((), sum(admin.group_count() for admin in admins))]
    for state in c.GROUP_STATES:
        yield c.GROUPS_BY_STATE[state], [((), states["classic", state])]
    yield c.OLD_OFFSETS, [((), committed)]
    by_kind = {kind: sum(states[kind, state] for state in c.GROUP_TYPE_STATES[kind]) for kind in c.GROUPS_BY_TYPE}
    yield c.GROUPS_BY_PROTOCOL, [((kind,), count) for kind, count in by_kind.items()]
    for kind, family in c.GROUPS_BY_TYPE.items():
        yield family, [((state,), states[kind, state]) for state in c.GROUP_TYPE_STATES[kind]]
    yield c.OFFSETS, [((), committed)]
    yield f.GROUP_MEMBERS, (((group,), count) for admin in admins for group, count in admin.sizes())
    yield f.GROUP_OFFSET, offsets()
    yield c.TRANSACTIONAL_IDS, [((), sum(len(core) for core in coordinators.transactions.loaded_cores()))]
    for kind, family in c.REBALANCE_COUNTS.items():
        count = coordinators.groups.rebalances[kind]
        yield family, [((), count)]
        yield c.REBALANCE_RATES[kind], [((), rates.of(("rebalances", kind), count))]
    descriptions = coordinators.groups.descriptions
    if descriptions is not None:
        for event, family in c.DESCRIPTION_COUNTS.items():
            count = descriptions.counts.get(event, 0)
            yield family, [((), count)]
            yield c.DESCRIPTION_RATES[event], [((), rates.of(("topology descriptions", event), count))]
    drivers: dict[str, CoordinatorDriver[Any]] = {
        "group": coordinators.groups,
        "transaction": coordinators.transactions,
    }
    for name, driver in drivers.items():
        yield from _loading(name, driver, now)


def _loading(name: str, driver: CoordinatorDriver[Any], now: float) -> Figures:
    loading, active = driver.partition_states()
    yield c.COORDINATOR_PARTITIONS[name], [(("loading",), loading), (("active",), active)]
    took = [seconds * 1000 for ended, seconds in driver.loads if now - ended < LOADS_SECONDS]
    yield c.LOAD_TIME_MAX[name], [((), max(took, default=0))]
    yield c.LOAD_TIME_AVG[name], [((), sum(took) / max(1, len(took)))]


def share_figures(parts: ShareGroups | None, traffic: Traffic, rates: Rates, now: float) -> Figures:
    """The share coordinator, share sessions, and the share partitions that this broker leads.

    None: no share group has been served yet.
    """
    if parts is None:
        yield c.SHARE_SESSIONS, [((), 0)]
        yield c.SHARE_SESSION_PARTITIONS, [((), 0)]
        return
    yield from _share_counts(traffic.shares, rates)
    yield from _loading("share", parts.coordinators, now)
    shares = parts.partitions
    yield c.SHARE_SESSIONS, [((), len(shares.sessions))]
    yield c.SHARE_SESSION_PARTITIONS, [((), sum(len(session) for session in shares.sessions))]
    loaded = [(led, led.core) for led in shares.led() if led.core is not None]

    def each(values: Iterable[float]) -> Iterator[Sample]:
        for (led, _), value in zip(loaded, values, strict=True):
            topic, index = led.partition.topic_partition
            yield (led.key.group_id, topic, str(index)), value

    yield (
        c.SHARE_IN_FLIGHT,
        each(core.end_offset - core.start_offset - core.delivery_complete_count for _, core in loaded),
    )
    yield c.SHARE_BATCHES_IN_FLIGHT, each(core.run_count for _, core in loaded)
    counts = {
        (led.key.group_id, led.partition.topic_partition.topic, str(led.key.partition)): led.traffic
        for led, _ in loaded
        if led.traffic is not None
    }
    yield c.EXPIRED_LOCKS, [(labels, found.expired_locks) for labels, found in counts.items()]
    yield from summary(c.SHARE_BATCH_SIZE, {labels: found.batch_sizes for labels, found in counts.items()}, unit=1)
    topic, pruned = parts.coordinators.TOPIC, parts.coordinators.pruned_offsets()
    yield c.PRUNED_OFFSET, [((topic, str(index)), offset) for index, offset in pruned.items()]
    yield c.SHARE_START_OFFSET, each(core.start_offset for _, core in loaded)
    yield (
        c.SHARE_LAG,
        each(
            max(0, led.partition.high_watermark - core.start_offset - core.delivery_complete_count)
            for led, core in loaded
        ),
    )


def _share_counts(traffic: ShareTraffic, rates: Rates) -> Figures:
    from kbroker.observe.metrics.share_traffic import ACKNOWLEDGEMENTS

    yield c.ACKNOWLEDGEMENTS, [((name,), traffic.acknowledged[name]) for name in ACKNOWLEDGEMENTS]
    yield c.SHARE_SESSION_EVICTIONS, [((), traffic.evicted_sessions)]
    yield from summary(c.SHARE_LOAD_TIME, {(): traffic.loads})
    ratios: dict[tuple[str, ...], Histogram] = {(group,): found for group, found in traffic.fetched.items()}
    yield from summary(c.SHARE_FETCH_RATIO, ratios, unit=1, most=100)
    for family, counts in (
        (c.DEAD_LETTERS, traffic.letters),
        (c.DEAD_LETTER_REQUESTS, traffic.letter_requests),
        (c.FAILED_DEAD_LETTER_REQUESTS, traffic.failed_letter_requests),
    ):
        yield family, [((group,), count) for group, count in counts.items()]
    yield c.STATE_WRITES, [((), traffic.written_states)]
    yield c.STATE_WRITE_RATE, [((), rates.of("states of share partitions", traffic.written_states))]
    yield from lately(c.STATE_WRITE_TIME_AVG, c.STATE_WRITE_TIME_MAX, traffic.state_writes)
