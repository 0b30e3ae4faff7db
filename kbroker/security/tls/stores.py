"""Reads key stores and trust stores: PEM in files and in properties (KIP-651), PKCS #12 and JKS.

The content says which of them a file is, whatever ``ssl.keystore.type`` says: the default of that property is JKS,
while keytool has long been writing PKCS #12. Errors name the property, and never quote a secret.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs12,
)

from kbroker.config.config_key import InvalidConfig, Password
from kbroker.security.tls import jks
from kbroker.security.tls.names import subject_name

MAX_STORE_BYTES = 16 << 20
"""A file that is larger is no store."""

MAX_LABEL = 100
"""Labels of PEM are shorter."""

_LABEL = re.compile(r"\s[A-Z0-9\s]+")
_DASHES = re.compile(r"-+(?=\s)")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")


class UnusableStore(InvalidConfig):
    """A file cannot be had, or is no store that its password opens.

    ``message`` tells of the file, so it is for the node's log: whoever may name a file over the wire is told
    ``to_client``, which is the same for a file that is not there, one that may not be read and one of another kind.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.to_client = f"{name}: the store cannot be used; the log of the node says why"


class Values(Protocol):
    """Typed properties under Kafka's names, those that are not set with their defaults."""

    def __getitem__(self, name: str, /) -> Any: ...


class PropertyOverride:
    """Properties of which one has another value."""

    def __init__(self, values: Values, name: str, value: object) -> None:
        self._values = values
        self._name = name
        self._value = value

    def __getitem__(self, name: str) -> Any:
        return self._value if name == self._name else self._values[name]


@dataclass(frozen=True, slots=True, repr=False)
class KeyStore:
    """A private key and its certificates in DER, its own first."""

    key_pem: bytes
    """The key in PEM, not encrypted."""
    chain: tuple[bytes, ...]

    @property
    def certificate(self) -> x509.Certificate:
        """The certificate of the key."""
        return x509.load_der_x509_certificate(self.chain[0])

    def pem(self) -> bytes:
        """Key and chain as one PEM file."""
        return self.key_pem + b"".join(_pem("CERTIFICATE", der).encode() for der in self.chain)


def text_of(values: Values, name: str) -> str | None:
    """A property's text, also of a password; None if it is not set or empty."""
    value = values[name]
    if isinstance(value, Password):
        value = value.value
    return str(value) if value else None


def read_key_store(values: Values) -> KeyStore | None:
    """The key store that the properties ``ssl.keystore.*`` name; None if they name none. :class:`InvalidConfig`."""
    location, key, chain = (
        text_of(values, f"ssl.keystore.{name}") for name in ("location", "key", "certificate.chain")
    )
    password = text_of(values, "ssl.key.password")
    if key is not None or chain is not None:
        if location is not None:
            raise InvalidConfig("ssl.keystore.location and ssl.keystore.key cannot both be set")
        if key is None or chain is None:
            raise InvalidConfig("ssl.keystore.key and ssl.keystore.certificate.chain must be set together")
        return _pem_key_store(
            key, chain, password, key_property="ssl.keystore.key", chain_property="ssl.keystore.certificate.chain"
        )
    if location is None:
        return None
    try:
        return _key_store_of_file(location, text_of(values, "ssl.keystore.password"), password)
    except InvalidConfig as error:
        raise UnusableStore("ssl.keystore.location", error.message) from None


def _key_store_of_file(location: str, store_password: str | None, password: str | None) -> KeyStore:
    data = _read("ssl.keystore.location", location)
    if data[:4] in (jks.MAGIC, jks.JCEKS_MAGIC) or _is_der(data):
        if store_password is None:
            raise InvalidConfig(f"ssl.keystore.password is not set, but the key store {location} needs it")
        if _is_der(data):
            return _pkcs12_key_store(data, location, store_password)
        return _jks_key_store(data, location, store_password, password or store_password)
    text = _ascii("ssl.keystore.location", location, data)
    name = "ssl.keystore.location"
    return _pem_key_store(text, text, password, key_property=name, chain_property=name, location=location)


