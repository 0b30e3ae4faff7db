"""Groups that rebalance for ever or are stuck, transactions that hang, clients that are slowed down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kbroker.client.groups import REBALANCING
from kbroker.tools.diagnosis.findings import Finding, Severity
from kbroker.tools.diagnosis.stuck_groups import STUCK_MS, GroupState
from kbroker.tools.diagnosis.stuck_groups import findings as group_findings
from kbroker.tools.doctor.facts import Facts
from kbroker.tools.doctor.findings import check, share

_LOW_BYTES: Final = 1 << 20
"""A rate below this throttles a client with its first large batch (1 MiB is the default of max.request.size)."""


@check("group-rebalancing", "A group rebalances for ever, or its members come and go", see="groups-and-transactions")
def group_rebalancing(facts: Facts) -> Iterator[Finding]:
    """Compare two looks at each group: it rebalances in both, its epoch moves, or its members are others."""
    for group in facts.groups:
        first, second = group.first, group.second
        if second is None:
            continue
        came, gone = second.members - first.members, first.members - second.members
        if came and gone:
            evidence = f"Within {group.ms / 1000:.0f} s {len(came)} of its members came and {len(gone)} left."
        elif first.epoch is not None and second.epoch is not None and second.epoch > first.epoch:
            evidence = f"Its epoch went from {first.epoch} to {second.epoch} within {group.ms / 1000:.0f} s."
        elif first.state in REBALANCING and second.state in REBALANCING:
            evidence = f"It was in {first.state}, and {group.ms / 1000:.0f} s later in {second.state}."
        else:
            continue
        yield Finding(
            Severity.WARNING,
            f"group {group.group_id}",
            f"Group {group.group_id} rebalances again and again: meanwhile its members read little or nothing.",
            evidence,
            "Usual reasons: a member needs longer than max.poll.interval.ms for what it polls, or crashes and is"
            " started again; session.timeout.ms is too short; members of one group subscribe to different"
            " topics. The members' logs say why they leave; group.instance.id keeps a restart from being a rebalance.",
        )


_STUCK_KINDS: Final = ("consumer-stuck", "open-transaction", "never-committed")
"""Of the reasons why a group has not all records: those that two looks can tell, of a group that somebody is in."""


@check("consumer-stuck", "Records wait for a group, and it commits nothing", see="groups-and-transactions")
def consumer_stuck(facts: Facts) -> Iterator[Finding]:
    """Judge the second look at each group that has members, as the console does after so long."""
    for group in facts.groups:
        if group.second is None or not group.first.members or not group.second.members:
            continue
        state = GroupState(group.group_id, group.second.state, len(group.second.members))
        stuck_ms = min(STUCK_MS, group.ms)
        for each in group_findings(state, group.lagging, group.second.at_ms, stuck_ms=stuck_ms):
            if each.kind in _STUCK_KINDS:
                evidence = f"OffsetFetch and ListOffsets, asked twice within {group.ms / 1000:.0f} s."
                commands = [
                    f" kbroker consume {link.topic} --partition {link.partition} --from {link.offset} -n 1 shows the"
                    " record; kbroker group reset skips it."
                    for link in each.links
                    if link.kind == "record"
                ]
                yield replace(each, evidence=evidence, advice=each.advice + "".join(commands))


share(
    "groups",
    {"hanging-transactions": "A transaction is open for too long, or its coordinator does not know it"},
    see="groups-and-transactions",
)


@check("throttling", "Clients are slowed down: by quotas that are very low, or right now", see="quotas")
def throttling(facts: Facts) -> Iterator[Finding]:
    """Judge quotas, and throttle times in the answers to the doctor itself."""
    cluster = facts.cluster
    if cluster is None:
        return
    if cluster.throttled_ms:
        yield Finding(
            Severity.WARNING,
            "this client",
            f"The brokers throttle this client, by up to {cluster.throttled_ms / 1000:g} s for one request.",
            "throttle_time_ms of their answers.",
            "Look at the limits of its user and client id: kbroker quota list.",
        )
    for entry in cluster.quotas or ():
        low = [
            f"{name}={value:g}"
            for name, value in sorted(entry.values.items())
            if (name in ("producer_byte_rate", "consumer_byte_rate") and value < _LOW_BYTES)
            or (name in ("request_percentage", "connection_creation_rate", "controller_mutation_rate") and value < 1)
        ]
        if low:
            whom = ", ".join(f"{kind} {name or '(default)'}" for kind, name in entry.entity.items())
            yield Finding(
                Severity.WARNING,
                whom,
                f"The quota of {whom} is so low that it holds up single requests: {', '.join(low)}.",
                "DescribeClientQuotas. Rates are bytes a second (not kilobytes) and percent of one thread, per broker.",
                "Raise or remove it with kbroker quota.",
            )
