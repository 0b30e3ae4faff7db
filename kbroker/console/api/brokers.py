"""One broker: its configs with where each value comes from, and its log directories."""

from __future__ import annotations

from kbroker.client import Client, ClientError
from kbroker.client.configs import ResourceType, describe_configs
from kbroker.client.nodes import describe_log_dirs
from kbroker.console.api.topics import config_view
from kbroker.console.call import Call
from kbroker.records_io.json_types import Json


async def describe_broker(call: Call) -> Json:
    """A broker's log directories and configs; in place of either, why it cannot be seen."""
    broker = call.number("id", highest=2**31 - 1)
    return await call.ask(lambda client: _describe(client, broker))


def _describe(client: Client, broker: int) -> Json:
    configs: list[Json] = []
    directories: list[Json] = []
    configs_problem = directories_problem = ""
    try:
        configs = [config_view(entry) for entry in describe_configs(client, ResourceType.BROKER, str(broker))]
    except ClientError as error:
        configs_problem = str(error)
    try:
        for each in describe_log_dirs(client, [broker])[broker].results:
            sizes = [entry.partition_size for topic in each.topics for entry in topic.partitions]
            directories.append(
                {
                    "path": each.log_dir,
                    "error": each.error_code,
                    "partitions": len(sizes),
                    "size": sum(sizes),
                    "free": each.usable_bytes if each.usable_bytes >= 0 else None,
                    "volume": each.total_bytes if each.total_bytes >= 0 else None,
                }
            )
    except ClientError as error:
        directories_problem = str(error)
    return {
        "id": broker,
        "configs": configs,
        "configs_problem": configs_problem,
        "directories": directories,
        "directories_problem": directories_problem,
    }
