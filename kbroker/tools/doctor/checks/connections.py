"""Connections: addresses that clients cannot reach, listeners that speak otherwise than the client, certificates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kbroker.tools.cli.output import timestamp
from kbroker.tools.diagnosis.findings import Finding, Severity
from kbroker.tools.doctor.facts import CertificateFacts, ClientFacts, Facts, ListenerFacts
from kbroker.tools.doctor.findings import check
from kbroker.tools.doctor.hosts import is_everywhere, is_loopback, matches

_SOON_MS: Final = 30 * 86_400_000
"""A certificate that ends within so long is told of."""


def _connected(facts: Facts) -> list[ListenerFacts]:
    return [each for each in facts.known_cluster.listeners if not each.problem]


@check("bootstrap", "A bootstrap address does not resolve, or nobody listens there", see="clients")
def bootstrap(facts: Facts) -> Iterator[Finding]:
    """Judge bootstrap addresses; one that answers is enough to come in, so others are warnings then."""
    listeners = facts.known_cluster.bootstrap
    enough = any(not each.problem for each in listeners)
    for each in listeners:
        if each.problem:
            yield Finding(
                Severity.WARNING if enough else Severity.ERROR,
                each.address,
                f"The bootstrap address {each.address} cannot be reached.",
                _tried(each),
                "Start the broker, or correct bootstrap.servers (-b). A firewall or an unpublished port of a container"
                " may be between."
                if each.resolved
                else "Correct the name, or make it known to this machine's DNS or /etc/hosts.",
            )


@check("advertised-reachable", "A broker's advertised address cannot be reached from here", see="clients")
def advertised_reachable(facts: Facts) -> Iterator[Finding]:
    """Judge advertised addresses: clients are sent to them, whatever bootstrap address let them in."""
    for broker in facts.brokers:
        each = broker.listener
        if each is None or not each.problem or _is_only_local(each, facts):
            continue
        if each.resolved:
            remedy = (
                "If the broker has just stopped, start it. Otherwise set advertised.listeners to an address and port"
                " that clients can reach, and let them through the firewall or publish the port of the container."
            )
        elif "." not in each.host:
            remedy = (
                f"{each.host} looks like the name of a container or a host of another network. Set"
                " advertised.listeners to a name that clients know, on a listener of its own for those outside."
            )
        else:
            remedy = "Set advertised.listeners to a name that clients know, or make this name known to them."
        yield Finding(
            Severity.ERROR,
            f"broker {broker.id}",
            f"Clients are sent to {each.address} for broker {broker.id}, and cannot get there from this machine.",
            f"The metadata says so, and {_tried(each)}",
            remedy,
        )


@check("advertised-local", "A broker advertises a loopback address to clients from elsewhere", see="clients")
def advertised_local(facts: Facts) -> Iterator[Finding]:
    """Judge addresses that mean another machine on each machine: the client would talk to itself."""
    for broker in facts.brokers:
        each = broker.listener
        if each is not None and _is_only_local(each, facts):
            yield Finding(
                Severity.ERROR,
                f"broker {broker.id}",
                f"Broker {broker.id} advertises {each.address}, which is each client's own machine.",
                f"The bootstrap address {facts.known_cluster.bootstrap[0].address} is not on this machine, and the"
                f" metadata that came from there says {each.address}.",
                "Set advertised.listeners of this broker to the name by which other machines reach it.",
            )


def _is_only_local(listener: ListenerFacts, facts: Facts) -> bool:
    given = [each for each in facts.known_cluster.bootstrap if each.entered] or list(facts.known_cluster.bootstrap)
    if is_everywhere(listener.host):
        return True
    return is_loopback(listener.host, listener.resolved) and not any(
        is_loopback(each.host, each.resolved) for each in given
    )


@check("advertised-identity", "Another broker, or another cluster, answers at an advertised address", see="clients")
def advertised_identity(facts: Facts) -> Iterator[Finding]:
    """Compare who answers with whom the metadata names."""
    cluster = facts.known_cluster
    for broker in cluster.brokers:
        each = broker.listener
        if each is None or not each.entered:
            continue
        if each.cluster_id is not None and cluster.cluster_id is not None and each.cluster_id != cluster.cluster_id:
            other = f"a broker of another cluster, {each.cluster_id}"
            evidence = (
                f"The metadata of cluster {cluster.cluster_id} gives this address, and asked for its own metadata"
            )
            evidence += f" the broker there says {each.cluster_id}."
        elif each.other_id:
            other = "another broker" if each.other_id == "another" else f"broker {each.other_id}"
            evidence = f"It refuses to describe the configs of broker {broker.id}, because it is {other}."
        else:
            continue
        yield Finding(
            Severity.ERROR,
            f"broker {broker.id}",
            f"At {each.address}, the address of broker {broker.id}, answers {other}.",
            evidence,
            "Give each broker advertised.listeners of its own; behind a proxy or NAT each needs its own port.",
        )
    groups: dict[tuple[str, int], set[str]] = {}
    for each in cluster.bootstrap:
        if each.cluster_id is not None:
            groups.setdefault((each.cluster_id, 0), set()).add(each.address)
    if len(groups) > 1:
        told = "; ".join(f"{', '.join(sorted(addresses))}: {key[0]}" for key, addresses in sorted(groups.items()))
        yield Finding(
            Severity.ERROR,
            "bootstrap.servers",
            "The bootstrap addresses belong to different clusters: which one a client uses is chance.",
            f"Their metadata says so: {told}.",
            "Name brokers of one cluster only.",
        )


@check(
    "not-a-broker", "Something answers that is no broker: another protocol, or a controller's listener", see="clients"
)
def not_a_broker(facts: Facts) -> Iterator[Finding]:
    """Judge what answers at an address that clients use."""
    for each in _connected(facts):
        if not each.is_broker:
            yield Finding(
                Severity.ERROR,
                each.where,
                f"At {each.address} answers a controller: it has no metadata for clients, and no records.",
                "It speaks Kafka's protocol and does not serve Metadata.",
                "Use the port of a broker's listener (listeners without controller.listener.names).",
            )
        elif each.has_tls is None and not each.entered:
            yield Finding(
                Severity.ERROR,
                each.where,
                f"{each.address} takes connections and does not speak Kafka's protocol.",
                f"Neither ApiVersions nor a TLS handshake is answered: {each.refusal or 'nothing came'}.",
                "Look which program has this port; the console, metrics and a schema registry have ports of their own.",
            )


@check(
    "security-protocol",
    "A listener is plain and the client speaks TLS, or the other way round; likewise SASL",
    see="tls",
)
def security_protocol(facts: Facts) -> Iterator[Finding]:
    """Compare ``security.protocol`` with what the listener speaks."""
    client = facts.known_client
    for each in _connected(facts):
        if each.has_tls is None or each.entered or not _speaks_otherwise(each, client):
            continue
        right = _protocol(bool(each.has_tls), client.has_sasl if each.has_sasl is None else each.has_sasl)
        yield Finding(
            Severity.ERROR,
            each.where,
            f"{each.where[0].upper()}{each.where[1:]} speaks {right}, and the client speaks {client.protocol}.",
            f"A probe there found {'TLS' if each.has_tls else 'no TLS'}"
            + ("" if each.has_sasl is None else f" and {'SASL' if each.has_sasl else 'no SASL'}")
            + f"; the client ({client.source}) got: {each.refusal}.",
            f"Set security.protocol={right} in the client's properties (--command-config FILE), or use the port of a"
            f" listener of {client.protocol}.",
        )


def _protocol(has_tls: bool, has_sasl: bool) -> str:
    return ("SASL_SSL" if has_sasl else "SSL") if has_tls else ("SASL_PLAINTEXT" if has_sasl else "PLAINTEXT")


def _speaks_otherwise(listener: ListenerFacts, client: ClientFacts) -> bool:
    if listener.has_tls != client.has_tls:
        return True
    return listener.has_sasl is not None and listener.has_sasl != client.has_sasl


def _lacks_mechanism(listener: ListenerFacts, client: ClientFacts) -> bool:
    return client.has_sasl and bool(listener.has_sasl) and client.mechanism not in listener.mechanisms


@check("sasl-mechanism", "The client asks for a SASL mechanism that the listener does not offer", see="clients")
def sasl_mechanism(facts: Facts) -> Iterator[Finding]:
    """Compare ``sasl.mechanism`` with what SaslHandshake says is there."""
    client = facts.known_client
    for each in _connected(facts):
        if not each.entered and _lacks_mechanism(each, client):
            offered = ", ".join(each.mechanisms) or "none"
            yield Finding(
                Severity.ERROR,
                each.where,
                f"The client asks for SASL mechanism {client.mechanism}, which {each.where} does not offer.",
                f"It answers SaslHandshake with: {offered}.",
                f"Set sasl.mechanism to one of {offered}, with a sasl.jaas.config for it; or add {client.mechanism} to"
                " sasl.enabled.mechanisms of the brokers.",
            )


@check("login", "A listener refuses the client's login or certificate", see="clients")
def login(facts: Facts) -> Iterator[Finding]:
    """Report a refusal that has no other explanation."""
    client = facts.known_client
    for each in _connected(facts):
        if each.entered or each.has_tls is None or _speaks_otherwise(each, client) or not each.is_broker:
            continue
        if _lacks_mechanism(each, client):
            continue
        if each.distrust or (each.certificate is not None and _certificate_keeps_out(each, facts)):
            continue
        yield Finding(
            Severity.ERROR,
            each.where,
            f"The client is not let in by {each.where}.",
            f"The way there is right ({client.protocol}), and then: {each.refusal or 'the connection was closed'}.",
            "Correct the name and password (sasl.jaas.config), or the client's certificate (ssl.keystore.location);"
            " kbroker user list shows the users of SCRAM.",
        )


# --- Certificates ---------------------------------------------------------------------------------------------------


def _certificates(facts: Facts) -> Iterator[tuple[str, str, CertificateFacts]]:
    """(where, host that clients use, certificate) of listeners that were seen, and of those of the configuration."""
    for each in _connected(facts):
        if each.certificate is not None:
            yield each.where, each.host, each.certificate
    if facts.configuration is not None:
        for listener in facts.configuration.listeners:
            if listener.certificate is not None:
                yield f"listener {listener.name}", listener.advertised_host, listener.certificate


def _certificate_keeps_out(listener: ListenerFacts, facts: Facts) -> bool:
    certificate = listener.certificate
    assert certificate is not None
    is_valid = certificate.valid_from <= facts.now <= certificate.valid_until
    return not (is_valid and _is_for(certificate, listener.host, facts.known_client))


def _is_for(certificate: CertificateFacts, host: str, client: ClientFacts) -> bool:
    """Whether the client takes the certificate for the host's (``ssl.endpoint.identification.algorithm``)."""
    return not client.checks_names or matches(host, certificate.names)


