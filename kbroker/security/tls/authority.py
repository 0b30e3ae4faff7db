"""A certificate authority: makes certificates for nodes and clients, for tests and for clusters of one's own.

Keys are on the curve P-256, which all of Kafka's clients know and which is fast.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

CA_DAYS = 3650
"""The time that an authority is valid by default."""

CERTIFICATE_DAYS = 825
"""The time that a certificate is valid by default: the most that some clients accept."""

_HOUR = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True, repr=False)
class Issued:
    """A certificate with its private key, and the authority's certificate behind it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    authority: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        """The chain in PEM: the certificate, then the authority's."""
        return _pem(self.certificate) + _pem(self.authority)

    def key_pem(self, password: str | None = None) -> str:
        """The private key in PEM (PKCS #8), encrypted if there is a password."""
        return _key_pem(self.key, password)

    def pem(self, password: str | None = None) -> str:
        """Key and chain, as a file of ``ssl.keystore.type=PEM`` has them."""
        return self.key_pem(password) + self.certificate_pem

    def pkcs12(self, password: str, alias: str = "node") -> bytes:
        """Key and chain as a key store of ``ssl.keystore.type=PKCS12``."""
        return pkcs12.serialize_key_and_certificates(
            alias.encode(), self.key, self.certificate, [self.authority], BestAvailableEncryption(password.encode())
        )


class Authority:
    """Signs certificates."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate = certificate
        self._key = key

    @classmethod
    def create(cls, subject: str = "CN=kbroker CA", *, days: float = CA_DAYS) -> Self:
        """A new one. ``subject`` is a distinguished name as in RFC 4514."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name.from_rfc4514_string(subject)
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _HOUR)  # the clocks of others may be a little behind
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate_pem: str, key_pem: str, password: str | None = None) -> Self:
        """An authority from its PEM texts. ``ValueError`` if they are not of an authority that this class made."""
        try:
            key = load_pem_private_key(key_pem.encode(), None if password is None else password.encode())
            certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ValueError("the certificate authority's key or certificate cannot be read") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise ValueError("the certificate authority's key does not belong to its certificate")
        return cls(certificate, key)

    @property
    def certificate_pem(self) -> str:
        """The authority's certificate in PEM: what others must trust."""
        return _pem(self.certificate)

    def key_pem(self, password: str | None = None) -> str:
        """The authority's private key in PEM (PKCS #8), encrypted if there is a password."""
        return _key_pem(self._key, password)

    def issue(
        self,
        subject: str = "CN=localhost",
        hosts: Sequence[str] = (),
        *,
        days: float = CERTIFICATE_DAYS,
        valid_from: datetime.datetime | None = None,
    ) -> Issued:
        """A certificate for a server and client in one.

        ``subject`` is a distinguished name as in RFC 4514, ``hosts`` are the names and addresses it stands for.
        ``valid_from`` is aware of its time zone; an hour ago by default.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        start = datetime.datetime.now(datetime.UTC) - _HOUR if valid_from is None else valid_from
        end = start + _HOUR + datetime.timedelta(days=days)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name.from_rfc4514_string(subject))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), False)
        return Issued(builder.sign(self._key, hashes.SHA256()), key, self.certificate)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey, password: str | None) -> str:
    encryption: KeySerializationEncryption = (
        NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    )
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()
