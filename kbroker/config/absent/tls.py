"""Properties of TLS that only a JVM could follow."""

from __future__ import annotations

from kbroker.config.absent.missing import missing
from kbroker.config.definition import ConfigKey
from kbroker.config.shorthand import CLASS, LOW, MEDIUM, PER_BROKER, STRING

KEYS = missing(
    "kbroker's TLS is OpenSSL's, and there is no JVM",
    ConfigKey(
        "security.providers",
        STRING,
        None,
        LOW,
        "Java classes that add security providers to the JVM.",
    ),
    ConfigKey(
        "ssl.engine.factory.class",
        CLASS,
        None,
        LOW,
        "Java class that makes TLS engines.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.keymanager.algorithm",
        STRING,
        "SunX509",
        MEDIUM,
        "Algorithm of the JVM's key manager.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.provider",
        STRING,
        None,
        MEDIUM,
        "JVM's security provider for TLS connections.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.secure.random.implementation",
        STRING,
        None,
        LOW,
        "Random generator of the JVM for TLS.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.trustmanager.algorithm",
        STRING,
        "PKIX",
        MEDIUM,
        "Algorithm of the JVM's trust manager.",
        update_mode=PER_BROKER,
    ),
)