@check(
    "certificate-expiry", "A listener's certificate has expired, is not valid yet, or ends within 30 days", see="tls"
)
def certificate_expiry(facts: Facts) -> Iterator[Finding]:
    """Judge the days of certificates by this machine's clock."""
    for where, _, certificate in _certificates(facts):
        left = certificate.valid_until - facts.now
        if facts.now < certificate.valid_from:
            severity, text = Severity.ERROR, f"The certificate of {where} is not valid yet."
        elif left <= 0:
            severity, text = Severity.ERROR, f"The certificate of {where} has expired: no client trusts it."
        elif left < _SOON_MS:
            severity, text = Severity.WARNING, f"The certificate of {where} ends in {max(left // 86_400_000, 0)} days."
        else:
            continue
        yield Finding(
            severity,
            where,
            text,
            f"{certificate.subject} is valid from {_day(certificate.valid_from)} to {_day(certificate.valid_until)};"
            f" this machine's clock says {_day(facts.now)}.",
            "Issue a new one (your authority, or kbroker certs DIRECTORY --renew), and give it to the node:"
            " at a restart, or at once by setting listener.name.NAME.ssl.keystore.location of the broker anew."
            if left < _SOON_MS
            else "Look at the clocks of both machines, and at the dates of the certificate.",
        )