def read_trust_store(values: Values) -> tuple[bytes, ...] | None:
    """The certificates in DER that the properties ``ssl.truststore.*`` trust; None if they name no store.

    :class:`InvalidConfig` if it cannot be read, or has none.
    """
    location, text = text_of(values, "ssl.truststore.location"), text_of(values, "ssl.truststore.certificates")
    password = text_of(values, "ssl.truststore.password")
    name = "ssl.truststore.location"
    if text is not None:
        if location is not None:
            raise InvalidConfig("ssl.truststore.location and ssl.truststore.certificates cannot both be set")
        name = "ssl.truststore.certificates"
        found = _certificates(text, name)
    elif location is None:
        return None
    else:
        try:
            found = _trusted_of_file(name, location, password)
        except InvalidConfig as error:
            raise UnusableStore(name, error.message) from None
    if not found:
        raise InvalidConfig(f"{name}: there is no certificate")
    return tuple(found)


def _trusted_of_file(name: str, location: str, password: str | None) -> list[bytes]:
    data = _read(name, location)
    if _is_der(data):
        store = _load_pkcs12(data, name, location, password)
        found = [_der(certificate) for certificate in _trusted_of_pkcs12(store)]
    elif data[:4] in (jks.MAGIC, jks.JCEKS_MAGIC):
        java = _load_jks(data, name, location, password)
        found = [*java.trusted, *(der for key in java.keys for der in key.chain[:1])]
    else:
        found = _certificates(_ascii(name, location, data), name)
    if not found:
        raise InvalidConfig(f"{name}: there is no certificate in {location}")
    return found


