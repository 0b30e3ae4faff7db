"""Older releases of PySpark, each in an environment of its own under ``.cache``, made when first asked for.

    python -m compat_tests.spark.older 3.5.7      # make it (some 400 MB to download), and print its Python

The Python that makes it is one that the release runs on: 3.11 for all of these.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from compat_tests.apache_kafka import cache_dir, locked
from kbroker.testing.spark import Jar, SetupError, connector_jars
from spark_examples import ROOT

_SPARK, _KAFKA, _COMMONS = "org.apache.spark", "org.apache.kafka", "org.apache.commons"

JARS: dict[str, tuple[Jar, ...]] = {
    "4.0.0": (
        Jar(
            _SPARK,
            "spark-sql-kafka-0-10_2.13",
            "4.0.0",
            "33a3b8b04df4a2e43c9d5bf8ca5972936a1ac662f2714e014d00ef6f27468bf3",
        ),
        Jar(
            _SPARK,
            "spark-token-provider-kafka-0-10_2.13",
            "4.0.0",
            "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
        ),
        Jar(_KAFKA, "kafka-clients", "3.9.0", "15c1e137f2c2c94398e27abc4060a03b6bde10bf9fac15e8f70c02320b202f18"),
        Jar(_COMMONS, "commons-pool2", "2.12.0", "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b"),
    ),
    "3.5.7": (
        Jar(
            _SPARK,
            "spark-sql-kafka-0-10_2.12",
            "3.5.7",
            "184f8bd4a3cd22299c49090d88b894f81fd7546b4ee64879519a0d76a685dbb8",
        ),
        Jar(
            _SPARK,
            "spark-token-provider-kafka-0-10_2.12",
            "3.5.7",
            "9701914db5c6d09628b58d2d2c1ccd2c9ea28f32f83dd6cb21f98b8237531ff4",
        ),
        Jar(_KAFKA, "kafka-clients", "3.4.1", "9d0a9058c8ede79db6e54ae378ed16fe8d1bead2894635a4aa6aa0b7981668c6"),
        Jar(_COMMONS, "commons-pool2", "2.11.1", "ea0505ee7515e58b1ac0e686e4d1a5d9f7d808e251a61bc371aa0595b9963f83"),
    ),
}
"""By release of PySpark: its connector, and all that this needs beyond Spark's own jars."""


def environment(version: str, *packages: str) -> Path:
    """The Python that has PySpark of that version, and further packages. SetupError when it cannot be made."""
    # PySpark is a source archive
    return made(f"spark-{version}", ("setuptools", "wheel"), (f"pyspark=={version}", *packages))


def requirements(*extras: str) -> list[str]:
    """The requirements of kbroker with extras, from its project's file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]


def made(name: str, *steps: tuple[str, ...]) -> Path:
    """The Python of an environment with packages, step by step. SetupError when it cannot be made."""
    directory = cache_dir() / name
    python = directory / "bin" / "python"
    with locked(name):
        if (directory / ".complete").exists():
            return python
        base = shutil.which("python3.11") or sys.executable
        shutil.rmtree(directory, ignore_errors=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        for command in ([base, "-m", "venv", str(directory)], *([*pip, *packages] for packages in steps)):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SetupError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        (directory / ".complete").touch()
    return python


def jars(version: str) -> list[Path]:
    """The connector's jars for that version."""
    return connector_jars(cache_dir() / f"spark-kafka-{version}", JARS[version])


if __name__ == "__main__":
    for wanted in sys.argv[1:] or sorted(JARS):
        print(environment(wanted), *jars(wanted))
