"""docs/security/kerberos.md: its blocks are followed, in a realm and on a host that are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.client.properties import ClientProperties
from kbroker.config.properties_file import parse_properties
from kbroker.security.sasl.kerberos.names import Principal, ShortNamer
from kbroker.tools.cli.cluster_plan import free_ports
from tests.kdc import missing_program, running_kdc
from tests.page_node import ROOT, page, started_node

_, BLOCKS = page("security/kerberos.md")


def test_the_blocks_are_these() -> None:
    languages = [language for language, _ in BLOCKS]
    assert languages == ["text", "text", "properties", "properties", "properties", "sh", "properties"]


def test_the_rules_are_followed() -> None:
    from kbroker.config.security import SECURITY_CONFIGS

    (given,) = parse_properties(BLOCKS[6][1]).items()
    namer = ShortNamer(SECURITY_CONFIGS.parse(*given), "EXAMPLE.COM")
    principals = ("bob@PARTNER.COM", "joe/admin@EXAMPLE.COM", "kafka/broker1.example.com@EXAMPLE.COM")
    assert [namer.short_name(Principal.parse(each)) for each in principals] == ["bob-partner", "joe", "kafka"]


@pytest.mark.skipif(missing_program() is not None, reason=f"there is no KDC here: {missing_program()}")
def test_the_page_leads_to_a_node_that_clients_log_in_to(tmp_path: Path) -> None:
    pytest.importorskip("gssapi", reason="the extra kbroker[gssapi] is not installed")
    ports = dict(zip(("9092", "9093"), map(str, free_ports(2)), strict=True))
    with running_kdc(tmp_path / "kdc") as kdc:
        kdc.add("kafka/localhost", "alice")
        kdc.keytab("kafka", "kafka/localhost")
        keytab = kdc.keytab("alice", "alice")

        def here(text: str) -> str:
            text = text.replace("broker1.example.com", "localhost").replace("EXAMPLE.COM", kdc.realm)
            text = text.replace("/etc/kafka/", f"{kdc.directory}/")
            return re.sub("909[23]", lambda match: ports[match[0]], text)

        (tmp_path / "server.properties").write_text(here(BLOCKS[2][1]))
        client = tmp_path / "client.properties"
        client.write_text(here(BLOCKS[3][1]))
        assert not ClientProperties.read(client).without_effect
        environment = os.environ | kdc.environment | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "kbroker"]

        def call(*arguments: str) -> None:
            subprocess.run([*command, *arguments], cwd=tmp_path, env=environment, check=True)

        call("format", "-c", "server.properties", "-t", "q1Sh-9_ISia_zwGINzRvyQ")
        with started_node(tmp_path, environment) as log:
            create, show = here(BLOCKS[5][1]).splitlines()
            call(*create.split()[1:])
            # As the second way says: the tickets of kinit, where it puts them.
            subprocess.run(["kinit", "-k", "-t", str(keytab), "alice"], env=environment, check=True)
            lines = [line for line in client.read_text().splitlines() if "jaas" not in line]
            client.write_text("\n".join([*lines, BLOCKS[4][1]]))
            call(*show.split()[1:])
        assert "Traceback" not in log.read_text()
