"""A list of commands whose output is compared with what they print about Apache Kafka 4.4.0."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli_command import Run

EXPECTED = Path(__file__).parent / "expected" / "commands.json"

FILES = {
    "lines": "".join(f"key-{number % 10}:value {number}\n" for number in range(100)),
    "timed.jsonl": "".join(f'{{"n": {n}, "at": {1_700_000_000_000 + 1000 * n}}}\n' for n in range(20)),
    "some-without-key": "a:1\n:2\nb:3\n",
    "long": "short\n" + "x" * 3000 + "\nshort too\n",
    "offsets.csv": "same-timed,0,7\nsame-timed,1,99\n",
    "bad.csv": "same-timed,0\n",
}

SCRIPT = """\
topic create same-a same-b -p 3 -c retention.ms=-1
topic create same-a
topic create same-a --if-not-exists
topic create same-c --json --dry-run -p 2
topic create same-c -p 2 -r 5
topic create same-c -c no.such.config=1
topic create same-c -c retention.ms=soon
topic create 'not a name'
topic create ..
topic create same-c --assignment 1,7
topic create same-timed -p 2 -c retention.ms=-1
topic create same-small -p 1 -c max.message.bytes=1000
topic create same-compacted -p 1 -c cleanup.policy=compact
topic describe same-a
topic describe same-a same-nowhere --json
topic alter same-a -p 5 -c segment.ms=600000
topic alter same-a -p 2
topic alter same-a -p 5
topic alter same-nowhere -p 2
topic alter same-a -c segment.ms=-5
topic describe same-a
produce same-a lines --key-separator : -H source=file
produce same-a lines --key-separator : -z lz4 --json
produce same-timed timed.jsonl --timestamp-column at --key-column n -p 0
produce same-small long
produce same-compacted some-without-key --key-separator : -z zstd
produce same-compacted lines
consume same-compacted --json
consume same-small --value-only
consume same-timed --from @1700000015
consume same-timed --until 3 --json
consume same-timed --from -2 --format '{partition}:{offset} {timestamp} {timestamp_type} {key}={value}\\n'
consume same-a --format '{partition} {key} {value} {headers}\\n'
consume same-nowhere
topic offsets same-a same-timed
topic offsets same-timed --at 2023-11-14T22:13:35.5Z
topic offsets same-timed --at max-timestamp --json
topic offsets same-timed:7
topic truncate same-timed:0 --before-offset 5 --yes
topic truncate same-timed --before 2023-11-14T22:13:28Z --yes --json
topic offsets same-timed
consume same-timed --from 0 -n 1
group reset same-g --topic same-timed --to-earliest
group reset same-g --topic same-timed --to-earliest --execute
group describe same-g
group reset same-g --all-topics --shift-by 3 --execute
group reset same-g --all-topics --shift-by -100 --dry-run --json
group reset same-g --topic same-timed --to-offset 1000000 --dry-run
group reset same-g --topic same-timed:0 --to-datetime 2023-11-14T22:13:35.5 --execute
group reset same-g --topic same-timed --by-duration 1h --dry-run
group reset same-g --from-file offsets.csv --execute
group reset same-g --from-file bad.csv
group reset same-g --topic same-timed --topic same-a:0 --to-current --dry-run
group reset same-new --topic same-timed --shift-by 1
group describe same-g --json
group members same-g
group describe same-nobody
group members same-nobody
group delete same-nobody --yes
group delete same-g --topic same-timed:1 --yes
group describe same-g
group delete same-g --yes
group describe same-g
config set topic same-a min.insync.replicas=1 cleanup.policy+=compact
config describe topic same-a
config describe topic same-a cleanup.policy retention.ms segment.ms --json
config set topic same-a cleanup.policy=nonsense
config set topic same-a nonsense=1
config set topic same-nowhere retention.ms=1
config set topic same-a retention.ms=5 --dry-run
config unset topic same-a cleanup.policy min.insync.replicas
config describe topic same-a
config describe topic same-nowhere
config set group same-g consumer.session.timeout.ms=46000
config describe group same-g
config unset group same-g consumer.session.timeout.ms
config set group same-g nonsense=1
config set broker 1 log.retention.ms=123456789
config unset broker 1 log.retention.ms
config set broker 1 node.id=7
config describe broker 77
cluster describe
cluster quorum
cluster log-dirs --topic same-timed
cluster api-versions --broker 77
topic delete same-a same-b same-timed same-small same-compacted --yes
topic delete same-a --yes
topic delete same-a --yes --if-exists
topic list --bootstrap-server 127.0.0.1:1
"""

ASIDE = [
    (re.compile(r"Compacted topic cannot accept .*|a compacted topic takes no .*"), "NO KEY"),
    (re.compile(r'"documentation": ".*"'), '"documentation": WORDS'),
    (re.compile(r"\b[A-Za-z0-9_-]{22}\b"), "ID"),
    (re.compile(r"127\.0\.0\.1:\d{2,}"), "ADDRESS"),
    (re.compile(r"\b\d+(\.\d+)? [KMG]?i?B\b(/s)?"), "SIZE"),
    (re.compile(r'"size": \d+'), '"size": SIZE'),
    (re.compile(r"in \d+\.\d\d s \([\d,]+/s"), "in TIME (RATE"),
    (re.compile(r'"(seconds)": [\d.]+'), r'"\1": TIME'),
    (re.compile(r"20(?!23)\d\d-\d\d-\d\dT[\d:.]+Z"), "NOW"),
    (re.compile(r'"(timestamp|last_\w+_timestamp)": 17[1-9]\d{10}|"(timestamp)": 18\d{11}'), '"TIMESTAMP"'),
    (re.compile(r"^( *\d+  \S+  +)\d+( +\S+)$", re.MULTILINE), r"\1PORT\2"),
    (re.compile(r"/\S*/\S+"), "PATH"),
    (re.compile(r"(epoch|high watermark) [\d,]+"), r"\1 N"),
    (re.compile(r"(leader +)[\d,]+"), r"\1N"),
    (re.compile(r" {2,}"), "  "),
    (re.compile(r" +$", re.MULTILINE), ""),
]
"""Text that differs from run to run; spaces too, since a column is as wide as its content."""


def normalized(text: str, directory: Path) -> list[str]:
    text = text.replace(str(directory), "DIR")
    for pattern, replacement in ASIDE:
        text = pattern.sub(replacement, text)
    return text.splitlines()


def run_script(kb: Run, directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.chdir(directory)
    for name, content in FILES.items():
        (directory / name).write_text(content)
    answers = []
    for line in SCRIPT.splitlines():
        result = kb(*shlex.split(line), code=None)
        out = normalized(result.out, directory)
        answers.append(
            {
                "command": line,
                "code": result.code,
                # Which partition is read first is nobody's promise.
                "out": sorted(out) if line.startswith("consume") else out,
                "err": normalized(result.err, directory),
            }
        )
    return answers


@pytest.mark.feature("kbroker's command", "commands", "the same answers about both brokers")
def test_the_same_answers(
    kb: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    answers = run_script(kb, tmp_path, monkeypatch)
    if request.config.getoption("--record"):
        EXPECTED.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n")
    recorded = json.loads(EXPECTED.read_text())
    assert [entry["command"] for entry in answers] == [entry["command"] for entry in recorded]
    different = [
        f"{ours['command']}\n  here:   {ours}\n  Apache: {theirs}"
        for ours, theirs in zip(answers, recorded, strict=True)
        if ours != theirs
    ]
    assert not different, "\n".join(different)
