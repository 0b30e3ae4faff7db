"""Adapter for Kafka's own Java clients: a small program (Driver.java) that takes commands, compiled on first use."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from compat_tests.apache_kafka import SERVER_VERSION, cache_dir, java_command, kafka_home, locked, short_lived_options
from compat_tests.client import ALL_FEATURES
from compat_tests.client_security import Security
from compat_tests.line_driver import LineDriverClient

_SOURCE = Path(__file__).with_name("Driver.java")


CLIENT_VERSION = SERVER_VERSION
"""The release of the Java client."""


def program(source: Path, jvm_options: Sequence[str] = ()) -> list[str]:
    """The command line that runs the Java file `source` on the client's jars."""
    options = (*short_lived_options(CLIENT_VERSION), *jvm_options)
    return java_command(source.stem, jvm_options=options, class_path=[compiled(source)], version=CLIENT_VERSION)


def compiled(source: Path, version: str = CLIENT_VERSION) -> Path:
    """Directory with the classes of the Java file `source`, compiled against a release's jars if it changed."""
    digest = hashlib.sha256(version.encode() + source.read_bytes()).hexdigest()[:12]
    target = cache_dir() / "java-driver" / digest
    home = kafka_home(version)
    with locked("java-driver"):
        if not (target / f"{source.stem}.class").exists():
            # Elsewhere first: a compiler that is interrupted leaves some of the classes.
            partial = target.with_name(f"{digest}.partial")
            partial.mkdir(parents=True, exist_ok=True)
            subprocess.run(
                ["javac", "-nowarn", "-d", str(partial), "-cp", f"{home}/libs/*", str(source)],
                check=True,
                capture_output=True,
                text=True,
            )
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
    return target


class JavaClient(LineDriverClient):
    """KafkaProducer, KafkaConsumer and Admin of kafka-clients."""

    name = "java"
    version = CLIENT_VERSION
    features = ALL_FEATURES

    def __init__(self, bootstrap: str, security: Security | None = None, jvm_options: Sequence[str] = ()) -> None:
        settings = security.java_properties() if security else None
        super().__init__(program(_SOURCE, jvm_options), bootstrap, security=settings)
