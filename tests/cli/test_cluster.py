"""kbroker cluster, against a broker."""

from __future__ import annotations

from kbroker.testing import RunningBroker
from kbroker.wire.registry import API_KEYS
from tests.cli_command import Run


def test_describe(kb: Run, broker: RunningBroker) -> None:
    found = kb("cluster", "describe", "--json").json
    assert found["controller_id"] == 1 and found["quorum_leader_id"] == 1
    assert found["brokers"] == [{"id": 1, "host": "127.0.0.1", "port": broker.port, "rack": None, "fenced": False}]
    assert kb("cluster", "describe").rows == [
        ["cluster", f"{found['cluster_id']},", "quorum", "led", "by", "node", "1"],
        ["broker", "host", "port", "rack"],
        ["1", "127.0.0.1", str(broker.port), "-"],
    ]


def test_features(kb: Run) -> None:
    found = {entry["name"]: entry for entry in kb("cluster", "features", "--json").json["features"]}
    assert found["metadata.version"]["finalized"] >= found["metadata.version"]["min_version"]
    rows = {row[0]: row[1:] for row in kb("cluster", "features").rows[1:]}
    assert rows["kraft.version"] == ["1", "0", "1"] and rows.keys() == found.keys()


def test_quorum(kb: Run) -> None:
    found = kb("cluster", "quorum", "--json").json
    assert found["leader_id"] == 1 and found["high_watermark"] > 0
    [node] = found["nodes"]
    assert node["role"] == "leader" and node["lag"] == 0 and node["endpoints"][0].startswith("CONTROLLER://")
    assert kb("cluster", "quorum").rows[2][:2] == ["1", "leader"]


def test_api_versions(kb: Run) -> None:
    found = {entry["key"]: entry for entry in kb("cluster", "api-versions", "--broker", "1", "--json").json}
    assert found[18] == {"key": 18, "name": "ApiVersions", "min_version": 0, "max_version": 5, "usable": 5}
    assert all(entry["name"] == API_KEYS[key].name for key, entry in found.items())
    assert ["18", "ApiVersions", "0-5", "5"] in kb("cluster", "api-versions").rows
    assert "there is no broker 5" in kb("cluster", "api-versions", "--broker", "5", code=1).err


def test_log_dirs(kb: Run, broker: RunningBroker) -> None:
    kb("topic", "create", "dirs", "-p", "2")
    [row] = kb("cluster", "log-dirs", "--json").json
    assert row["broker"] == 1 and row["log_dir"] == str(broker.data_dir) and row["usable_bytes"] > 0
    assert {entry["topic"] for entry in row["partitions"]} >= {"dirs"}
    assert len(kb("cluster", "log-dirs").rows) == 2
    assert [row[2:4] for row in kb("cluster", "log-dirs", "--topic", "dirs", "--broker", "1").rows[1:]] == [
        ["dirs", "0"],
        ["dirs", "1"],
    ]
