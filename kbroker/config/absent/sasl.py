"""Properties of SASL that belong to Kerberos and to Java classes."""

from __future__ import annotations

from kbroker.config.absent.missing import missing
from kbroker.config.definition import ConfigKey
from kbroker.config.shorthand import (
    CLASS,
    DOUBLE,
    LIST,
    LONG,
    MEDIUM,
    PER_BROKER,
    STRING,
)

KEYS = [
    *missing(
        "kbroker has no Kerberos",
        ConfigKey(
            "sasl.kerberos.kinit.cmd",
            STRING,
            "/usr/bin/kinit",
            MEDIUM,
            "Path of Kerberos' command kinit.",
            update_mode=PER_BROKER,
        ),
        ConfigKey(
            "sasl.kerberos.min.time.before.relogin",
            LONG,
            "60000",
            MEDIUM,
            "Milliseconds between two attempts to renew a Kerberos login.",
            update_mode=PER_BROKER,
        ),
        ConfigKey(
            "sasl.kerberos.principal.to.local.rules",
            LIST,
            "DEFAULT",
            MEDIUM,
            "Rules that make short names from those of Kerberos principals.",
            update_mode=PER_BROKER,
        ),
        ConfigKey(
            "sasl.kerberos.service.name",
            STRING,
            None,
            MEDIUM,
            "Kerberos name of the brokers' principal.",
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
    ),
    *missing(
        "kbroker loads no Java classes",
        ConfigKey(
            "sasl.client.callback.handler.class",
            CLASS,
            None,
            MEDIUM,
            "Java class that answers callbacks of SASL clients.",
        ),
        ConfigKey(
            "sasl.login.class",
            CLASS,
            None,
            MEDIUM,
            "Java class that logs in.",
        ),
    ),
]
