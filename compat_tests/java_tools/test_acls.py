"""kafka-acls with an authorizer on both brokers: every subcommand, and every option of convenience."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from compat_tests.brokers import ApacheBroker, Broker, KbrokerBroker
from compat_tests.clients import skip_without
from compat_tests.java_tools import feature
from compat_tests.java_tools.comparison import Comparison, Side
from compat_tests.java_tools.driver import ToolDriver

TOOL = "kafka-acls"
AUTHORIZER = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS;User:admin",
)
ALLOW_R = ("--allow-principal", "User:r")


@pytest.fixture(scope="module")
def sides(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Both brokers, like the package's fixture, with an authorizer.

    It skips a broker of ``--bootstrap``, whose rules are not known.
    """
    skip_without("java")
    if request.config.getoption("--bootstrap"):
        pytest.skip("needs a broker with an authorizer of its own")
    with contextlib.ExitStack() as stack:

        def side(name: str, broker: Broker) -> Side:
            stack.callback(broker.stop)
            tools = ToolDriver(broker.bootstrap)
            stack.callback(tools.close)
            return Side(broker, tools, tmp_path_factory.mktemp(name))

        theirs = side("apache", ApacheBroker(*AUTHORIZER))
        is_judge = request.config.getoption("--broker") == "apache"
        yield side("ours", ApacheBroker(*AUTHORIZER) if is_judge else KbrokerBroker(*AUTHORIZER)), theirs


CHANGE_ALONE = (
    (r"(?s)Current ACLs for .*", ""),
    (r"only supports operations \[.*\]", "only supports operations [...]"),
)
"""After a change the tool lists ACLs, too, when the broker may not have heard of it. Operations are in no order."""


class Acls:
    """The tool's subcommands. Its lists are in no order, since the brokers' answers are not."""

    def __init__(self, compare: Comparison) -> None:
        self._compare = compare

    def add(self, *options: str, exit: int = 0) -> None:
        """Add ACLs."""
        self._compare.server(TOOL, "--add", *options, exit=exit, ordered=False, aside=CHANGE_ALONE)

    def remove(self, *options: str, exit: int = 0) -> None:
        """Remove ACLs without being asked."""
        self._compare.server(TOOL, "--remove", "--force", *options, exit=exit, ordered=False, aside=CHANGE_ALONE)

    def list(self, *options: str, exit: int = 0) -> None:
        """List ACLs."""
        self._compare.server(TOOL, "--list", *options, exit=exit, ordered=False)

    def listed(self, pattern: str, *options: str) -> None:
        """The same, once the broker has heard of the last change."""
        self._compare.server_until(pattern, TOOL, "--list", *options, ordered=False)


@pytest.fixture
def acls(compare: Comparison) -> Acls:
    """kafka-acls on both brokers."""
    return Acls(compare)


@feature("kafka-acls")
def test_resources_and_patterns(acls: Acls) -> None:
    for option, name in (
        ("--topic", "one"),
        ("--group", "one"),
        ("--transactional-id", "one"),
        ("--delegation-token", "one"),
        ("--user-principal", "User:one"),
    ):
        acls.add(option, name, "--allow-principal", "User:a")
    acls.add("--cluster", "--allow-principal", "User:a", "--operation", "Alter")
    acls.add("--topic", "o", "--resource-pattern-type", "prefixed", "--deny-principal", "User:b")
    acls.add("--topic", "*", "--allow-principal", "User:c", "--operation", "Describe")
    acls.add("--topic", "one", "--topic", "two", "--allow-principal", "User:a", "--allow-principal", "User:d:e")
    acls.listed("User:d:e")
    for options in (
        ("--topic", "one"),
        ("--topic", "one", "--resource-pattern-type", "match"),
        ("--topic", "one", "--resource-pattern-type", "any"),
        ("--topic", "o", "--resource-pattern-type", "prefixed"),
        ("--topic", "*"),
        ("--topic", "*", "--resource-pattern-type", "match"),
        ("--group", "*"),
        ("--cluster",),
        ("--principal", "User:a"),
        ("--principal", "User:a", "--principal", "User:c", "--topic", "one", "--resource-pattern-type", "match"),
        ("--principal", "User:nobody"),
        ("--user-principal", "User:one"),
    ):
        acls.list(*options)
    acls.remove("--topic", "one", "--allow-principal", "User:a")
    acls.listed("(?s)^((?!User:a, host=[*], operation=ALL, permissionType=ALLOW.*topic).)*$", "--topic", "one")
    acls.remove("--topic", "*", "--resource-pattern-type", "match")
    for option in ("--group", "--transactional-id", "--delegation-token"):
        acls.remove(option, "one")
    acls.remove("--user-principal", "User:one")
    acls.remove("--cluster")
    acls.listed("(?s)^((?!CLUSTER).)*$")


