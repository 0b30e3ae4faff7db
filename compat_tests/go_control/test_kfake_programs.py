"""Tests that were written for franz-go's kfake, with one changed import: kfake's own, and those of a public program.

They are Go modules that the module proxy has, fetched on first use: so they run when asked for, by ``--works-with``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN = "kbroker/compat_tests/go_control"
KFAKE = '"github.com/twmb/franz-go/pkg/kfake"'
CONTRIB = "github.com/open-telemetry/opentelemetry-collector-contrib"


@dataclass(frozen=True)
class Suite:
    """The tests of a published module."""

    name: str
    module: str
    version: str
    package: str
    """Its folder with the tests."""
    requires: tuple[str, ...] = ()
    """Other modules, with versions; where the package is no module's root, those that the tests need."""
    helpers: tuple[str, ...] = ()
    """Modules of the same version that name kfake themselves."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Tests that look into kfake's insides, or ask for what no broker of Kafka does, and why."""
    not_compiled: tuple[str, ...] = ()
    """Regular expressions of what is taken out of the files: it names what is not there."""


SUITES = [
    Suite(
        "kfake's own tests",
        "github.com/twmb/franz-go/pkg/kfake",
        "v0.0.0-20260918054303-01f206a7e32c",
        "kafka_tests",
        requires=("github.com/twmb/franz-go@v1.22.3", "github.com/twmb/franz-go/pkg/kadm@v1.20.0"),
        left_out={
            "TestGroupMaxSize848": "joins without a member id, which Kafka answers with INVALID_REQUEST",
            "TestFenceBeforeProducerCommit": "Kafka ends the open transaction first: CONCURRENT_TRANSACTIONS meanwhile",
            "TestDescribeProducersAfterCommit": "Kafka tells of a producer after its transaction, too",
        },
        not_compiled=(r"func Test848FencedEpochRecovery\(.*?\n}\n", r"\t\"github.com/twmb/franz-go/pkg/kerr\"\n"),
    ),
    Suite(
        "OpenTelemetry's Kafka exporter",
        f"{CONTRIB}/exporter/kafkaexporter",
        "v0.165.1",
        "...",
        helpers=(f"{CONTRIB}/internal/kafka",),
    ),
]


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_with_one_changed_import(suite: Suite, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--works-with"):
        pytest.skip("the modules are fetched on first use, so this runs when asked for: --works-with")
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    folder = fetched(suite.module, suite.version, tmp_path / "tests")
    replaced = {OWN: Path(__file__).parent}
    for index, module in enumerate(suite.helpers):
        replaced[module] = fetched(module, suite.version, tmp_path / f"helper{index}")
        with_own_import(replaced[module], ())
    own = folder / suite.package if suite.requires else folder
    if suite.requires:
        run(own, "go", "mod", "init", "suite")
    with_own_import(own, suite.not_compiled)
    edits = [f"-replace={module}={path}" for module, path in replaced.items()]
    run(own, "go", "mod", "edit", *edits, f"-require={OWN}@v0.0.0")
    for module in suite.requires:
        run(own, "go", "get", module)
    skipped = "|".join(suite.left_out) or "^$"
    package = "." if suite.requires else f"./{suite.package}"
    done = run(
        own, "go", "test", "-mod=mod", "-count=1", "-parallel=2", "-timeout=30m", "-v", f"-skip={skipped}", package
    )
    assert done.count("--- PASS") > 3, done


def fetched(module: str, version: str, home: Path) -> Path:
    """A copy of a module's files, without what its ``go.mod`` replaces by folders beside it."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{module}@{version}"],
        cwd=ROOT,
        env=os.environ | {"GO111MODULE": "on", "GOWORK": "off"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    told = json.loads(done.stdout)
    if "Dir" not in told:
        pytest.skip(f"{module} cannot be had: {told.get('Error', done.stderr)}")
    shutil.copytree(told["Dir"], home)
    for path in (home, *home.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    definition = home / "go.mod"
    definition.write_text(re.sub(r"^replace .* => \.\./.*\n", "", definition.read_text(), flags=re.MULTILINE))
    return home


def with_own_import(folder: Path, not_compiled: tuple[str, ...]) -> None:
    """Have the files of a folder import this module in kfake's place."""
    for path in folder.rglob("*.go"):
        text = path.read_text()
        if KFAKE not in text:
            continue
        text = text.replace(KFAKE, f'kfake "{OWN}"')
        if any(re.search(pattern, text, re.DOTALL) for pattern in not_compiled[:1]):
            for pattern in not_compiled:
                text = re.sub(pattern, "", text, flags=re.DOTALL)
        path.write_text(text)


def run(folder: Path, *words: str) -> str:
    """Returns what a command prints, which ends well."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KBROKER_COMMAND": f"{sys.executable} -m kbroker"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, f"{words}\n{done.stdout[-8000:]}{done.stderr[-2000:]}"
    return done.stdout
