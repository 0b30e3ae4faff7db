"""The commands on transactions: committed, aborted and open ones."""

from __future__ import annotations

import pytest

from compat_tests.api_versions import served_apis
from tests.cli_command import Run
from tests.patience import LONG, eventually

ADD_PARTITIONS_TO_TXN = 24


@pytest.mark.feature("kbroker's command", "commands", "transactions: committed, aborted and open")
def test_transactions(kb: Run, bootstrap: str) -> None:
    if ADD_PARTITIONS_TO_TXN not in served_apis(bootstrap):
        pytest.skip("the broker does not serve transactions")
    confluent_kafka = pytest.importorskip("confluent_kafka")
    kb("topic", "create", "cli-transactions")

    def producer(name: str):  # type: ignore[no-untyped-def]
        settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000}
        made = confluent_kafka.Producer({**settings, "message.timeout.ms": 300_000})
        made.init_transactions(LONG)
        made.begin_transaction()
        return made

    first, second = producer("cli-1"), producer("cli-2")
    for number in range(5):
        first.produce("cli-transactions", f"aborted {number}")
        second.produce("cli-transactions", f"committed {number}")
    first.flush()
    second.flush()
    first.abort_transaction(LONG)
    second.commit_transaction(LONG)
    first.begin_transaction()
    first.produce("cli-transactions", "committed too")
    first.commit_transaction(LONG)
    expected = [*(f"committed {number}" for number in range(5)), "committed too"]

    def committed() -> list[str]:
        return kb("consume", "cli-transactions", "--value-only").out.splitlines()

    def is_committed() -> bool:
        found = committed()
        assert found == expected[: len(found)], "what is aborted is never seen"
        return found == expected

    # A commit is answered before its markers are there.
    eventually(is_committed, "what is committed")
    everything = kb("consume", "cli-transactions", "--value-only", "--uncommitted").out.splitlines()
    assert sorted(everything) == sorted([*expected, *(f"aborted {number}" for number in range(5))])
    second.begin_transaction()
    second.produce("cli-transactions", "open")
    second.flush()
    assert committed() == expected
    assert kb("consume", "cli-transactions", "--value-only", "--uncommitted").out.splitlines()[-1] == "open"
    assert kb("topic", "offsets", "cli-transactions", "--json").json[0]["messages"] > 11
    seen = kb("top", "--once", "--json", "--interval", "1").json
    [waits] = [each for each in seen["transactions"] if each["transactional_id"] == "cli-2"]
    assert (waits["state"], waits["partitions"], waits["holds_up_records"]) == ("Ongoing", [["cli-transactions", 0]], 1)
    assert seen["problems"] == [] and seen["offline"] == 0
    searched = kb("txn", "find-hanging", "--topic", "cli-transactions", "--max-transaction-timeout", "0ms", "--json")
    assert searched.json == [], "its coordinator will end it"
    listed = kb("txn", "list", "--state", "Ongoing", "--json").json
    assert "cli-2" in {each["transactional_id"] for each in listed}
    second.abort_transaction(LONG)
