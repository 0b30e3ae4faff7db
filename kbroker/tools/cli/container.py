"""``kbroker container``: the node that ``KAFKA_*`` environment variables describe, as in Apache Kafka's image."""

from __future__ import annotations

import argparse
import logging
import os
import random
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from kbroker.config import BrokerConfig, read_properties_file, with_provided
from kbroker.config.environment import (
    BITNAMI_DATA,
    cluster_id_of,
    derived_properties,
    properties_from_environment,
    secret_properties,
    without_dialect,
    without_effect,
)
from kbroker.config.properties_file import format_properties
from kbroker.errors import FatalError
from kbroker.log.checkpoint_files import CorruptCheckpoint, read_meta_properties
from kbroker.log.disk import OsDisk
from kbroker.tools.cli.config_warnings import warn_about
from kbroker.tools.cli.data_owners import CONTAINER_CLUSTER_ID, owner_of, refuse
from kbroker.tools.cli.kafka_opts import with_java_options
from kbroker.tools.cli.log_output import name_logs, set_up_logging
from kbroker.tools.cli.node_per_core import (
    add_core_arguments,
    add_tables_argument,
    check_left_cores,
    is_first,
    is_machine,
    own_properties,
    run_machine,
    tables_of,
)
from kbroker.tools.cli.start import add_overrides, parse_overrides, serve

MOUNTED_CONFIG: Final = Path("/mnt/shared/config/server.properties")
SECRETS: Final = Path("/etc/kafka/secrets")
"""Where stores and passwords are mounted."""

DEFAULTS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/tmp/kraft-combined-logs",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""A node without any configuration: one on its own, for clients of the host (port 9092 published)."""

DETAILS = f"""\
KAFKA_NUM_PARTITIONS=3 sets num.partitions: in a name, _ stands for a dot, __ for _, ___ for -.
Variables win over the properties file, which is {MOUNTED_CONFIG} unless
-c names another; it may be missing. With neither, the node is one on its own. CLUSTER_ID is the
cluster's id, the same on all nodes. The log directories are formatted if they are not yet: a
controller then needs controller.quorum.voters.

KAFKA_SSL_KEYSTORE_FILENAME and KAFKA_SSL_TRUSTSTORE_FILENAME name stores in {SECRETS}, and
KAFKA_SSL_KEYSTORE_CREDENTIALS, KAFKA_SSL_TRUSTSTORE_CREDENTIALS and KAFKA_SSL_KEY_CREDENTIALS files there
whose text is a password.

KAFKA_CFG_NUM_PARTITIONS=3 sets num.partitions, too, as in Bitnami's image, with data in {BITNAMI_DATA} unless
KAFKA_CFG_LOG_DIRS says otherwise; KAFKA_KRAFT_CLUSTER_ID is the cluster's id there. Of KAFKA_OPTS, the files count that
-Djava.security.auth.login.config and -Djava.security.krb5.conf name.

This is what the image of kbroker starts with, so that a compose file for apache/kafka works with it.
When the node serves, its log has the lines that Testcontainers waits for in Kafka's."""

log = logging.getLogger("kbroker")


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``container``."""
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="Kafka's server.properties")
    add_overrides(parser, "set a property, over file and environment")
    add_core_arguments(parser, default=os.environ.get("KBROKER_CORES") or None)
    add_tables_argument(parser, default=os.environ.get("KBROKER_TABLES") or None)
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="how much to tell on standard error",
    )
    parser.add_argument(
        "--print", action="store_true", help="print the properties as a file, passwords too, and start nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    set_up_logging(arguments.log_level)
    properties = container_properties(os.environ, arguments.config) | parse_overrides(arguments.override)
    properties = with_java_options(properties, os.environ)
    ignored = without_effect(os.environ)
    if ignored:
        log.info("environment variables for a JVM, without effect in kbroker: %s", ", ".join(ignored))
    if arguments.print:
        print(format_properties(properties, "What kbroker container makes of file and environment."), end="")
        return 0
    properties = with_provided(properties)
    if is_machine(arguments):
        return run_machine(arguments, properties, format_first=_format)
    config = BrokerConfig.from_properties(own_properties(arguments, properties))
    tables = tables_of(arguments)
    if tables is not None:
        tables.check(config)
    check_left_cores(arguments, config)
    if is_first(arguments):
        warn_about(config)
    _format(config)
    name_logs(arguments, config)
    return serve(
        config,
        until_eof=arguments.core is not None,
        tables=tables,
        on_ready=partial(_tell_ready, config) if is_first(arguments) else lambda: None,
    )


def _tell_ready(config: BrokerConfig) -> None:
    """Log what programs look for in the log of Kafka's container before they use it: Testcontainers' modules do."""
    if config.is_broker:
        log.info("broker %d serves: Transitioning from RECOVERY to RUNNING", config.node_id)
    log.info("[KafkaRaftServer nodeId=%d] Kafka Server started", config.node_id)


def container_properties(
    environment: Mapping[str, str], config: Path | None = None, secrets: Path = SECRETS
) -> dict[str, str]:
    """The properties of the file and, over them, of the environment; the defaults if there are none at all.

    References to config providers stay as they are. :class:`FatalError` if a file that a variable names cannot be read.
    """
    properties: dict[str, str] = {}
    if config is not None or MOUNTED_CONFIG.exists():
        properties = read_properties_file(config or MOUNTED_CONFIG)
    if environment.get("KAFKA_PROCESS_ROLES") == "controller" and not environment.get("KAFKA_ADVERTISED_LISTENERS"):
        environment = {name: environment[name] for name in environment if name != "KAFKA_ADVERTISED_LISTENERS"}
    environment = without_dialect(environment)
    properties |= properties_from_environment(environment) | derived_properties(environment)
    properties |= secret_properties(environment, secrets)
    return properties or dict(DEFAULTS)


def _format(config: BrokerConfig) -> None:
    cluster_id = cluster_id_of(os.environ) or CONTAINER_CLUSTER_ID

    from kbroker.raft_metadata.storage import format_log_dirs

    disk = OsDisk()
    paths = sorted({*config.log_dirs, config.metadata_log_dir})
    try:
        found = [read_meta_properties(disk, path) for path in paths]
    except (CorruptCheckpoint, OSError) as error:
        raise FatalError(str(error)) from error
    for path, properties in zip(paths, found, strict=True):
        owner = owner_of(path)
        if properties is None and owner is not None:
            raise refuse(path, owner)
        if properties is not None and properties.cluster_id != cluster_id:
            raise FatalError(
                f"CLUSTER_ID is {cluster_id}, and {path} is of the cluster {properties.cluster_id}:"
                f" it belongs to {owner}"
            )
    if None not in found:
        return
    if config.is_controller and not config.controller_quorum_voters:
        # Each node would make itself a cluster of one.
        raise FatalError(
            "controller.quorum.voters (KAFKA_CONTROLLER_QUORUM_VOTERS) is not set and the log directories are not"
            " formatted: set it, or format them with kbroker format"
        )
    format_log_dirs(
        disk,
        config.log_dirs,
        config.metadata_log_dir,
        node_id=config.node_id,
        cluster_id=cluster_id,
        rng=random.SystemRandom(),
        now_ms=time.time_ns() // 1_000_000,
        ignore_formatted=True,
    )