@check("certificate-name", "A certificate does not name the host that clients are sent to", see="tls")
def certificate_name(facts: Facts) -> Iterator[Finding]:
    """Compare names of certificates with hosts, where the client does."""
    for where, host, certificate in _certificates(facts):
        if not _is_for(certificate, host, facts.known_client):
            yield Finding(
                Severity.ERROR,
                where,
                f"The certificate of {where} is not for {host}: clients that compare the name refuse it.",
                f"{certificate.subject} is for {', '.join(certificate.names) or 'no host at all'}.",
                f"Issue a certificate with {host} as a subject alternative name, or set advertised.listeners to a name"
                " that it has.",
            )


@check("certificate-trust", "A certificate is signed by nobody whom the client trusts", see="tls")
def certificate_trust(facts: Facts) -> Iterator[Finding]:
    """Report chains that do not end in the client's trust store."""
    for each in _connected(facts):
        if each.distrust:
            yield Finding(
                Severity.ERROR,
                each.where,
                f"The client does not trust the certificate of {each.where}.",
                f"The TLS handshake with the trust store of {facts.known_client.source} ends with: {each.distrust}.",
                "Name the authority's certificate in ssl.truststore.location, and let the broker send the certificates"
                " between (ssl.keystore: the whole chain).",
            )


