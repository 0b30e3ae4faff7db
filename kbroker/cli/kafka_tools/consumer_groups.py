"""``kafka-consumer-groups --list``: the groups of consumers, of either type."""

from __future__ import annotations

from typing import Final

from kbroker.cli.kafka_tools.options import OF_ALL, Kind, Options, UsageError

OPTIONS: Final = {**OF_ALL, "list": Kind.FLAG}


def run(options: Options) -> int:
    """Print the names."""
    from kbroker.client.groups import list_groups

    if "list" not in options:
        raise UsageError("only --list is served in kbroker's image; kbroker group describe shows a group")
    with options.cluster() as client:
        for group in list_groups(client):
            # Classic groups of other protocols are Connect's; a group that only has offsets names none.
            if group.type in ("Classic", "Consumer") and group.protocol_type in ("consumer", ""):
                print(group.group_id)
    return 0
