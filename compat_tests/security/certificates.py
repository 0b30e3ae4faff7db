"""A certificate authority for a test, and the stores that a server.properties names: PEM, PKCS12 and JKS."""

from __future__ import annotations

import datetime
import ipaddress
import shutil
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

STORE_PASSWORD = "store-password-of-the-tests"


class Authority:
    """A certificate authority; its files are in `directory`."""

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            self._begin(subject, subject, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=True,
                    crl_sign=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .sign(self._key, hashes.SHA256())
        )
        self.pem = directory / f"{name}.pem"
        self.pem.write_bytes(self._certificate.public_bytes(Encoding.PEM))

    @staticmethod
    def _begin(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=60))
        )

    def identity(self, name: str, unit: str, hosts: tuple[str, ...] = ("127.0.0.1", "localhost")) -> Identity:
        """A key and a certificate for ``CN=name,OU=unit``, good for servers (of `hosts`) and for clients."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit), x509.NameAttribute(NameOID.COMMON_NAME, name)]
        )
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            self._begin(subject, self._certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return Identity(self._directory / name, key, certificate, self._certificate)

    def truststore(self) -> Path:
        """A PKCS12 file of this authority alone, as keytool makes one."""
        path = self.pem.with_suffix(".truststore.p12")
        if not path.exists():
            entry = pkcs12.PKCS12Certificate(self._certificate, b"authority")
            path.write_bytes(
                pkcs12.serialize_java_truststore([entry], BestAvailableEncryption(STORE_PASSWORD.encode()))
            )
        return path

    def jks_truststore(self) -> Path | None:
        """The same as JKS, or None where there is no keytool."""
        path = self.pem.with_suffix(".truststore.jks")
        if not path.exists():
            if shutil.which("keytool") is None:
                return None
            command = ["keytool", "-importcert", "-noprompt", "-alias", "authority", "-file", str(self.pem)]
            command += ["-keystore", str(path), "-storetype", "JKS", "-storepass", STORE_PASSWORD]
            subprocess.run(command, check=True, capture_output=True)
        return path


class Identity:
    """A key with its certificate. `pem` has both, as Kafka's PEM stores want them; `p12` is the same as PKCS12."""

    def __init__(
        self, stem: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, authority: x509.Certificate
    ) -> None:
        self.pem = stem.with_suffix(".pem")
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        for each in (certificate, authority):
            text += each.public_bytes(Encoding.PEM)
        self.pem.write_bytes(text)
        self.p12 = stem.with_suffix(".p12")
        secret = BestAvailableEncryption(STORE_PASSWORD.encode())
        self.p12.write_bytes(
            pkcs12.serialize_key_and_certificates(stem.name.encode(), key, certificate, [authority], secret)
        )

    def jks(self) -> Path | None:
        """The same as JKS, or None where there is no keytool."""
        path = self.p12.with_suffix(".jks")
        if path.exists():
            return path
        if shutil.which("keytool") is None:
            return None
        command = ["keytool", "-importkeystore", "-srckeystore", str(self.p12), "-destkeystore", str(path)]
        command += ["-srcstoretype", "PKCS12", "-deststoretype", "JKS", "-noprompt"]
        command += ["-srcstorepass", STORE_PASSWORD, "-deststorepass", STORE_PASSWORD]
        subprocess.run(command, check=True, capture_output=True)
        return path


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
