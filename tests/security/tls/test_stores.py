"""Key stores and trust stores in each form that people have, and what is said of those that cannot be used."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import ssl
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, pkcs12

from kbroker.config.config_key import InvalidConfig, Password
from kbroker.config.security import SecurityValues
from kbroker.security.tls.authority import Authority
from kbroker.security.tls.contexts import client_context, server_context
from kbroker.security.tls.material import load, mismatch
from kbroker.security.tls.stores import MAX_STORE_BYTES, read_key_store, read_trust_store
from tests.security.tls import keytool_stores

AUTHORITY = Authority.create()
NODE = AUTHORITY.issue("CN=localhost", ["localhost", "127.0.0.1"])
SECRET = "hunter2-secret"
OF_KEYTOOL = {"jks": keytool_stores.JKS, "p12": keytool_stores.PKCS12}
TRUST_OF_KEYTOOL = {"jks": keytool_stores.JKS_TRUST, "p12": keytool_stores.PKCS12_TRUST}


def values(**properties: Any) -> SecurityValues:
    """Properties; ``ssl__keystore__key`` stands for ``ssl.keystore.key``."""
    return SecurityValues({name.replace("__", "."): value for name, value in properties.items()})


def file(path: Path, content: bytes | str) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def trusting(authority: Authority = AUTHORITY, **more: Any) -> ssl.SSLContext:
    properties = {"ssl__truststore__certificates": authority.certificate_pem}
    return client_context(values(**{"ssl__endpoint__identification__algorithm": "", **properties, **more}))


@pytest.mark.parametrize("password", [None, SECRET])
@pytest.mark.parametrize("form", ["file", "inline", "one line", "PKCS12"])
def test_a_key_store_of_each_form_is_shown(tmp_path: Path, form: str, password: str | None) -> None:
    more = {"ssl__key__password": None if password is None else Password(password)}
    if form == "file":
        given = {"ssl__keystore__location": file(tmp_path / "node.pem", NODE.pem(password))}
    elif form == "PKCS12":
        more = {"ssl__keystore__password": Password(SECRET)}
        given = {"ssl__keystore__location": file(tmp_path / "node.p12", NODE.pkcs12(SECRET))}
    else:
        join = " ".join if form == "one line" else "\n".join
        given = {
            "ssl__keystore__key": Password(join(NODE.key_pem(password).splitlines())),
            "ssl__keystore__certificate__chain": Password(join(NODE.certificate_pem.splitlines())),
        }
    properties = values(**given, **more)
    assert mismatch(server_context(properties), trusting()) is None
    store = read_key_store(properties)
    assert store is not None and len(store.chain) == 2
    assert SECRET not in repr(store)


@pytest.mark.parametrize("kind", list(OF_KEYTOOL))
def test_the_stores_of_keytool_are_read(tmp_path: Path, kind: str) -> None:
    password = Password("secret1")
    keys = values(
        ssl__keystore__location=file(tmp_path / "keys", OF_KEYTOOL[kind]),
        ssl__keystore__password=password,
        ssl__keystore__type="JKS",  # Kafka's default, whatever the file is
    )
    store = read_key_store(keys)
    assert store is not None
    assert store.certificate.subject.rfc4514_string() == "CN=localhost,O=x"
    server_context(keys)
    trust = values(
        ssl__truststore__location=file(tmp_path / "trust", TRUST_OF_KEYTOOL[kind]), ssl__truststore__password=password
    )
    trusted = read_trust_store(trust)
    assert trusted is not None and len(trusted) == 1
    assert client_context(trust).cert_store_stats()["x509"] == 1
    assert (trusted[0] == store.chain[0]) is (kind == "p12")  # of JKS the store was made with a key of its own


def test_a_key_may_have_a_password_of_its_own(tmp_path: Path) -> None:
    location = file(tmp_path / "keys", keytool_stores.JKS_WITH_KEY_PASSWORD)
    given = {"ssl__keystore__location": location, "ssl__keystore__password": Password("secret1")}
    assert read_key_store(values(**given, ssl__key__password=Password("other22"))) is not None
    with pytest.raises(InvalidConfig, match=r"ssl\.key\.password: it does not open the key"):
        read_key_store(values(**given))


def test_a_java_trust_store_needs_no_password(tmp_path: Path) -> None:
    location = file(tmp_path / "trust", keytool_stores.JKS_TRUST)
    assert read_trust_store(values(ssl__truststore__location=location)) is not None


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({}, "ssl.keystore.location is not set"),
    ({"ssl__keystore__location": "/no/such/file"}, "ssl.keystore.location: cannot read /no/such/file: No such file"),
    ({"ssl__keystore__location": "/dev/null"}, "/dev/null is not a file"),
    ({"ssl__keystore__location": keytool_stores.__file__}, "is none of PEM, PKCS12 and JKS"),
    ({"ssl__keystore__key": Password(NODE.key_pem())}, "must be set together"),
    ({"ssl__keystore__key": Password("x"), "ssl__keystore__location": "/x"}, "cannot both be set"),
    (
        {"ssl__keystore__key": Password("x"), "ssl__keystore__certificate__chain": Password(NODE.certificate_pem)},
        "ssl.keystore.key: there is no private key",
    ),
    (
        {"ssl__keystore__key": Password(NODE.key_pem()), "ssl__keystore__certificate__chain": Password("x")},
        "ssl.keystore.certificate.chain: there is no certificate",
    ),
    (
        {
            "ssl__keystore__key": Password(NODE.key_pem("right")),
            "ssl__keystore__certificate__chain": Password(NODE.certificate_pem),
            "ssl__key__password": Password(SECRET),
        },
        "ssl.key.password: it does not open the private key",
    ),
    (
        {
            "ssl__keystore__key": Password(NODE.key_pem("right")),
            "ssl__keystore__certificate__chain": Password(NODE.certificate_pem),
        },
        "ssl.key.password is not set, but the private key is encrypted",
    ),
    (
        {
            "ssl__keystore__key": Password(AUTHORITY.issue().key_pem()),
            "ssl__keystore__certificate__chain": Password(NODE.certificate_pem),
        },
        "the private key does not belong to the certificate",
    ),
    (
        {
            "ssl__keystore__key": Password(NODE.key_pem()[:150]),
            "ssl__keystore__certificate__chain": Password(NODE.certificate_pem),
        },
        "there is no private key",
    ),
]
GOOD = {
    "ssl__keystore__key": Password(NODE.key_pem()),
    "ssl__keystore__certificate__chain": Password(NODE.certificate_pem),
}
MISTAKES += [
    (GOOD | {"ssl__enabled__protocols": ["TLSv1.1"]}, "ssl.enabled.protocols: TLSv1.1 cannot be had"),
    (GOOD | {"ssl__enabled__protocols": ["TLSv9"]}, "ssl.enabled.protocols: 'TLSv9'"),
    (GOOD | {"ssl__protocol": "SPDY"}, "ssl.protocol: 'SPDY'"),
    (GOOD | {"ssl__cipher__suites": ["TLS_NO_SUCH"]}, "ssl.cipher.suites: 'TLS_NO_SUCH'"),
    (GOOD | {"ssl__cipher__suites": ["TLS_AES_128_GCM_SHA256"]}, "ssl.cipher.suites: Python's ssl cannot leave out"),
    (
        GOOD | {"ssl__cipher__suites": ["ECDHE-ECDSA-AES256-GCM-SHA384"], "ssl__enabled__protocols": ["TLSv1.3"]},
        "none of them belongs to a version",
    ),
    (
        GOOD | {"ssl__client__auth": "required", "ssl__truststore__certificates": Password("x")},
        "ssl.truststore.certificates: there is no certificate",
    ),
    (
        GOOD | {"ssl__client__auth": "required", "ssl__truststore__location": "/no/such"},
        "ssl.truststore.location: cannot read /no/such",
    ),
]


@pytest.mark.parametrize(("given", "said"), MISTAKES)
def test_a_mistake_is_one_line_without_a_secret(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        server_context(values(**given))
    assert said in caught.value.message
    assert "\n" not in caught.value.message and SECRET not in str(caught.value)
    assert "PRIVATE KEY" not in str(caught.value)


@pytest.mark.parametrize("kind", [*OF_KEYTOOL, "JCEKS"])
def test_a_store_that_cannot_be_opened_is_said_so(tmp_path: Path, kind: str) -> None:
    content = OF_KEYTOOL.get(kind, b"\xce\xce\xce\xce" + bytes(40))
    location = file(tmp_path / "keys", content)
    with pytest.raises(InvalidConfig) as caught:
        server_context(values(ssl__keystore__location=location, ssl__keystore__password=Password(SECRET)))
    wanted = "keytool -importkeystore" if kind == "JCEKS" else "cannot open"
    assert wanted in caught.value.message and SECRET not in str(caught.value)
    with pytest.raises(InvalidConfig, match=r"ssl\.keystore\.password is not set"):
        server_context(values(ssl__keystore__location=location))


def test_any_damage_of_a_java_store_is_an_error(tmp_path: Path) -> None:
    whole = keytool_stores.JKS
    for end in range(0, len(whole), 7):
        for content in (whole[:end], whole[:end] + bytes([whole[end] ^ 0xFF]) + whole[end + 1 :]):
            location = file(tmp_path / "keys", content)
            with pytest.raises(InvalidConfig):
                read_key_store(values(ssl__keystore__location=location, ssl__keystore__password=Password("secret1")))


def test_a_java_store_that_lies_about_lengths_is_an_error(tmp_path: Path) -> None:
    """Without its password only the structure is checked, and that of a trust store is read so."""
    whole = keytool_stores.JKS_TRUST
    refused = 0
    for at in range(4, 120):
        location = file(tmp_path / "trust", whole[:at] + b"\xff\xff\xff\xff" + whole[at + 4 :])
        try:
            client_context(values(ssl__truststore__location=location))
        except InvalidConfig:
            refused += 1
    assert refused > 20


CORPORATE = Authority.create("CN=Corporate CA,O=x")
OTHER_CA = Authority.create("CN=Other CA")


@pytest.mark.parametrize(
    ("signers", "trusts"),
    [
        ([(CORPORATE, None)], []),  # as OpenSSL writes a chain
        ([(CORPORATE, "corporate")], []),  # ... with -caname
        ([(CORPORATE, "CN=Corporate CA,O=x")], []),  # as keytool writes a chain
        ([(CORPORATE, "CN=Corporate CA,O=x"), (CORPORATE, "caroot")], [CORPORATE]),  # ... and the authority imported
        ([(CORPORATE, None), (OTHER_CA, "other")], [OTHER_CA]),
    ],
)
def test_a_key_store_as_trust_store_does_not_trust_who_signed_the_key(
    tmp_path: Path, signers: list[tuple[Authority, str | None]], trusts: list[Authority]
) -> None:
    """As in Java: the owner of one certificate does not let in all that its authority has signed."""
    node = CORPORATE.issue("CN=node")
    store = pkcs12.serialize_key_and_certificates(
        b"node",
        node.key,
        node.certificate,
        [pkcs12.PKCS12Certificate(ca.certificate, name and name.encode()) for ca, name in signers],  # type: ignore[arg-type]
        BestAvailableEncryption(SECRET.encode()),
    )
    trust = values(
        ssl__truststore__location=file(tmp_path / "trust", store), ssl__truststore__password=Password(SECRET)
    )
    expected = {node.certificate, *(ca.certificate for ca in trusts)}
    assert set(read_trust_store(trust) or ()) == {each.public_bytes(Encoding.DER) for each in expected}


def test_what_stands_in_a_trust_store_is_trusted_whoever_signed_it() -> None:
    """As in Java: a single client's certificate may be trusted alone."""
    client = trusting(ssl__truststore__certificates=NODE.certificate_pem.split("-----END CERTIFICATE-----")[0] + END)
    assert mismatch(server_context(values(**GOOD)), client) is None
    other = AUTHORITY.issue("CN=other")
    keys = {
        "ssl__keystore__key": Password(other.key_pem()),
        "ssl__keystore__certificate__chain": Password(other.certificate_pem),
    }
    problem = mismatch(server_context(values(**keys)), client)
    assert problem is not None and "its certificate is not accepted" in problem


