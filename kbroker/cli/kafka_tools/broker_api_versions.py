"""``kafka-broker-api-versions``: the APIs and versions of every broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.cli.kafka_tools.options import OF_ALL, Options

if TYPE_CHECKING:
    from kbroker.wire.messages.api_versions import ApiVersion

OPTIONS: Final = OF_ALL


def run(options: Options) -> int:
    """Print a block for each broker, in the order of their ids."""
    from kbroker.client.nodes import api_versions

    with options.cluster() as client:
        for node_id in client.all_nodes():
            broker = client.brokers[node_id]
            served = sorted(api_versions(client, node_id).api_keys, key=lambda entry: entry.api_key)
            rack = "null" if broker.rack is None else broker.rack
            print(f"{broker.host}:{broker.port} (id: {node_id} rack: {rack} isFenced: false) -> (")
            print(",\n".join(f"\t{_text(entry)}" for entry in served))
            print(")")
    return 0


def _text(entry: ApiVersion) -> str:
    """An API's name and versions, and the latest that a client of Apache Kafka 4.4.0 uses with it."""
    from kbroker.wire.registry import API_KEYS

    lowest, highest = entry.min_version, entry.max_version
    versions = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
    api = API_KEYS.get(entry.api_key)
    if api is None:
        return f"UNKNOWN({entry.api_key}): {versions}"
    known = api.valid_versions
    usable = f"usable: {min(known.highest, highest)}"
    if known.highest < lowest:
        usable = "unusable: node too new"
    elif highest < known.lowest:
        usable = "unusable: node too old"
    return f"{api.name}({entry.api_key}): {versions} [{usable}]"