def _read(name: str, location: str) -> bytes:
    try:
        # A pipe that nobody writes to would hold the thread for ever, in open() and in read().
        with open(location, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidConfig(f"{name}: {location} is not a file")
            data = file.read(MAX_STORE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"{name}: cannot read {location}: {getattr(error, 'strerror', None) or error}") from None
    if not data or len(data) > MAX_STORE_BYTES:
        raise InvalidConfig(f"{name}: {location} is no key store: it is {'too large' if data else 'empty'}")
    return data


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_der(data: bytes) -> bool:
    return data[:1] == b"\x30" and b"-----BEGIN" not in data[:64]


def _ascii(name: str, location: str, data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    if "BEGIN" not in text:
        raise InvalidConfig(f"{name}: {location} is none of PEM, PKCS12 and JKS")
    return text


# --- PKCS #12 and JKS


def _load_pkcs12(data: bytes, name: str, location: str, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        kind = name.split(".")[1]
        raise InvalidConfig(
            f"{name}: cannot open {location} with "
            + (f"ssl.{kind}.password" if password is not None else f"no password; ssl.{kind}.password is not set")
        ) from None


def _trusted_of_pkcs12(store: pkcs12.PKCS12KeyAndCertificates) -> list[x509.Certificate]:
    """The certificates that Java trusts of a store: a key's own, not those that signed it, and trusted entries.

    Java marks an entry as trusted by an attribute that ``cryptography`` does not show. But it writes such an entry with
    its alias as the friendly name, and a signer's certificate with the certificate's subject. Other tools give a signer
    no name, or any: so a certificate of the key's chain is trusted only if it stands there once more. Without a key
    there are no signers, and all are trusted.
    """
    own = [] if store.cert is None else [store.cert.certificate]
    others = [each.certificate for each in store.additional_certs]
    if store.key is None:
        return own + others
    signers = _chain(own[0], others)[1:] if own else []
    return own + [
        each.certificate
        for each in store.additional_certs
        if each.friendly_name is not None
        and each.friendly_name.decode("utf-8", "replace") != subject_name(_der(each.certificate))
        and (each.certificate not in signers or others.count(each.certificate) > 1)
    ]


def _chain(first: x509.Certificate, others: Iterable[x509.Certificate]) -> list[x509.Certificate]:
    """A certificate and those of the others that have signed it, one another in turn."""
    by_subject = {certificate.subject: certificate for certificate in others}
    chain = [first]
    while (issuer := by_subject.pop(chain[-1].issuer, None)) is not None:
        chain.append(issuer)
    return chain


def _pkcs12_key_store(data: bytes, location: str, password: str) -> KeyStore:
    store = _load_pkcs12(data, "ssl.keystore.location", location, password)
    if store.key is None or store.cert is None:
        raise InvalidConfig(f"ssl.keystore.location: there is no private key with its certificate in {location}")
    chain = _chain(store.cert.certificate, [each.certificate for each in store.additional_certs])
    return KeyStore(_key_pem(store.key), tuple(_der(certificate) for certificate in chain))


def _load_jks(data: bytes, name: str, location: str, password: str | None) -> jks.JavaKeyStore:
    if data[:4] == jks.JCEKS_MAGIC:
        raise InvalidConfig(
            f"{name}: {location} is of the type JCEKS; convert it: keytool -importkeystore -srckeystore {location}"
            f" -srcstoretype JCEKS -destkeystore {location}.p12 -deststoretype PKCS12"
        )
    try:
        return jks.read(data, password)
    except jks.WrongPassword:
        raise InvalidConfig(f"{name}: cannot open {location} with ssl.{name.split('.')[1]}.password") from None
    except ValueError as error:
        raise InvalidConfig(f"{name}: cannot read {location}: {error}") from None


def _jks_key_store(data: bytes, location: str, password: str, key_password: str) -> KeyStore:
    name = "ssl.keystore.location"
    store = _load_jks(data, name, location, password)
    if not store.keys or not store.keys[0].chain:
        raise InvalidConfig(f"{name}: there is no private key with its certificate in {location}")
    try:
        key = load_der_private_key(jks.unprotect(store.keys[0], key_password), None)
    except jks.WrongPassword:
        raise InvalidConfig(f"ssl.key.password: it does not open the key in {location}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidConfig(f"{name}: the private key in {location} is of a kind that cannot be read") from None
    return KeyStore(_key_pem(key), tuple(store.keys[0].chain))


# --- PEM


def _pem_key_store(
    key_text: str,
    chain_text: str,
    password: str | None,
    *,
    key_property: str,
    chain_property: str,
    location: str | None = None,
) -> KeyStore:
    where = f" in {location}" if location else ""
    found = next((block for block in _blocks(key_text, key_property) if block[0].endswith("PRIVATE KEY")), None)
    if found is None:
        raise InvalidConfig(f"{key_property}: there is no private key{where}")
    label, body = found
    if _BASE64.fullmatch(body):
        pem = _pem(label, _decoded(body, key_property)).encode()
    else:
        # It has headers, as the older form of encryption does.
        pem = f"-----BEGIN {label}-----\n{body}-----END {label}-----\n".encode()
    is_encrypted = label.startswith("ENCRYPTED") or "ENCRYPTED" in body.partition("\n")[0]
    if is_encrypted and password is None:
        raise InvalidConfig(f"ssl.key.password is not set, but the private key{where} is encrypted")
    try:
        key = load_pem_private_key(pem, password.encode() if is_encrypted and password is not None else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        if is_encrypted:
            raise InvalidConfig(f"ssl.key.password: it does not open the private key{where}") from None
        raise InvalidConfig(f"{key_property}: the private key{where} cannot be read") from None
    chain = _certificates(chain_text, chain_property)
    if not chain:
        raise InvalidConfig(f"{chain_property}: there is no certificate{where}")
    return KeyStore(_key_pem(key), tuple(chain))


def _certificates(text: str, name: str) -> list[bytes]:
    return [_decoded(body, name) for label, body in _blocks(text, name) if label in _CERTIFICATES]


def _blocks(text: str, name: str) -> Iterator[tuple[str, str]]:
    """The blocks of a PEM text: the label of each, and what is inside. Other text between them is passed over.

    The text may come over the wire, so it is gone through once: from each end to the beginning nearest before it.
    """
    if len(text) > MAX_STORE_BYTES:
        raise InvalidConfig(f"{name}: the text is too large")
    at = 0
    while (end := text.find("-END", at)) >= 0:
        begin = text.rfind("-BEGIN", at, end)
        at = end + len("-END")
        if begin < 0:
            continue
        label, inside = _label(text, begin + len("-BEGIN"), end)
        dashes = _DASHES.match(text, inside, end)
        closing, after = _label(text, at, len(text))
        if label and label == closing and dashes is not None:
            yield label, text[dashes.end() : end].strip("-").lstrip()
            at = after


def _label(text: str, start: int, limit: int) -> tuple[str, int]:
    """A label and where the dashes behind it begin; empty if there is none."""
    found = _LABEL.match(text, start, min(limit, start + MAX_LABEL))
    if found is None or text[found.end() : found.end() + 1] != "-":
        return "", start
    return found[0].strip(), found.end()


def _decoded(body: str, name: str) -> bytes:
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except binascii.Error:
        raise InvalidConfig(f"{name}: the PEM text is damaged") from None


def _pem(label: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


def _key_pem(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def alternative_names(certificate: x509.Certificate) -> frozenset[str]:
    """The subject's alternative names of a certificate, in a form to compare."""
    try:
        names: Iterable[x509.GeneralName] = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    return frozenset(f"{type(name).__name__}:{name.value}" for name in names)
