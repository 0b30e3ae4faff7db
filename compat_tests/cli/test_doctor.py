"""``kbroker doctor`` on the broker under test: it has an answer to each question, and finds what is planted."""

from __future__ import annotations

from pathlib import Path

from kbroker.tools.doctor.checklist import all_checks
from tests.cli_command import Run

MISTAKES = {
    "unclean-election": ("unclean.leader.election.enable", "true"),
    "retention": ("retention.ms", "5000"),
    "message-sizes": ("max.message.bytes", "200000000"),
    "min-isr": ("min.insync.replicas", "9"),
}


def test_every_question_has_an_answer(kb: Run) -> None:
    found = kb("doctor", "--json", "--look-again", "0", code=None).json
    of_connections = {name for name, check in all_checks().items() if check.subject in ("connections", "clients")}
    never = of_connections | {"controller-quorum", "version-mixture", "features-behind", "clocks", "disk-failed"}
    assert [each for each in found["findings"] if each["check"] in never] == []
    assert found["checks"] == list(all_checks())


def test_planted_mistakes_are_found(kb: Run) -> None:
    for check, (name, value) in MISTAKES.items():
        kb("topic", "create", f"doctor-{check}", "-p", "1", "-c", f"{name}={value}")
    found = kb("doctor", "--json", "--look-again", "0", code=1).json
    about = {
        (each["check"], topic) for each in found["findings"] for topic in MISTAKES if f"doctor-{topic}" in each["text"]
    }
    assert about == {(check, check) for check in MISTAKES}
    kb("topic", "delete", *(f"doctor-{check}" for check in MISTAKES), "--yes")


def test_a_bundle_is_packed(kb: Run, tmp_path: Path) -> None:
    files = kb("bundle", str(tmp_path / "b.tar.gz"), "--json", "--look-again", "0").json["files"]
    assert {"facts.json", "configs.json", "doctor.txt", "versions.json"} <= files.keys()
