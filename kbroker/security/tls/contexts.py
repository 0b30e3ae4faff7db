"""Contexts of Python's ``ssl`` from Kafka's properties ``ssl.*``, for servers and for clients."""

from __future__ import annotations

import os
import re
import ssl
import tempfile

from kbroker.config.config_key import InvalidConfig
from kbroker.security.tls.stores import KeyStore, Values, read_key_store, read_trust_store, text_of

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_DISABLED = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
"""Versions that Java knows and never negotiates any more."""

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(values: Values) -> ssl.SSLContext:
    """The context of a listener. :class:`InvalidConfig` if a property or a store cannot be used."""
    key_store = read_key_store(values)
    if key_store is None:
        raise InvalidConfig(
            "ssl.keystore.location is not set: a listener with TLS needs a certificate, from there or from"
            " ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    client_auth = text_of(values, "ssl.client.auth") or "none"
    if client_auth not in _CLIENT_AUTH:
        raise InvalidConfig(f"ssl.client.auth: {client_auth!r} is not one of {', '.join(_CLIENT_AUTH)}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A ticket after each handshake costs as much as a small reply, and Kafka's clients stay connected.
    context.num_tickets = 0
    _configure(context, values, key_store)
    trusted = read_trust_store(values)
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, trusted, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(values: Values) -> ssl.SSLContext:
    """The context of a client, a node to another one among them. :class:`InvalidConfig` as above.

    The server's certificate is always checked; its name is, too, unless ``ssl.endpoint.identification.algorithm`` is
    empty. Give ``server_hostname`` to the context in either case.
    """
    algorithm = text_of(values, "ssl.endpoint.identification.algorithm") or ""
    if algorithm.lower() not in ("", "https"):
        raise InvalidConfig(f"ssl.endpoint.identification.algorithm: {algorithm!r} is neither https nor empty")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(algorithm)
    _configure(context, values, read_key_store(values))
    _trust(context, read_trust_store(values), ssl.Purpose.SERVER_AUTH)
    return context


def _configure(context: ssl.SSLContext, values: Values, key_store: KeyStore | None) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    suites = [name.strip() for name in values["ssl.cipher.suites"] or () if name.strip()]
    versions = _enabled_versions(values)
    if suites:
        versions = _allow_suites(context, suites, versions)
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if key_store is not None:
        _load(context, key_store)


def _enabled_versions(values: Values) -> list[ssl.TLSVersion]:
    if (name := text_of(values, "ssl.protocol")) is not None and name not in ("TLS", "SSL", *_VERSIONS, *_DISABLED):
        raise InvalidConfig(f"ssl.protocol: {name!r} is not one of TLS, {', '.join(_VERSIONS)}")
    names = values["ssl.enabled.protocols"] or list(_VERSIONS)
    for name in names:
        if name not in _VERSIONS and name not in _DISABLED:
            raise InvalidConfig(f"ssl.enabled.protocols: {name!r} is not one of {', '.join(_VERSIONS)}")
    versions = [_VERSIONS[name] for name in names if name in _VERSIONS]
    if not versions:
        raise InvalidConfig(
            f"ssl.enabled.protocols: {', '.join(names)} cannot be had, as in current versions of Java;"
            f" {' or '.join(_VERSIONS)} must be there"
        )
    return versions


def _allow_suites(context: ssl.SSLContext, suites: list[str], versions: list[ssl.TLSVersion]) -> list[ssl.TLSVersion]:
    """Allow cipher suites alone; the versions that are left with them."""
    of_13 = TLS13_SUITES.intersection(suites)
    others = [openssl_name(name) for name in suites if name not in TLS13_SUITES]
    for name, openssl in zip((name for name in suites if name not in TLS13_SUITES), others, strict=True):
        try:
            context.set_ciphers(openssl)
        except ssl.SSLError:
            raise InvalidConfig(f"ssl.cipher.suites: {name!r} is no cipher suite that can be had here") from None
    left = [version for version in versions if (of_13 if version is ssl.TLSVersion.TLSv1_3 else others)]
    if not left:
        raise InvalidConfig("ssl.cipher.suites: none of them belongs to a version of ssl.enabled.protocols")
    if of_13 and of_13 != TLS13_SUITES and ssl.TLSVersion.TLSv1_3 in left:
        raise InvalidConfig(
            "ssl.cipher.suites: Python's ssl cannot leave out single suites of TLS 1.3; name all of"
            f" {', '.join(sorted(TLS13_SUITES))}, or none of them, which leaves out TLS 1.3"
        )
    if others:
        context.set_ciphers(":".join(others))
    return left


def _trust(context: ssl.SSLContext, trusted: tuple[bytes, ...] | None, purpose: ssl.Purpose) -> None:
    """Trust the certificates of a store, or those of the machine if there is none."""
    if trusted is None:
        context.load_default_certs(purpose)
        return
    # As in Java, whatever stands in the store is trusted: also one that another has signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=b"".join(trusted))
    except ssl.SSLError as error:
        raise InvalidConfig(f"ssl.truststore: a certificate cannot be read ({error.reason or 'damaged'})") from None


def _load(context: ssl.SSLContext, key_store: KeyStore) -> None:
    """Give a context its key. OpenSSL reads files only, so the key is in one, in memory where the system can."""
    try:
        if hasattr(os, "memfd_create"):
            with open(os.memfd_create("key", os.MFD_CLOEXEC), "wb", buffering=0) as file:
                file.write(key_store.pem())
                context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        else:
            with tempfile.NamedTemporaryFile() as kept:
                kept.write(key_store.pem())
                kept.flush()
                context.load_cert_chain(kept.name)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InvalidConfig("ssl.keystore: the private key does not belong to the certificate") from None
        raise InvalidConfig(f"ssl.keystore: OpenSSL refuses the certificate or its key ({error.reason})") from None


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
