"""Properties of TLS."""

from __future__ import annotations

from kbroker.config.config_key import OneOf
from kbroker.config.table import BOOLEAN, LIST, LOW, MEDIUM, PASSWORD, PER_BROKER, STRING, Table


class TlsProperties(Table):
    """Properties of TLS."""

    ssl_allow_dn_changes = BOOLEAN("false", LOW)
    """Allow a key store whose certificate has another distinguished name to replace the one in use."""
    ssl_allow_san_changes = BOOLEAN("false", LOW)
    """Allow a key store whose certificate has other alternative names to replace the one in use."""
    ssl_cipher_suites = LIST("", MEDIUM, mode=PER_BROKER)
    """Cipher suites allowed; by default those of the JVM."""
    ssl_client_auth = STRING("none", MEDIUM, OneOf(("required", "requested", "none")), mode=PER_BROKER)
    """Whether clients must show a certificate (`required`), may (`requested`) or are not asked (`none`)."""
    ssl_enabled_protocols = LIST("TLSv1.2,TLSv1.3", MEDIUM, mode=PER_BROKER)
    """Versions of TLS allowed."""
    ssl_endpoint_identification_algorithm = STRING("https", LOW, mode=PER_BROKER)
    """The comparison of the name in a server's certificate with its address."""
    ssl_key_password = PASSWORD(None, MEDIUM, mode=PER_BROKER)
    """Password of the private key."""
    ssl_keystore_certificate_chain = PASSWORD(None, MEDIUM, mode=PER_BROKER)
    """Certificate chain in PEM, instead of a key store."""
    ssl_keystore_key = PASSWORD(None, MEDIUM, mode=PER_BROKER)
    """Private key in PEM, instead of a key store."""
    ssl_keystore_location = STRING(None, MEDIUM, mode=PER_BROKER)
    """File of the key store."""
    ssl_keystore_password = PASSWORD(None, MEDIUM, mode=PER_BROKER)
    """Password of the key store."""
    ssl_keystore_type = STRING("JKS", MEDIUM, mode=PER_BROKER)
    """Format of the key store."""
    ssl_principal_mapping_rules = STRING("DEFAULT", LOW)
    """Rules that make the name of a principal from the name in a client's certificate."""
    ssl_protocol = STRING("TLSv1.3", MEDIUM, mode=PER_BROKER)
    """Version of TLS with which the TLS context is made."""
    ssl_truststore_certificates = PASSWORD(None, MEDIUM, mode=PER_BROKER)
    """Trusted certificates in PEM, instead of a trust store."""
    ssl_truststore_location = STRING(None, MEDIUM, mode=PER_BROKER)
    """File of the trust store."""
    ssl_truststore_password = PASSWORD(None, MEDIUM, mode=PER_BROKER)
    """Password of the trust store."""
    ssl_truststore_type = STRING("JKS", MEDIUM, mode=PER_BROKER)
    """Format of the trust store."""


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
