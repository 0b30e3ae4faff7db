"""``kafka-cluster cluster-id``: the id of the cluster."""

from __future__ import annotations

from typing import Final

from kbroker.tools.cli.kafka_tools.options import OF_ALL, Options

OPTIONS: Final = OF_ALL

COMMANDS: Final = ("cluster-id",)


def run(options: Options) -> int:
    """Print the id."""
    with options.cluster() as client:
        client.refresh(())
        print(f"Cluster ID: {client.cluster_id}")
    return 0
