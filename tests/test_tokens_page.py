"""docs/security/tokens.md: its blocks are run, against a node started as it says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from kbroker.tools.cli.cluster_plan import free_ports
from tests.page_node import ENVIRONMENT, FUNCTION, page, started_node

_, BLOCKS = page("security/tokens.md")
USERS = ("broker", "alice", "bob")


def test_the_page_leads_to_a_token_that_works(tmp_path: Path) -> None:
    ports = dict(zip(("9092", "9093"), map(str, free_ports(2)), strict=True))

    def with_ports(text: str) -> str:
        return re.sub("909[23]", lambda match: ports[match[0]], text)

    assert [language for language, _ in BLOCKS] == ["properties", "properties", "sh", "text", "sh", "text"]
    (tmp_path / "server.properties").write_text(with_ports(BLOCKS[0][1]))
    for user in ("alice", "bob"):
        (tmp_path / f"{user}.properties").write_text(with_ports(BLOCKS[1][1]).replace("alice", user))

    def run(script: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", FUNCTION + script], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    users = " ".join(f"--add-scram 'SCRAM-SHA-512=[name={user},password={user}-secret]'" for user in USERS)
    run(f'kbroker format -c server.properties -t "$(kbroker random-uuid)" {users}')
    with started_node(tmp_path, ENVIRONMENT) as log:
        admin = with_ports(BLOCKS[1][1]).replace("alice", "broker")
        (tmp_path / "admin.properties").write_text(admin)
        run("kbroker acl add --allow User:alice --operation all --topic orders --command-config admin.properties")
        told = run(BLOCKS[2][1])
        assert "logs in as User:alice" in told and "two pizzas" in told and "User:bob" in told
        login = (tmp_path / "token.properties").read_text()
        form = re.sub(r'(username|password)="[^"]*"', r'\1="X"', BLOCKS[3][1]).strip()
        assert form in re.sub(r'(username|password)="[^"]*"', r'\1="X"', login)
        secret = re.search(r'password="([^"]*)"', login)
        assert secret is not None and secret[1] not in told
        assert "expires at" in run(BLOCKS[4][1])
    told = log.read_text()
    assert "-secret" not in told and secret[1] not in told
