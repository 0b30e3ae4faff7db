"""``kafka-consumer-groups``: the groups of consumers of either type, and their offsets."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, FatalError
from kbroker.tools.cli.kafka_tools.options import OF_ALL, Kind, Options, UsageError

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.client.groups import GroupDescription
    from kbroker.tools.cli.group import Lag

OPTIONS: Final = {
    **OF_ALL,
    **dict.fromkeys(("list", "describe", "all-groups", "offsets"), Kind.FLAG),
    "group": Kind.REPEATED,
}

CONSUMER_PROTOCOLS: Final = ("consumer", "")
"""Of classic groups: another protocol is e.g. Connect's; a group that only has offsets names none."""

HEAD: Final = (
    "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
)  # fmt: skip
_WIDTHS: Final = (15, 15, 10, 15, 15, 15, 15, 15, 0)
"""The least that a column takes; only some grow with what is in them."""
_GROWS: Final = (0, 1, 6, 7)


def run(options: Options) -> int:
    """Print the names, or the offsets of some groups or of all.

    What fails is told on standard output, and the exit code is 0, as of Kafka's tool: scripts ask for a group that is
    not there yet.
    """
    action = options.only_one_of("list", "describe")
    options.only_with("describe", "group", "all-groups", "offsets")
    if action == "describe" and ("group" in options) == ("all-groups" in options):
        raise UsageError("--describe goes with --group or with --all-groups")
    options.required("bootstrap-server")
    try:
        with options.cluster() as client:
            if action == "list":
                for name in _names(client):
                    print(name)
            else:
                _describe(client, _names(client) if "all-groups" in options else options.values("group"))
    except FatalError as error:
        print(f"\nError: Executing consumer group command failed due to {error}")
    return 0


def _describe(client: Client, names: Iterable[str]) -> None:
    from kbroker.client import ResponseError
    from kbroker.client.groups import describe_group

    try:
        groups = [describe_group(client, name) for name in sorted(set(names))]
    except ResponseError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND or not error.message:
            raise
        raise FatalError(f"org.apache.kafka.common.errors.GroupIdNotFoundException: {error.message}") from None
    for group in groups:
        if group.protocol_type not in CONSUMER_PROTOCOLS:
            text = f"GroupId {group.group_id} is not a consumer group ({group.protocol_type})."
            raise FatalError(f"java.lang.IllegalArgumentException: {text}")
    for group in groups:
        _print_offsets(client, group)


def _names(client: Client) -> list[str]:
    """The groups of consumers of either type."""
    from kbroker.client.groups import list_groups

    return [
        group.group_id
        for group in list_groups(client)
        if group.type in ("Classic", "Consumer") and group.protocol_type in CONSUMER_PROTOCOLS
    ]


def _print_offsets(client: Client, group: GroupDescription) -> None:
    from kbroker.tools.cli.group import lags

    found = lags(client, group)
    if group.state == "Empty":
        print(f"\nConsumer group '{group.group_id}' has no active members.", file=sys.stderr)
    elif group.state != "Stable":
        print(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", file=sys.stderr)
    if not found:
        return
    # First the members with the most partitions, at last the partitions of nobody.
    ranks = {member.member_id: -len(member.assignment) for member in group.members}
    found.sort(key=lambda lag: 1 if lag.member is None else ranks[lag.member.member_id])
    rows = [HEAD, *(_row(group.group_id, lag) for lag in found)]
    widths = list(_WIDTHS)
    for column in _GROWS:
        widths[column] = max(widths[column], *(len(row[column]) for row in rows))
    for row in rows:
        print("\n" + " ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)), end="")
    print()


def _row(group: str, lag: Lag) -> tuple[str, ...]:
    member = lag.member
    whose = ("-", "-", "-") if member is None else (member.member_id, member.host, member.client_id)
    numbers = ("-" if number is None else str(number) for number in (lag.current, lag.end, lag.lag))
    return group, lag.partition.topic, str(lag.partition.partition), *numbers, *whose
