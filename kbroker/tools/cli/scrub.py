"""``kbroker scrub``: verify log directories now, those of the nodes of a cluster, or of a node that is down.

A running node verifies its logs itself, at its own pace (``log.scrub.bytes.per.second``): the command has it
begin, and waits for the end. A directory is read here (``verify_log``).
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from kbroker.errors import FatalError
from kbroker.tools.cli import verify_log
from kbroker.tools.cli.common import add_cluster_arguments, cluster, complain, not_negative
from kbroker.tools.cli.output import plain, print_json, print_table, size, timestamp
from kbroker.tools.cli.parser import UsageError, add_repeated
from kbroker.tools.cli.progress import progress

if TYPE_CHECKING:
    from kbroker.tools.diagnosis.facts import DamagedReplica
    from kbroker.wire.messages.log_dirs import Scrub

DETAILS = """A DIR is a log dir or the directory of one partition, of a node that is down. Without any, the nodes of the
cluster verify their logs, each at its own pace; damage heals from other replicas. The exit code
is 1 if something is damaged, or offsets are known to be missing from a log."""

LOOK_SECONDS = 0.5


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``scrub``."""
    verify_log.add_arguments(parser)
    add_repeated(parser, "--broker", metavar="ID", type=not_negative, help="only this broker")
    parser.add_argument("--status", action="store_true", help="begin nothing, show how far the nodes have come")
    add_cluster_arguments(parser, json=False)


def run(arguments: argparse.Namespace) -> int:
    """Scrub directories, or nodes; 1 if something is damaged."""
    if arguments.directories:
        if arguments.broker or arguments.status or arguments.bootstrap_server:
            raise UsageError("a DIR is read here: --broker, --status and -b are for the nodes of a cluster")
        return verify_log.run(arguments)
    if arguments.records or arguments.notes:
        raise UsageError("--records and --notes are for a DIR")
    found, missing = _ask(arguments)
    silent = sorted({broker for (broker, _), told in found.items() if told is None})
    for broker in silent:
        complain(f"broker {broker} does not scrub: log.scrub.bytes.per.second is 0, or it is not of kbroker or starts")
    _show({key: told for key, told in found.items() if told is not None}, missing, as_json=arguments.json)
    for each in missing.values() if not arguments.json else ():
        for one in each:
            place = f"offsets {one.start} to {one.end - 1} of {one.partition}"
            print(f"broker {one.broker}: {place} are missing: {one.reason}")
    bad = any(missing.values()) or any(told.found for told in found.values() if told is not None)
    return 1 if silent or bad else 0


def _ask(
    arguments: argparse.Namespace,
) -> tuple[dict[tuple[int, str], Scrub | None], dict[tuple[int, str], list[DamagedReplica]]]:
    """Returns how far the nodes are, and what is known to be missing from their logs; unless only that is asked for,
    the nodes begin, and all have ended."""
    from kbroker.client.nodes import describe_log_dirs, scrub
    from kbroker.tools.diagnosis.facts import damaged_replicas

    with cluster(arguments) as client:
        found = scrub(client, arguments.broker, begin=not arguments.status)
        if arguments.broker and not found:
            raise FatalError("these brokers have no log directory that works")
        before, shown_bytes = found, 0
        total = sum(told.total_bytes for told in found.values() if told is not None)
        with progress("scrubbed", total=total or None, shown=size) as shown:
            while not arguments.status and any(
                told is not None and (old := before.get(key)) is not None and told.ended_ms == old.ended_ms
                for key, told in found.items()
            ):
                time.sleep(LOOK_SECONDS)
                found = scrub(client, arguments.broker, begin=False)
                done = sum(told.done_bytes for told in found.values() if told is not None)
                shown.add(done - shown_bytes)
                shown_bytes = done
        missing = {
            (broker, each.log_dir): damaged_replicas(broker, each)
            for broker, described in describe_log_dirs(client, arguments.broker).items()
            for each in described.results
        }
    return found, missing


def _show(
    found: dict[tuple[int, str], Scrub], missing: dict[tuple[int, str], list[DamagedReplica]], *, as_json: bool
) -> None:
    if as_json:
        print_json(
            [
                {
                    "broker": broker,
                    "log_dir": path,
                    "done_bytes": told.done_bytes,
                    "total_bytes": told.total_bytes,
                    "damaged": told.found,
                    "missing": [
                        {
                            "partition": str(each.partition),
                            "start_offset": each.start,
                            "end_offset": each.end,
                            "reason": each.reason,
                        }
                        for each in missing.get((broker, path), ())
                    ],
                    "began_ms": told.began_ms,
                    "ended_ms": told.ended_ms,
                    "bytes_per_second": told.bytes_per_second,
                }
                for (broker, path), told in found.items()
            ]
        )
        return
    print_table(
        ["broker", "directory", "read", "of", "damaged", "missing", "ended"],
        [
            [
                plain(broker),
                path,
                size(told.done_bytes),
                size(told.total_bytes),
                told.found,
                len(missing.get((broker, path), ())),
                timestamp(told.ended_ms) if told.ended_ms else None,
            ]
            for (broker, path), told in found.items()
        ],
        numbers=("broker", "read", "of", "damaged", "missing"),
    )
