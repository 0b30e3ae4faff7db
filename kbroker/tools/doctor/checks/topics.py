"""Topics: sizes of messages that do not go together, retention that surprises, creation by typing error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kbroker.client.transactions import TRANSACTIONS_TOPIC
from kbroker.tools.diagnosis.findings import Finding, Severity
from kbroker.tools.doctor.facts import OFFSETS_TOPIC, Facts, number_of
from kbroker.tools.doctor.findings import check

_FUTURE_MS: Final = 3_600_000
_SHORT_MS: Final = 600_000
_OFFSETS_MINUTES: Final = 1440


@check("message-sizes", "A message that one side takes is too large for another", see="clients")
def message_sizes(facts: Facts) -> Iterator[Finding]:
    """Compare ``max.message.bytes`` of topics with what brokers, followers, producers and consumers take."""
    largest = max(facts.topics, key=lambda topic: topic.number("max.message.bytes") or 0, default=None)
    size = None if largest is None else largest.number("max.message.bytes")
    for broker in facts.brokers:
        whole = number_of(broker.configs, "socket.request.max.bytes")
        replica = number_of(broker.configs, "replica.fetch.response.max.bytes")
        if largest is None or size is None:
            continue
        if whole is not None and size > whole:
            yield Finding(
                Severity.ERROR,
                f"topic {largest.name}",
                f"Topic {largest.name} takes batches of {size:,} bytes, and broker {broker.id} closes connections whose"
                f" requests have more than {whole:,}.",
                f"max.message.bytes={size} and socket.request.max.bytes={whole}, by DescribeConfigs.",
                "Lower max.message.bytes, or raise socket.request.max.bytes on every broker.",
            )
            break
        if replica is not None and size > replica:
            yield Finding(
                Severity.WARNING,
                f"topic {largest.name}",
                f"Topic {largest.name} takes batches of {size:,} bytes, and followers on broker {broker.id} fetch"
                f" {replica:,} at once: large batches are replicated one by one.",
                f"max.message.bytes={size} and replica.fetch.response.max.bytes={replica}, by DescribeConfigs.",
                "Raise replica.fetch.response.max.bytes and replica.fetch.max.bytes, or lower max.message.bytes.",
            )
            break
    given = {} if facts.client is None else facts.client.given
    request = number_of(given, "max.request.size")
    small = [topic for topic in facts.topics if not topic.description.internal]
    refusing = [
        topic for topic in small if request is not None and request > (topic.number("max.message.bytes") or request)
    ]
    if refusing and request is not None and facts.client is not None:
        least = min(refusing, key=lambda topic: topic.number("max.message.bytes") or 0)
        yield Finding(
            Severity.WARNING,
            facts.client.source,
            f"The producer may send {request:,} bytes at once, and topic {least.name} takes"
            f" {least.number('max.message.bytes'):,}: a larger record fails with RecordTooLarge.",
            f"max.request.size={request} in {facts.client.source}; max.message.bytes by DescribeConfigs.",
            "Raise max.message.bytes of the topics that it writes to, or lower max.request.size.",
        )
    fetched = number_of(given, "max.partition.fetch.bytes")
    if fetched is not None and size is not None and largest is not None and fetched < size and facts.client is not None:
        yield Finding(
            Severity.NOTE,
            facts.client.source,
            f"The consumer fetches {fetched:,} bytes of a partition at once, and topic {largest.name} has batches up to"
            f" {size:,}: those come one by one.",
            f"max.partition.fetch.bytes={fetched} in {facts.client.source}; max.message.bytes by DescribeConfigs.",
            "Raise max.partition.fetch.bytes if large records are usual.",
        )


@check(
    "retention", "Records or offsets are gone sooner, or stay longer, than one expects", see="groups-and-transactions"
)
def retention(facts: Facts) -> Iterator[Finding]:
    """Judge retention of topics, of offsets, and records with timestamps of the future."""
    yield from _offsets_retention(facts)
    for topic in facts.topics:
        policy = topic.configs.get("cleanup.policy", "")
        if topic.name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            if policy and policy != "compact":
                yield Finding(
                    Severity.ERROR,
                    f"topic {topic.name}",
                    f"{topic.name} has cleanup.policy={policy}: offsets and transactions are lost when they grow old.",
                    "DescribeConfigs says so.",
                    f"kbroker config set topic {topic.name} cleanup.policy=compact",
                )
            continue
        kept = topic.number("retention.ms")
        if not topic.description.internal and "delete" in policy and kept is not None and 0 <= kept < _SHORT_MS:
            yield Finding(
                Severity.WARNING,
                f"topic {topic.name}",
                f"Topic {topic.name} keeps records for {kept / 1000:,.0f} s: a consumer that stops for longer"
                " misses some.",
                f"retention.ms={kept}, by DescribeConfigs. Usual are days: a unit may be wrong.",
                f"kbroker config set topic {topic.name} retention.ms=604800000",
            )


def _offsets_retention(facts: Facts) -> Iterator[Finding]:
    key = "offsets.retention.minutes"
    for broker in facts.brokers:
        minutes = number_of(broker.configs, key)
        if minutes is not None and minutes < _OFFSETS_MINUTES:
            yield Finding(
                Severity.WARNING,
                key,
                f"Offsets of a group without members are deleted after {minutes} minutes: a consumer that is off over a"
                " weekend begins anew, at auto.offset.reset.",
                f"{key}={minutes} on broker {broker.id}, by DescribeConfigs.",
                f"Set {key} to more than the longest pause of a consumer; the default is 10080, seven days.",
            )
            return


@check(
    "future-records",
    "Records have timestamps of the future: retention does not delete them",
    see="groups-and-transactions",
)
def future_records(facts: Facts) -> Iterator[Finding]:
    """Report topics whose newest timestamp is more than an hour ahead of this machine's clock."""
    for topic in facts.topics:
        newest = max(topic.newest.values(), default=0)
        if topic.description.internal or newest <= facts.now + _FUTURE_MS:
            continue
        yield Finding(
            Severity.WARNING,
            f"topic {topic.name}",
            f"Topic {topic.name} has a record that is {(newest - facts.now) / 3_600_000:,.1f} hours ahead of now: its"
            " segment is kept until then and retention.ms more, and look-ups by time find it first.",
            "ListOffsets finds it by the largest timestamp.",
            "Correct the producer's clock or its timestamps (microseconds for milliseconds?); set"
            " message.timestamp.after.max.ms, or message.timestamp.type=LogAppendTime.",
        )


@check("auto-create", "Topics are created by whoever names one", see="clients")
def auto_create(facts: Facts) -> Iterator[Finding]:
    """Report ``auto.create.topics.enable``, which is on by default."""
    for broker in facts.brokers:
        if (broker.configs or {}).get("auto.create.topics.enable") == "true":
            yield Finding(
                Severity.NOTE,
                "auto.create.topics.enable",
                "A producer or consumer that misspells a topic's name creates a topic, with the defaults of the"
                " brokers.",
                f"auto.create.topics.enable=true on broker {broker.id}, by DescribeConfigs.",
                "Set it to false where topics are created on purpose.",
            )
            return
