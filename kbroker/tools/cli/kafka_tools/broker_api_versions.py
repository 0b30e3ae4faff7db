"""``kafka-broker-api-versions``: the APIs and versions of every broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kbroker.tools.cli.kafka_tools.options import OF_ALL, Options

if TYPE_CHECKING:
    from kbroker.wire.messages.api_versions import ApiVersion
    from kbroker.wire.registry import ApiDescription

OPTIONS: Final = OF_ALL


def run(options: Options) -> int:
    """Print a block for each broker, in the order of their ids."""
    from kbroker.client.nodes import api_versions

    with options.cluster() as client:
        for node_id in client.all_nodes():
            broker = client.brokers[node_id]
            lines = _lines(api_versions(client, node_id).api_keys)
            rack = "null" if broker.rack is None else broker.rack
            print(f"{broker.host}:{broker.port} (id: {node_id} rack: {rack} isFenced: false) -> (")
            print(",\n".join(f"\t{line}" for line in lines))
            print(")")
    return 0


def _lines(served: Iterable[ApiVersion]) -> list[str]:
    """A line for each API that the broker serves, or that Apache Kafka 4.4.0 serves to clients."""
    from kbroker.wire.registry import API_KEYS

    texts = {key: f"{api.name}({key}): UNSUPPORTED" for key, api in API_KEYS.items() if "broker" in api.listeners}
    texts |= {entry.api_key: _text(entry, API_KEYS.get(entry.api_key)) for entry in served}
    return [texts[key] for key in sorted(texts)]


def _text(entry: ApiVersion, api: ApiDescription | None) -> str:
    """An API's name and versions, and the latest that a client of Apache Kafka 4.4.0 uses with it."""
    lowest, highest = entry.min_version, entry.max_version
    versions = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
    if api is None:
        return f"UNKNOWN({entry.api_key}): {versions}"
    known = api.valid_versions
    usable = f"usable: {min(known.highest, highest)}"
    if known.highest < lowest:
        usable = "unusable: node too new"
    elif highest < known.lowest:
        usable = "unusable: node too old"
    return f"{api.name}({entry.api_key}): {versions} [{usable}]"