@check("tls-version", "A listener takes versions of TLS before 1.2", see="tls")
def tls_version(facts: Facts) -> Iterator[Finding]:
    """Report old versions, which RFC 8996 forbids."""
    for each in _connected(facts):
        if each.weak_tls:
            yield Finding(
                Severity.WARNING,
                each.where,
                f"{each.where[0].upper()}{each.where[1:]} takes {' and '.join(each.weak_tls)}, which is not safe.",
                "A handshake that offered nothing newer succeeded.",
                "Set ssl.enabled.protocols=TLSv1.2,TLSv1.3.",
            )


@check("exposure", "A listener that others reach lets everybody in", see="start")
def exposure(facts: Facts) -> Iterator[Finding]:
    """Report what lets in whoever comes: by the rule of ``kbroker info`` for a configuration, else by being let in."""
    if facts.configuration is not None:
        for line in facts.configuration.exposed:
            yield Finding(
                Severity.WARNING,
                facts.configuration.source,
                f"{line}.",
                "listeners, listener.security.protocol.map and authorizer.class.name say so.",
                "Secure the listener (SASL_SSL and an authorizer), listen on 127.0.0.1, or keep others out by a"
                " firewall.",
            )
    if facts.known_client.has_sasl or facts.known_client.given.get("ssl.keystore.location"):
        return
    for broker in facts.brokers:
        each = broker.listener
        if each is None or not each.is_right or is_loopback(each.host, each.resolved):
            continue
        if broker.configs is not None:
            yield Finding(
                Severity.WARNING,
                f"broker {broker.id}",
                f"{each.address} lets in everybody who reaches it: they may read its configuration.",
                "This report was made without saying who asks.",
                "Secure the listener (SASL_SSL and an authorizer), or keep others out by a firewall.",
            )


def _tried(listener: ListenerFacts) -> str:
    to = "" if not listener.resolved else f" ({', '.join(listener.resolved)})"
    return f"{listener.host}{to}: {listener.problem}."


def _day(ms: int) -> str:
    return timestamp(ms)[:10]
