"""docs/security/oauth.md: its blocks are run, against a node started as it says."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kbroker.client.properties import ClientProperties
from kbroker.config import BrokerConfig, read_properties_file
from kbroker.node.security.security import NodeSecurity
from kbroker.runtime.env import RealEnv
from kbroker.security.sasl.client import client_mechanism
from kbroker.security.sasl.oauthbearer.messages import parse_initial_response
from kbroker.testing.token_provider import TokenProvider
from kbroker.tools.cli.cluster_plan import free_ports
from tests.page_node import ENVIRONMENT, FUNCTION, page, started_node
from tests.secret_forms import tokens_in

_, BLOCKS = page("security/oauth.md")


def test_the_page_leads_to_a_node_that_takes_tokens(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    ports = dict(zip(("9092", "9093", "9094"), map(str, free_ports(3)), strict=True))
    texts = [re.sub("909[234]", lambda match: ports[match[0]], text) for _, text in BLOCKS]
    languages = [language for language, _ in BLOCKS]
    assert languages == ["properties", "python", "sh", "python", "properties", "sh", "properties", "properties"]
    (tmp_path / "server.properties").write_text(texts[0])
    (tmp_path / "alice.properties").write_text(texts[4])
    made, start = texts[2].splitlines()
    assert start == "kbroker start -c server.properties"
    provider = subprocess.Popen([sys.executable, "-c", texts[1]], env=ENVIRONMENT)
    try:
        subprocess.run(["bash", "-ec", FUNCTION + made], cwd=tmp_path, env=ENVIRONMENT, check=True)
        _await_port(int(ports["9094"]), provider)
        with started_node(tmp_path, ENVIRONMENT) as path:
            subprocess.run([sys.executable, "-c", texts[3]], cwd=tmp_path, env=ENVIRONMENT, check=True)
            script = FUNCTION + texts[5]
            done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE)
            assert done.returncode == 0 and b"greetings" in done.stdout
    finally:
        provider.kill()
        provider.wait()
    log = path.read_text()
    assert "-secret" not in log and not tokens_in(log)


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            pass
    raise AssertionError("the provider has ended")


def test_the_lines_for_assertions_can_be_followed(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "alice.pem").write_bytes(pem)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    (tmp_path / "client.properties").write_text(
        BLOCKS[6][1].replace("/etc/kafka", str(tmp_path)) + "sasl.oauthbearer.assertion.algorithm=ES256\n"
    )
    properties = read_properties_file(tmp_path / "client.properties")
    with TokenProvider(public_keys={"alice": public}) as provider:
        at = {name: text.replace("http://127.0.0.1:9094", provider.issuer) for name, text in properties.items()}
        line = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        client = client_mechanism("OAUTHBEARER", line, ClientProperties(at)).make("localhost")
        assert parse_initial_response(client.first()).token.count(".") == 2
        assert provider.requests == ["/token"]


def test_the_lines_for_unsecured_tokens_can_be_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = [
        line
        for line in BLOCKS[0][1].splitlines()
        if ("sasl.oauthbearer." not in line and "name.clients.oauth" not in line)
    ]
    text = "\n".join([*kept, "sasl.mechanism.controller.protocol=PLAIN", BLOCKS[-1][1]])
    text = text.replace("CONTROLLER:SASL_PLAINTEXT", "CONTROLLER:PLAINTEXT")
    (tmp_path / "server.properties").write_text(text)
    NodeSecurity(BrokerConfig.from_properties(read_properties_file(tmp_path / "server.properties")), RealEnv())
    assert "takes OAUTHBEARER tokens without a signature" in caplog.text
