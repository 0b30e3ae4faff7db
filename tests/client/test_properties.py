"""Client properties: what counts, what has no effect, what is refused, and that secrets stay secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.client.errors import ClientError
from kbroker.client.properties import ClientProperties
from kbroker.client.security import security_of

LINE = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="s3cr3t";'


def test_values_are_typed_and_have_kafka_s_defaults() -> None:
    given = ClientProperties({"ssl.enabled.protocols": "TLSv1.3, TLSv1.2", "ssl.key.password": " s3cr3t "})
    assert given["ssl.enabled.protocols"] == ["TLSv1.3", "TLSv1.2"]
    assert given["ssl.key.password"].value == "s3cr3t" and "ssl.key.password" in given
    assert given["security.protocol"] == "PLAINTEXT" and "security.protocol" not in given
    assert given["ssl.truststore.location"] is None and given["ssl.endpoint.identification.algorithm"] == "https"
    assert "s3cr3t" not in f"{given!r} {given}"


def test_names_without_effect_are_known_for_a_warning() -> None:
    given = ClientProperties({"acks": "all", "ssl.trustore.location": "x", "client.id": "me"})
    assert given.without_effect == ("acks", "ssl.trustore.location")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"security.protocol": "TLS"}, r"Invalid value TLS for configuration security.protocol.*SASL_SSL"),
        ({"ssl.engine.factory.class": "Mine"}, "ssl.engine.factory.class is not supported by this client"),
        ({"sasl.login.callback.handler.class": "Mine"}, "sasl.login.callback.handler.class is not supported"),
    ],
)
def test_what_cannot_be_followed_is_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ClientError, match=f"^client properties: {problem}"):
        ClientProperties(given)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "SASL_PLAINTEXT needs sasl.jaas.config, and sasl.mechanism unless it is GSSAPI"),
        ({"sasl.mechanism": "PLAIN"}, "SASL_PLAINTEXT needs sasl.jaas.config"),
        (
            {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": LINE},
            "GSSAPI needs com.sun.security.auth.module.Krb5LoginModule",
        ),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": LINE}, "OAUTHBEARER needs .*OAuthBearerLoginModule"),
        ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": LINE}, "SCRAM-SHA-256 needs .*ScramLoginModule"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": LINE.rstrip(";")}, "semicolon"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "s3cr3t"}, "login module"),
    ],
)
def test_sasl_that_cannot_work_is_told_before_anybody_is_asked(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ClientError, match=f"^client properties: .*{problem}") as error:
        security_of(ClientProperties({"security.protocol": "SASL_PLAINTEXT", **given}))
    assert "s3cr3t" not in str(error.value)


def test_a_store_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    given = ClientProperties({"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "none.pem")}, "f")
    with pytest.raises(ClientError, match=r"^f: ssl.truststore.location.*none.pem") as error:
        security_of(given)
    assert "\n" not in str(error.value)


def test_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=a:1\nsecurity.protocol=PLAINTEXT\n")
    given = ClientProperties.read(path)
    assert given["bootstrap.servers"] == "a:1" and given.source == str(path) and security_of(given) is None
    with pytest.raises(ClientError, match=r"missing\.properties"):
        ClientProperties.read(tmp_path / "missing.properties")