END = "-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("suites", "version", "cipher"),
    [
        ([], "TLSv1.3", None),
        (["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"], "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        (["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"], "TLSv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        (["TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"], "TLSv1.2", "ECDHE-ECDSA-AES128-SHA256"),
        (["TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"], "TLSv1.2", "ECDHE-ECDSA-AES256-SHA"),
        (["ECDHE-ECDSA-AES128-GCM-SHA256"], "TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suites_have_javas_names_or_openssls(suites: list[str], version: str, cipher: str | None) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context(values(**GOOD, ssl__cipher__suites=suites)).wrap_bio(to_server, to_client, server_side=True)
    client = trusting(ssl__cipher__suites=suites).wrap_bio(to_client, to_server)
    for side in (client, server, client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
    assert client.version() == version
    agreed = client.cipher()
    assert agreed is not None and cipher in (None, agreed[0])


def test_versions_that_are_not_enabled_are_not_agreed_on() -> None:
    server = server_context(values(**GOOD, ssl__enabled__protocols=["TLSv1.3"]))
    assert mismatch(server, trusting(ssl__enabled__protocols=["TLSv1", "TLSv1.2"])) is not None
    assert mismatch(server, trusting()) is None


def test_who_connects_to_others_must_trust_itself() -> None:
    load(values(**GOOD, ssl__truststore__certificates=AUTHORITY.certificate_pem), serves=True, connects=True)
    other = Authority.create().certificate_pem
    with pytest.raises(InvalidConfig, match=r"connect to a server with them: .*ssl\.truststore\.location must"):
        load(values(**GOOD, ssl__truststore__certificates=other), serves=True, connects=True)
    load(values(**GOOD, ssl__truststore__certificates=other), serves=True, connects=False)


@pytest.mark.parametrize(
    "piece",
    [
        "-",
        " ",
        "-BEGIN ",
        "-BEGIN A-\n",
        "-END A-",
        "-BEGIN A- ",
        "-BEGIN A-\n-END B-",
        "-----BEGIN A-----\n" + 30 * "- ",
    ],
)
@pytest.mark.parametrize("begin", ["", "-BEGIN ", "-BEGIN A ", "-BEGIN A-\n"])
def test_no_text_takes_long_to_be_refused(begin: str, piece: str) -> None:
    """Time for twice the text is about twice as much, so a megabyte takes less than anyone waits."""
    text = begin + piece * (1_000_000 // len(piece))
    started = time.thread_time()
    with pytest.raises(InvalidConfig, match="there is no certificate"):
        read_trust_store(values(ssl__truststore__certificates=Password(text)))
    assert time.thread_time() - started < 2


def test_a_file_that_is_empty_or_too_large_is_no_store(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as hole:
        hole.truncate(MAX_STORE_BYTES + 1)
    for path, said in ((large, "too large"), (Path(file(tmp_path / "empty", "")), "empty")):
        with pytest.raises(InvalidConfig, match=f"is no key store: it is {said}"):
            read_trust_store(values(ssl__truststore__location=str(path)))


def test_text_around_and_damage_between_blocks_are_passed_over() -> None:
    certificate = AUTHORITY.certificate_pem
    text = (
        "subject=x - y\n-----BEGIN CERTIFICATE-----\nwithout an end\n"
        + certificate
        + "-----END CERTIFICATE-----\n-----BEGIN NOISE-----\nAAAA\n-----END OTHER-----\n"
        + certificate.replace(" CERTIFICATE", "  X509 CERTIFICATE ").replace("-----", "--")
    )
    found = read_trust_store(values(ssl__truststore__certificates=Password(text)))
    assert found == (AUTHORITY.certificate.public_bytes(Encoding.DER),) * 2
    with pytest.raises(InvalidConfig, match="too large"):
        read_trust_store(values(ssl__truststore__certificates=Password(" " * (MAX_STORE_BYTES + 1))))


def test_without_files_in_memory_the_key_is_in_one_that_is_gone_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    made: list[str] = []
    named = tempfile.NamedTemporaryFile

    def remember(*args: Any, **kwargs: Any) -> Any:
        made.append((file := named(*args, **kwargs)).name)
        assert Path(file.name).stat().st_mode & 0o077 == 0
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", remember)
    assert mismatch(server_context(values(**GOOD)), trusting()) is None
    assert made and not any(Path(name).exists() for name in made)


def test_without_cryptography_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import kbroker.security.tls

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidConfig, match=r"pip install 'kbroker\[tls\]'"):
        importlib.reload(kbroker.security.tls)


def test_a_cryptography_that_is_too_old_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    import kbroker.security.tls

    monkeypatch.setattr(importlib.metadata, "version", lambda name: "38.0.4")
    with pytest.raises(InvalidConfig, match=r"needs cryptography 45 or later \(38\.0\.4 is there\): pip install"):
        importlib.reload(kbroker.security.tls)
