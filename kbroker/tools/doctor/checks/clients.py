"""A client's properties, beside what the cluster allows; and what the doctor could not find out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kbroker.tools.diagnosis.findings import Finding, Severity
from kbroker.tools.doctor.facts import Facts, number_of
from kbroker.tools.doctor.findings import check

_BOUNDS: Final = (
    (
        "transaction.timeout.ms",
        None,
        "transaction.max.timeout.ms",
        "the producer is refused (INVALID_TRANSACTION_TIMEOUT)",
    ),
    (
        "session.timeout.ms",
        "group.min.session.timeout.ms",
        "group.max.session.timeout.ms",
        "the consumer is refused (INVALID_SESSION_TIMEOUT)",
    ),
)
"""(the client's property, the brokers' lower bound, their upper bound, what happens beyond)."""


@check("client-properties", "A client's properties cannot be used, or contradict one another", see="clients")
def client_properties(facts: Facts) -> Iterator[Finding]:
    """Judge the file alone, by the rules of Kafka's clients (``ProducerConfig``, ``ConsumerConfig``)."""
    client = facts.client
    if client is None:
        return
    if client.problem:
        yield Finding(
            Severity.ERROR,
            client.source,
            f"The client's properties cannot be used: {client.problem}.",
            "Kafka's definition of the property says so.",
            "Correct the file; docs/security has an example for each protocol.",
        )
    given = client.given
    session, beat = number_of(given, "session.timeout.ms"), number_of(given, "heartbeat.interval.ms")
    if session is not None and (beat or 3000) * 3 > session:
        yield Finding(
            Severity.WARNING,
            client.source,
            f"session.timeout.ms={session} has no room for three heartbeats: a short pause throws the consumer out.",
            f"heartbeat.interval.ms={beat or 3000}.",
            "Set session.timeout.ms to at least three times heartbeat.interval.ms; the defaults are 45000 and 3000.",
        )
    delivery = number_of(given, "delivery.timeout.ms")
    if delivery is not None:
        request, linger = number_of(given, "request.timeout.ms") or 30_000, number_of(given, "linger.ms") or 0
        if delivery < request + linger:
            yield Finding(
                Severity.ERROR,
                client.source,
                f"delivery.timeout.ms={delivery} is less than request.timeout.ms + linger.ms: Kafka's producer does not"
                " start.",
                f"request.timeout.ms={request}, linger.ms={linger}.",
                "Raise delivery.timeout.ms; the default is 120000.",
            )
    if given.get("enable.idempotence", "").strip().lower() == "true" and given.get("acks", "all").strip() in ("0", "1"):
        yield Finding(
            Severity.ERROR,
            client.source,
            f"enable.idempotence=true needs acks=all, and acks={given['acks'].strip()}: Kafka's producer does not"
            " start.",
            "The file says both.",
            "Set acks=all.",
        )


@check("client-limits", "A client asks for times that the brokers do not allow", see="clients")
def client_limits(facts: Facts) -> Iterator[Finding]:
    """Compare the client's time-outs with the brokers' bounds."""
    client = facts.known_client
    for name, low_name, high_name, then in _BOUNDS:
        asked = number_of(client.given, name)
        for broker in facts.brokers:
            low = None if low_name is None else number_of(broker.configs, low_name)
            high = number_of(broker.configs, high_name)
            if asked is None or not ((low is not None and asked < low) or (high is not None and asked > high)):
                continue
            bound = f"{low_name}={low}" if low is not None and asked < low else f"{high_name}={high}"
            yield Finding(
                Severity.ERROR,
                client.source,
                f"{name}={asked} is beyond what the brokers allow: {then}.",
                f"Broker {broker.id} has {bound}, by DescribeConfigs.",
                f"Change {name} in the client's properties, or the bound on every broker.",
            )
            break


@check("unanswered", "Something could not be looked at", see="how-to-look-at-a-node")
def unanswered(facts: Facts) -> Iterator[Finding]:
    """Name what the cluster did not answer, so that silence is not taken for health."""
    for question, reason in facts.known_cluster.unanswered.items():
        yield Finding(
            Severity.NOTE,
            question,
            f"Nothing is known of {question}.",
            reason.rstrip(".") + ".",
            "Ask as a user who may describe the cluster, its topics and its groups (--command-config).",
        )
