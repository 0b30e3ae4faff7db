"""Properties of SASL."""

from __future__ import annotations

from kbroker.config.definition import ConfigKey, Range
from kbroker.config.security import oauth
from kbroker.config.shorthand import (
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    STRING,
)

KEYS: list[ConfigKey] = [
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        INT,
        "100",
        LOW,
        "Milliseconds before a client is told that its authentication failed, and its connection is closed.",
        validator=Range(0),
    ),
    ConfigKey(
        "connections.max.reauth.ms",
        LONG,
        "0",
        MEDIUM,
        "Milliseconds after which a client must authenticate again; 0 for never.",
    ),
    ConfigKey(
        "sasl.enabled.mechanisms",
        LIST,
        "GSSAPI",
        MEDIUM,
        "SASL mechanisms that clients may use.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.jaas.config",
        PASSWORD,
        None,
        MEDIUM,
        "Login modules and their options, in JAAS's format.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.kerberos.kinit.cmd",
        STRING,
        "/usr/bin/kinit",
        MEDIUM,
        "Command that renews the tickets of a cache (`kinit -R`), for logins with `useTicketCache=true`.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.kerberos.min.time.before.relogin",
        LONG,
        "60000",
        MEDIUM,
        "Milliseconds between two attempts to renew a Kerberos ticket that has not ended.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.kerberos.principal.to.local.rules",
        LIST,
        "DEFAULT",
        MEDIUM,
        "Rules that make users' names from those of Kerberos principals; the first that applies.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.kerberos.service.name",
        STRING,
        None,
        MEDIUM,
        "First part of the brokers' Kerberos principals, as `kafka`.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.kerberos.ticket.renew.jitter",
        DOUBLE,
        "0.05",
        MEDIUM,
        "Share of random jitter added to the time of a ticket's renewal.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.kerberos.ticket.renew.window.factor",
        DOUBLE,
        "0.8",
        MEDIUM,
        "Share of a ticket's lifetime after which it is renewed.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.mechanism.controller.protocol",
        STRING,
        "GSSAPI",
        HIGH,
        "SASL mechanism between brokers and controllers.",
    ),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol",
        STRING,
        "GSSAPI",
        MEDIUM,
        "SASL mechanism between brokers.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.server.max.receive.size",
        INT,
        "524288",
        MEDIUM,
        "Most bytes of one SASL message before a client is authenticated.",
    ),
]

AT_START = frozenset(key.name for key in (*KEYS, *oauth.KEYS))
"""Those that a node reads when it starts, and never again."""
