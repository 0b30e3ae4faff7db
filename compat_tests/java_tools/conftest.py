"""Both brokers, each with a JVM for the tools; started once, when the first test asks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterator

import pytest

from compat_tests.brokers import ApacheBroker, Broker, ExternalBroker, KbrokerBroker
from compat_tests.clients import skip_without
from compat_tests.java_tools.comparison import Comparison, Side
from compat_tests.java_tools.differences import DIFFERENCES
from compat_tests.java_tools.driver import ToolDriver

QUICK_GROUPS = ("group.consumer.min.heartbeat.interval.ms=200", "group.consumer.heartbeat.interval.ms=200")
"""Members of groups learn of changes with their next heartbeat: five seconds by default."""


@pytest.fixture(scope="session")
def sides(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """The broker under test (one of its own: what all topics or groups are depends on what other tests made) and
    Apache Kafka; with ``--broker apache`` two Apache Kafkas, which shows that nothing depends on the run."""
    skip_without("java")
    with contextlib.ExitStack() as stack:

        def side(name: str, broker: Broker) -> Side:
            stack.callback(broker.stop)
            tools = ToolDriver(broker.bootstrap)
            stack.callback(tools.close)
            return Side(broker, tools, tmp_path_factory.mktemp(name))

        judge = ApacheBroker(*QUICK_GROUPS)
        theirs = side("apache", judge)
        bootstrap = request.config.getoption("--bootstrap")
        broker: Broker
        if bootstrap:
            broker = ExternalBroker(bootstrap)
        elif request.config.getoption("--broker") == "apache":
            broker = ApacheBroker(*QUICK_GROUPS)
        else:
            broker = KbrokerBroker(*_same_settings(judge))
        yield side("ours", broker), theirs


def _same_settings(judge: ApacheBroker) -> list[str]:
    """The settings of the judge's server.properties, less its own ports and directory: tools show them."""
    assert judge.data_dir is not None
    text = (judge.data_dir.parent / "server.properties").read_text()
    settings = dict(line.split("=", 1) for line in text.splitlines())
    port = judge.bootstrap.rsplit(":", 1)[1]
    controller_port = settings["controller.quorum.bootstrap.servers"].rsplit(":", 1)[1]
    del settings["log.dirs"]
    given = [f"{name}={value}" for name, value in settings.items()]
    for number, place in ((controller_port, "{controller_port}"), (port, "{port}")):
        given = [re.sub(rf":{number}\b", f":{place}", each) for each in given]  # of addresses, and of no other number
    return given


@pytest.fixture
def compare(request: pytest.FixtureRequest, sides: tuple[Side, Side]) -> Iterator[Comparison]:
    """Runs the tools on both brokers; the test fails at its end if they printed different things."""
    judged = sides[0].broker.name != "apache"
    comparison = Comparison(*sides, DIFFERENCES.get(f"{request.path.stem}::{request.node.name}", ()) if judged else ())
    yield comparison
    comparison.close()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    result = yield
    comparison = pyfuncitem.funcargs.get("compare")
    if isinstance(comparison, Comparison):
        text = comparison.finish()
        if text:
            pytest.fail(text, pytrace=False)
    return result
