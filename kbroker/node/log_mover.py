"""Carries a log from one log dir to another, beside its readers and writers (AlterReplicaLogDirs, KIP-113)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from kbroker.errors import ApiError
from kbroker.log.log_move import LogMove, MoveInterrupted, SourceFailed

if TYPE_CHECKING:
    from kbroker.env import Env
    from kbroker.log.log_dir import LogDir
    from kbroker.log.partition_log import PartitionLog
    from kbroker.node.partition import Partition
    from kbroker.node.replica_manager import ReplicaManager
    from kbroker.node.replication_throttles import ReplicationThrottles

logger = logging.getLogger(__name__)

CHUNK = 256 * 1024
"""Bytes that are copied at once: about a millisecond of the event loop."""

_REFUSED = "%s cannot be moved to %s: %s"

_RETRY_SECONDS = 0.5

_LOOK_AGAIN_MS = 1000
"""When a move is throttled: the throttle may be another one, or none, after so long."""


async def move_log(manager: ReplicaManager, partition: Partition, target: LogDir) -> None:
    """Move a partition's log to ``target`` for good; ends when it is there, or the move was called off."""
    while True:
        try:
            log = partition.log
            while log.segments_held:  # by the cleaner, or by a move that was just called off
                await trio.sleep(_RETRY_SECONDS)
                log = partition.log
            move = manager.log_manager.moves.begin(log, target, now_ms=manager.env.wall_clock_ms())
        except Exception as error:
            logger.error(_REFUSED, partition.topic_partition, target.path, error)
            return
        if move is None:
            _follow(manager, partition)
            return
        try:
            await _carry(manager, move)
        except MoveInterrupted:
            if move.over:
                return
            move.abandon()
            logger.info("the move of %s to %s was interrupted", partition.topic_partition, target.path)
        except SourceFailed as error:
            move.abandon()
            manager.storage_failed(partition, error)
            return
        except OSError as error:
            move.abandon()
            manager.log_manager.mark_offline(target, error)
            manager.log_dirs_changed()
            return
        except Exception as error:
            # A damaged batch, most likely. The log stays where it is, and the node has others.
            move.abandon()
            unexpected = not isinstance(error, ApiError)
            logger.error(_REFUSED, partition.topic_partition, target.path, error, exc_info=unexpected)
            return
        except BaseException:
            move.abandon()
            raise
        else:
            _follow(manager, partition)
            manager.mark_dirty()
            manager.log_dirs_changed()  # the one that it was in may have failed at the last step
            return


def _follow(manager: ReplicaManager, partition: Partition) -> None:
    """The partition's log is another object now."""
    log: PartitionLog | None = manager.log_manager.log_of(partition.topic_partition)
    if log is not None:
        partition.replace_log(log)


async def _carry(manager: ReplicaManager, move: LogMove) -> None:
    env = manager.env
    await _catch_up(env, manager.throttles, move)
    task = move.begin_close()
    if task is not None:
        await env.run_blocking(task.run)
    # What follows is done once for the few records of the meantime.
    move.take_name(env.wall_clock_ms())
    await env.run_blocking(move.future.disk.sync_dir, move.target.path)
    await _catch_up(env, manager.throttles, move)
    move.finish(env.wall_clock_ms())


async def _catch_up(env: Env, throttles: ReplicationThrottles, move: LogMove) -> None:
    """Copy until nothing is missing at this moment, no faster than the throttle allows."""
    quota = throttles.alter_log_dirs
    while True:
        began = env.now()
        quota.record(move.copy(CHUNK, env.wall_clock_ms()), throttles.now_ms())
        if not move.lag:
            return
        # As long as the copying took, everything else may run.
        await trio.sleep(min(env.now() - began, 0.05))
        while wait_ms := quota.wait_ms(throttles.now_ms(), _LOOK_AGAIN_MS):
            await trio.sleep(wait_ms / 1000)
            move.check()
