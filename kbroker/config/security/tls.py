"""Properties of TLS."""

from __future__ import annotations

from kbroker.config.definition import ConfigKey, OneOf
from kbroker.config.shorthand import BOOLEAN, LIST, LOW, MEDIUM, PASSWORD, PER_BROKER, STRING

KEYS: list[ConfigKey] = [
    ConfigKey(
        "ssl.allow.dn.changes",
        BOOLEAN,
        "false",
        LOW,
        "Allow a key store whose certificate has another distinguished name to replace the one in use.",
    ),
    ConfigKey(
        "ssl.allow.san.changes",
        BOOLEAN,
        "false",
        LOW,
        "Allow a key store whose certificate has other alternative names to replace the one in use.",
    ),
    ConfigKey(
        "ssl.cipher.suites",
        LIST,
        "",
        MEDIUM,
        "Cipher suites allowed; by default those of the JVM.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.client.auth",
        STRING,
        "none",
        MEDIUM,
        "Whether clients must show a certificate (`required`), may (`requested`) or are not asked (`none`).",
        validator=OneOf(("required", "requested", "none")),
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.enabled.protocols",
        LIST,
        "TLSv1.2,TLSv1.3",
        MEDIUM,
        "Versions of TLS allowed.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        LOW,
        "How the name in a server's certificate is compared with its address.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.key.password",
        PASSWORD,
        None,
        MEDIUM,
        "Password of the private key.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        MEDIUM,
        "Certificate chain in PEM, instead of a key store.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.key",
        PASSWORD,
        None,
        MEDIUM,
        "Private key in PEM, instead of a key store.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.location",
        STRING,
        None,
        MEDIUM,
        "File of the key store.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.password",
        PASSWORD,
        None,
        MEDIUM,
        "Password of the key store.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.keystore.type",
        STRING,
        "JKS",
        MEDIUM,
        "Format of the key store.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        LOW,
        "Rules that make the name of a principal from the name in a client's certificate.",
    ),
    ConfigKey(
        "ssl.protocol",
        STRING,
        "TLSv1.3",
        MEDIUM,
        "Version of TLS with which the TLS context is made.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.certificates",
        PASSWORD,
        None,
        MEDIUM,
        "Trusted certificates in PEM, instead of a trust store.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.location",
        STRING,
        None,
        MEDIUM,
        "File of the trust store.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.password",
        PASSWORD,
        None,
        MEDIUM,
        "Password of the trust store.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "ssl.truststore.type",
        STRING,
        "JKS",
        MEDIUM,
        "Format of the trust store.",
        update_mode=PER_BROKER,
    ),
]

STORES = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    }
)
"""Properties that a listener reads again, with the listener's prefix only (``SslConfigs.RECONFIGURABLE_CONFIGS``)."""
