"""Properties of SASL that belong to Kerberos, to logins by OAuth and to Java classes."""

from __future__ import annotations

from kbroker.config.absent.missing import missing
from kbroker.config.definition import ConfigKey
from kbroker.config.shorthand import (
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PER_BROKER,
    SHORT,
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
            "sasl.login.callback.handler.class",
            CLASS,
            None,
            MEDIUM,
            "Java class that answers callbacks of a login.",
        ),
        ConfigKey(
            "sasl.login.class",
            CLASS,
            None,
            MEDIUM,
            "Java class that logs in.",
        ),
    ),
    *missing(
        "kbroker has no OAUTHBEARER",
        ConfigKey(
            "sasl.login.connect.timeout.ms",
            INT,
            None,
            LOW,
            "Milliseconds that a connection to an authentication provider may take.",
        ),
        ConfigKey(
            "sasl.login.read.timeout.ms",
            INT,
            None,
            LOW,
            "Milliseconds that an answer of an authentication provider may take.",
        ),
        ConfigKey(
            "sasl.login.refresh.buffer.seconds",
            SHORT,
            "300",
            MEDIUM,
            "Seconds before a credential's end at which it has been refreshed at the latest.",
            update_mode=PER_BROKER,
        ),
        ConfigKey(
            "sasl.login.refresh.min.period.seconds",
            SHORT,
            "60",
            MEDIUM,
            "Seconds between two refreshes of a credential at least.",
            update_mode=PER_BROKER,
        ),
        ConfigKey(
            "sasl.login.refresh.window.factor",
            DOUBLE,
            "0.8",
            MEDIUM,
            "Share of a credential's lifetime after which it is refreshed.",
            update_mode=PER_BROKER,
        ),
        ConfigKey(
            "sasl.login.refresh.window.jitter",
            DOUBLE,
            "0.05",
            MEDIUM,
            "Share of random jitter added to the time of a credential's refresh.",
            update_mode=PER_BROKER,
        ),
        ConfigKey(
            "sasl.login.retry.backoff.max.ms",
            LONG,
            "10000",
            LOW,
            "Longest wait between two attempts to reach an authentication provider, in milliseconds.",
        ),
        ConfigKey(
            "sasl.login.retry.backoff.ms",
            LONG,
            "100",
            LOW,
            "First wait between two attempts to reach an authentication provider, in milliseconds.",
        ),
    ),
]