@feature("kafka-acls: operations, hosts and convenience")
def test_operations_hosts_and_convenience(acls: Acls) -> None:
    acls.add("--producer", "--topic", "made", "--allow-principal", "User:p")
    acls.add("--producer", "--idempotent", "--topic", "made", "--allow-principal", "User:p")
    acls.add("--producer", "--topic", "made", "--transactional-id", "t", "--allow-principal", "User:p")
    acls.add("--consumer", "--topic", "made", "--group", "g", "--allow-principal", "User:q")
    acls.add("--consumer", "--topic", "ma", "--group", "*", "--resource-pattern-type", "prefixed", *ALLOW_R)
    for operation in (
        "Read",
        "write",
        "CREATE",
        "Delete",
        "Alter",
        "Describe",
        "DescribeConfigs",
        "AlterConfigs",
        "All",
    ):
        acls.add("--topic", "ops", "--operation", operation, "--allow-principal", "User:o")
    for operation in ("ClusterAction", "IdempotentWrite", "AlterConfigs", "Create", "Describe"):
        acls.add("--cluster", "--operation", operation, "--allow-principal", "User:o")
    for operation in ("CreateTokens", "DescribeTokens"):
        acls.add("--user-principal", "User:x", "--operation", operation, "--allow-principal", "User:o")
    acls.add("--transactional-id", "t", "--operation", "TwoPhaseCommit", "--allow-principal", "User:o")
    acls.add(
        *("--topic", "hosts", "--allow-principal", "User:h", "--allow-host", "10.0.0.1", "--allow-host", "::1"),
        *("--deny-principal", "User:h", "--deny-host", "example.org", "--operation", "Read"),
    )
    acls.add("--topic", "hosts", "--allow-principal", "User:*", "--operation", "Read")
    acls.listed("example.org")
    acls.list("--topic", "ops")
    acls.list("--topic", "hosts")
    # The same again: no error, and nothing twice.
    acls.add("--topic", "hosts", "--allow-principal", "User:*", "--operation", "Read")
    acls.list("--topic", "hosts")
    acls.remove("--producer", "--topic", "made", "--allow-principal", "User:p")
    acls.remove("--consumer", "--topic", "made", "--group", "g", "--allow-principal", "User:q")
    acls.listed("(?s)^((?!User:q).)*$")
    acls.remove("--topic", "hosts", "--operation", "Read", "--allow-principal", "User:h", "--allow-host", "::1")
    acls.listed("(?s)^((?!::1).)*$", "--topic", "hosts")
    acls.remove("--topic", "none")


@feature("kafka-acls: what is refused")
def test_what_is_refused(acls: Acls, compare: Comparison) -> None:
    acls.add("--topic", "t", "--allow-principal", "nobody", exit=1)
    acls.add("--topic", "t", "--allow-principal", "User:a", "--operation", "Sometimes", exit=1)
    acls.add("--topic", "t", "--allow-principal", "User:a", "--resource-pattern-type", "match", exit=1)
    acls.add("--topic", "t", "--allow-principal", "User:a", "--resource-pattern-type", "any", exit=1)
    acls.add("--cluster", "--allow-principal", "User:a", "--resource-pattern-type", "prefixed", exit=1)
    acls.add("--topic", "", "--allow-principal", "User:a", exit=1)
    acls.add("--topic", "t", exit=1)
    acls.add("--consumer", "--topic", "t", "--group", "g", "--deny-principal", "User:a", exit=1)
    acls.add("--producer", "--consumer", "--topic", "t", "--allow-principal", "User:a", exit=1)
    acls.add("--allow-principal", "User:a", exit=1)
    acls.add("--group", "g", "--operation", "Write", "--allow-principal", "User:a", exit=1)
    acls.list("--topic", "t", "--resource-pattern-type", "sometimes", exit=1)
    acls.remove(exit=1)
    compare.run(TOOL, "--bootstrap-controller", "{controllers}", "--list", ordered=False)
    compare.run(
        *(TOOL, "--bootstrap-controller", "{controllers}", "--add", "--topic", "by-controller"),
        *("--allow-principal", "User:a"),
        aside=CHANGE_ALONE,
    )
    acls.listed("by-controller")
