"""A Spark session for the tests of this folder; they are skipped where PySpark is not installed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the `spark` extra is not installed")

_numbers = itertools.count(1)
_BROKERS = ("broker", "busy_broker", "world")
"""The fixtures that are a broker under test."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With `--broker both`, whatever uses a broker under test is two tests, [kbroker] and [apache]."""
    if metafunc.config.getoption("--broker") == "both" and not metafunc.config.getoption("--bootstrap"):
        for name in _BROKERS:
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, ["kbroker", "apache"], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "spark":
            item.add_marker("spark")


@pytest.fixture(scope="session", autouse=True)
def _delta_on_the_class_path() -> None:
    """Delta's jars for whichever session comes first: this process has one JVM, which takes no jar later."""
    from kbroker.testing.spark import DELTA, connector_jars

    jars = ":".join(map(str, connector_jars(jars=DELTA)))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {jars} pyspark-shell"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A local session that knows `format("kafka")`."""
    from kbroker.testing.spark import spark_session

    session = spark_session("compatibility")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def new_module_name() -> Callable[[], str]:
    """Names like those of ``new_name``, for topics of a whole module."""
    return lambda: f"spark-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def new_name() -> Callable[[], str]:
    """Names of topics that no other test and no earlier run on the same broker has used."""
    return lambda: f"spark-{os.getpid()}-{next(_numbers)}"
