"""Brokers and controllers: who is missing, clocks, disks, versions that differ, the quorum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kbroker.tools.diagnosis.findings import Finding, Severity
from kbroker.tools.doctor.facts import BrokerFacts, Facts
from kbroker.tools.doctor.findings import check, share

_CLOCK_MS: Final = 2_000
"""A difference of clocks that is told of: sessions and timestamps bear less."""

_CLOCK_ERROR_MS: Final = 60_000

_FREE_BYTES: Final = 10 << 30
_FREE_SHARE: Final = 0.10
"""A volume is told of if less is free than both of these."""

_HARDLY_BYTES: Final = 1 << 30
_HARDLY_SHARE: Final = 0.03


share(
    "brokers",
    {
        "controller-quorum": "There is no active controller",
        "quorum-lag": "A controller does not follow the metadata log",
    },
    see="the-metadata-log",
)


@check("quorum-size", "The number of controllers is even, or only two: one more could be lost", see="the-metadata-log")
def quorum_size(facts: Facts) -> Iterator[Finding]:
    """Judge how many voters there are: an even number bears no more losses than one less."""
    voters = 0
    if facts.cluster is not None and facts.cluster.quorum is not None:
        voters = facts.cluster.quorum.voters
        evidence = f"DescribeQuorum lists {voters} voters."
    if not voters and facts.configuration is not None:
        voters = facts.configuration.voters
        evidence = f"controller.quorum.voters names {voters}."
    if voters and voters % 2 == 0:
        losses = (voters - 1) // 2
        yield Finding(
            Severity.WARNING,
            "quorum",
            f"{voters} controllers bear the loss of {losses}, as {voters - 1} would, and have one more that can fail.",
            evidence,
            f"Have {voters + 1} or {voters - 1} controllers.",
        )


share("brokers", {"fenced-broker": "A registered broker does not serve"}, see="cluster")


@check("clocks", "The clocks of nodes, or of a node and this machine, differ", see="cluster")
def clocks(facts: Facts) -> Iterator[Finding]:
    """Compare the active controller's clock with this machine's, and find brokers whose records are of the future.

    The first is exact; a broker's clock is known only to be ahead by at least so much.
    """
    cluster = facts.cluster
    if cluster is None:
        return
    quorum, reference = cluster.quorum, facts.now
    off = 0
    if quorum is not None and quorum.leader_clock is not None:
        off = max(quorum.leader_clock - quorum.answered_at, min(quorum.leader_clock - quorum.asked_at, 0))
        reference = facts.now + off
        if abs(off) > _CLOCK_MS:
            yield _clock_finding(
                f"controller {quorum.leader}",
                off,
                f"The clock of node {quorum.leader}, the active controller, is {_seconds(off)} this machine's.",
                "DescribeQuorum tells the controller's time.",
            )
    for broker in cluster.brokers:
        newest = broker.newest_own_record
        if newest is None or (quorum is not None and broker.id == quorum.leader):
            continue
        ahead = newest - max(reference, facts.now)
        if ahead > _CLOCK_MS:
            yield _clock_finding(
                f"broker {broker.id}",
                ahead,
                f"The clock of broker {broker.id} is at least {_seconds(ahead)} those of others.",
                "It has written a record with such a timestamp into an internal topic.",
            )


def _clock_finding(about: str, off: int, text: str, evidence: str) -> Finding:
    return Finding(
        Severity.ERROR if abs(off) > _CLOCK_ERROR_MS else Severity.WARNING,
        about,
        text,
        evidence,
        "Let all machines follow the same time server (chrony, systemd-timesyncd): timestamps decide about retention,"
        " and certificates and tokens about who comes in.",
    )


def _seconds(ms: int) -> str:
    return f"{abs(ms) / 1000:,.1f} s {'ahead of' if ms > 0 else 'behind'}"


@check("disk-space", "A disk of a broker, or of a data directory, is nearly full", see="disks-and-log-directories")
def disk_space(facts: Facts) -> Iterator[Finding]:
    """Judge the volumes of log directories."""
    volumes = [
        (f"broker {broker.id}, {each.path}", each.total, each.usable, "DescribeLogDirs")
        for broker in facts.brokers
        for each in broker.log_dirs or ()
        if not each.failed and each.total and each.usable is not None
    ]
    if facts.configuration is not None:
        volumes += [(each.path, each.total, each.free, "The system") for each in facts.configuration.directories]
    for where, total, free, who in volumes:
        if not total or free is None or free >= _FREE_BYTES or free >= _FREE_SHARE * total:
            continue
        hardly = free < _HARDLY_BYTES and free < _HARDLY_SHARE * total
        yield Finding(
            Severity.ERROR if hardly else Severity.WARNING,
            where,
            f"{where}: only {free / 2**30:.1f} GiB of {total / 2**30:.1f} GiB are free.",
            f"{who} says so. A broker whose disk is full takes the directory for failed.",
            "Make room: lower retention.ms or retention.bytes of large topics (kbroker topic list shows their sizes),"
            " delete topics, or move replicas to other directories.",
        )


@check("bad-disk", "The scrubber has found damage in a log directory", see="disks-and-log-directories")
def bad_disk(facts: Facts) -> Iterator[Finding]:
    """Tell of directories whose bytes are not what was written, also where all has healed since."""
    for broker in facts.brokers:
        for each in broker.log_dirs or ():
            if each.scrub_found:
                yield Finding(
                    Severity.WARNING,
                    f"broker {broker.id}, {each.path}",
                    f"Broker {broker.id}: the latest scrub of {each.path} has found {each.scrub_found} damaged places.",
                    "DescribeLogDirs says so; the broker's log names the files.",
                    "The metadata, and what other replicas have, heals by itself. Look at the disk (smartctl, the"
                    " system's log) before it damages more, and see with kbroker scrub whether it does.",
                )


share(
    "brokers",
    {
        "disk-failed": "A log directory of a broker has failed",
        "damaged-replica": "A broker's log of a partition lacks what it once had",
    },
    see="disks-and-log-directories",
)


@check("version-mixture", "Brokers do not serve the same versions of APIs, or support the same features", see="cluster")
def version_mixture(facts: Facts) -> Iterator[Finding]:
    """Compare what brokers say in ApiVersions: they differ while a cluster is upgraded, and should not for long."""
    brokers = [broker for broker in facts.brokers if broker.apis is not None]
    kinds: dict[tuple[tuple[object, ...], ...], list[int]] = {}
    for broker in brokers:
        assert broker.apis is not None
        features = tuple((each.name, each.lowest, each.highest) for each in broker.features)
        kinds.setdefault((*sorted(broker.apis.items()), *features), []).append(broker.id)
    if len(kinds) > 1:
        sides = " and ".join(f"{_brokers(ids)}" for ids in sorted(kinds.values()))
        yield Finding(
            Severity.WARNING,
            "cluster",
            f"The brokers are of different versions: {sides} differ.",
            f"They answer ApiVersions differently: {_difference(brokers)}.",
            "End the upgrade: bring all brokers to the same version, and then raise the features.",
        )


def _difference(brokers: list[BrokerFacts]) -> str:
    first = brokers[0]
    for other in brokers[1:]:
        assert first.apis is not None and other.apis is not None
        for key in sorted(first.apis.keys() | other.apis.keys()):
            if first.apis.get(key) != other.apis.get(key):
                return f"API {key} in versions {_range(first.apis.get(key))} and {_range(other.apis.get(key))}"
        one = {each.name: (each.lowest, each.highest) for each in first.features}
        two = {each.name: (each.lowest, each.highest) for each in other.features}
        for name in sorted(one.keys() | two.keys()):
            if one.get(name) != two.get(name):
                return f"{name} at levels {_range(one.get(name))} and {_range(two.get(name))}"
    return "in detail"


def _range(versions: tuple[int, int] | None) -> str:
    return "none" if versions is None else f"{versions[0]}-{versions[1]}"


def _brokers(ids: list[int]) -> str:
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, sorted(ids)))}"


_FINALIZED: Final = ("metadata.version", "group.version", "transaction.version")
"""Features whose levels are raised after an upgrade; others are a matter of choice."""


@check("features-behind", "All brokers support a higher level of a feature than the cluster runs at", see="cluster")
def features_behind(facts: Facts) -> Iterator[Finding]:
    """Compare finalized levels with the highest that every broker supports."""
    brokers = [broker for broker in facts.brokers if broker.features]
    for name in _FINALIZED:
        known = [each for broker in brokers for each in broker.features if each.name == name]
        if not known or len(known) < len(brokers):
            continue
        possible = min(each.highest for each in known)
        finalized = max((each.finalized or 0) for each in known)
        if finalized < possible:
            yield Finding(
                Severity.WARNING,
                name,
                f"{name} is at level {finalized}, and every broker supports {possible}: what is new stays off.",
                "ApiVersions tells what is finalized and what is supported.",
                "If the upgrade is to stay: kafka-features upgrade --feature"
                f" {name}={possible} (metadata.version first). There may be no way back.",
            )
