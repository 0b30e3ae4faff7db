"""docs/security/sasl.md: its blocks are run, against a node started as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, read_properties_file
from kbroker.node.security.security import NodeSecurity
from kbroker.runtime.env import RealEnv
from kbroker.tools.cli.cluster_plan import free_ports
from tests.page_node import ENVIRONMENT, FUNCTION, page, started_node

_, BLOCKS = page("security/sasl.md")


def test_the_page_leads_to_a_node_that_clients_log_in_to(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    ports = dict(zip(("9092", "9093"), map(str, free_ports(2)), strict=True))

    def with_ports(text: str) -> str:
        return re.sub("909[23]", lambda match: ports[match[0]], text)

    languages = [language for language, _ in BLOCKS]
    assert languages == ["properties", "sh", "python", "python", "text", "properties"]
    (tmp_path / "server.properties").write_text(with_ports(BLOCKS[0][1]))
    *_, start = BLOCKS[1][1].splitlines()
    assert start == "kbroker start -c server.properties"
    script = FUNCTION + BLOCKS[1][1].removesuffix(f"{start}\n")
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=ENVIRONMENT, check=True)
    with started_node(tmp_path, ENVIRONMENT) as log:
        for language, text in BLOCKS[2:4]:
            assert language == "python"
            subprocess.run([sys.executable, "-c", with_ports(text)], cwd=tmp_path, env=ENVIRONMENT, check=True)
    assert "-secret" not in log.read_text()


def test_the_lines_for_plain_can_be_followed(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    kept = [line for line in BLOCKS[0][1].splitlines() if "sasl" not in line]
    assert len(BLOCKS[0][1].splitlines()) - len(kept) == 5
    file.write_text("\n".join(kept) + f"\n{BLOCKS[5][1]}")
    config = BrokerConfig.from_properties(read_properties_file(file))
    security = NodeSecurity(config, RealEnv())  # refuses a mechanism for which the node has no name
    assert security.to_brokers is not None
    assert config.security("CLIENTS")["sasl.enabled.mechanisms"] == ["PLAIN"]
