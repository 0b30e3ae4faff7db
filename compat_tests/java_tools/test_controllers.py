"""The tools that talk to the controllers' listener, with --bootstrap-controller."""

from __future__ import annotations

from compat_tests.java_tools import feature
from compat_tests.java_tools.comparison import Comparison

AT = ("--bootstrap-controller", "{controllers}")
ADDRESS = (r"127\.0\.0\.1 \d+\b", "HOST PORT")
"""An address in a column of its own."""


@feature("kafka-configs --bootstrap-controller")
def test_configs(compare: Comparison) -> None:
    def configs(*options: str, exit: int = 0) -> None:
        compare.run("kafka-configs", *AT, *options, exit=exit)

    own, every = ("--entity-type", "brokers", "--entity-name", "1"), ("--entity-type", "brokers", "--entity-default")
    for which in (own, every):
        configs("--describe", *which)
        configs("--alter", *which, "--add-config", "log.cleaner.threads=2")
        # A controller describes what it has published, a moment after it has answered.
        compare.until("log.cleaner.threads=2", "kafka-configs", *AT, "--describe", *which)
        configs("--alter", *which, "--delete-config", "log.cleaner.threads")
        compare.until("(?s)^((?!log.cleaner.threads).)*$", "kafka-configs", *AT, "--describe", *which)
    configs("--describe", "--entity-type", "brokers")
    configs(
        "--alter", "--entity-type", "brokers", "--entity-name", "9", "--add-config", "log.cleaner.threads=2", exit=1
    )
    configs("--describe", "--entity-type", "topics", exit=1)
    configs("--alter", "--entity-type", "topics", "--entity-name", "missing", "--add-config", "retention.ms=1", exit=1)


@feature("kafka-features, kafka-cluster, kafka-metadata-quorum --bootstrap-controller")
def test_cluster(compare: Comparison) -> None:
    epoch = (r"Epoch: \d+", "Epoch: N")
    compare.run("kafka-features", *AT, "upgrade", "--feature", "group.version=1", "--dry-run", aside=(epoch,))
    compare.run("kafka-features", *AT, "downgrade", "--feature", "share.version=0", "--dry-run", aside=(epoch,))
    compare.run("kafka-features", *AT, "downgrade", "--release-version", "4.1", "--dry-run", exit=1, aside=(epoch,))
    compare.run("kafka-cluster", "cluster-id", *AT)
    compare.run("kafka-cluster", "list-endpoints", *AT, aside=(ADDRESS,))
    compare.run("kafka-cluster", "unregister", *AT, "--id", "7", exit=1)
    status = ((r"(?m)^((?:High|Max)\w+:\s+)\d+", r"\1N"),)
    compare.run("kafka-metadata-quorum", *AT, "describe", "--status", aside=status)
