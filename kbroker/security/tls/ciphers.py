"""Cipher suites under Java's names, which ``ssl.cipher.suites`` uses, and under OpenSSL's."""

from __future__ import annotations

import re

TLS13_SUITES = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})
"""The suites of TLS 1.3 that OpenSSL offers by default. They have the same names everywhere."""

_JAVA_NAME = re.compile(r"(?:TLS|SSL)_([A-Z_]+)_WITH_([A-Z0-9_]+)")
_KEY_EXCHANGES = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "DHE_RSA": "DHE-RSA-",
    "DHE_DSS": "DHE-DSS-",
    "RSA": "",
}


def openssl_name(name: str) -> str:
    """OpenSSL's name of a suite before TLS 1.3; a name that is none of Java's comes back as it is."""
    found = _JAVA_NAME.fullmatch(name)
    if found is None or found[1] not in _KEY_EXCHANGES:
        return name
    cipher = re.sub(r"^AES_(128|256)", r"AES\1", found[2]).replace("_CBC", "")
    if cipher.startswith("CHACHA20_POLY1305"):
        cipher = "CHACHA20_POLY1305"  # its hash is not part of the name
    elif cipher.startswith(("AES128_CCM", "AES256_CCM")):
        cipher = cipher.replace("CCM_8", "CCM8")
    return _KEY_EXCHANGES[found[1]] + cipher.replace("_", "-")
