"""``kbroker recover-metadata``: a node goes on whose metadata log is damaged, from a copy or without what is lost."""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.config import BrokerConfig, read_properties_file, with_provided
from kbroker.errors import FatalError
from kbroker.tools.cli.output import print_json

if TYPE_CHECKING:
    from kbroker.log.disk import Disk
    from kbroker.node.controller.quorum import MetadataLog

_NOT_COPIED = ("quorum-state", "damage.json")
"""A voter's own; and what is said of the files of another."""


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``recover-metadata``."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-c", "--config", type=Path, metavar="FILE", help="Kafka's server.properties of the node")
    where.add_argument(
        "--data-dir", metavar="DIR", help="data directory of the development node (default ./kbroker-data)"
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="take the metadata log of this copy: a log directory of another node of the cluster, or of a backup",
    )
    parser.add_argument("--accept-loss", action="store_true", help="go on without what is lost")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Say what is lost, and mend it if told how; 1 if something is lost and stays so."""
    from kbroker.log.disk import OsDisk

    config = _config(arguments)
    disk = OsDisk()
    with _locked(disk, config.metadata_log_dir):
        if arguments.source is not None:
            with _locked(disk, str(arguments.source)) if (arguments.source / ".lock").exists() else _nothing():
                _take_copy(disk, config, arguments.source)
        files = _open(disk, config)
        try:
            log, promises = files.replicated, files.promises
            lost = None if promises.lost is None else files.loss
            if promises.is_kept_by(log.end) and arguments.source is not None:
                log.regain()  # the copy has all that this node had
                lost = None
            if arguments.accept_loss:
                if lost is not None:
                    _keep_what_is_whole(files, config.node_id)
                promises.accept(log.end)
                log.regain()
            end, unknown_vote = log.end_offset, promises.vote_lost
        finally:
            files.replicated.close()
    goes_on = arguments.accept_loss or (lost is None and not unknown_vote)
    if arguments.json:
        print_json({"end_offset": end, "lost": lost, "vote_unknown": unknown_vote, "goes_on": goes_on})
        return 0 if goes_on else 1
    if lost is not None:
        print(f"Lost: {lost}.")
    if unknown_vote:
        print("Nobody knows in which epochs this voter has voted.")
    if goes_on:
        if lost is None and not unknown_vote:
            print("Nothing is lost.")
        print(f"The metadata log goes on at offset {end}.")
        return 0
    print("Take a copy (--from DIR), or go on without what is lost (--accept-loss). Nothing is changed yet.")
    return 1


def _keep_what_is_whole(files: MetadataLog, node_id: int) -> None:
    """Put the whole batches behind the damage back at their offsets, and records without content where some are lost.

    Only where nobody else has the log: whoever has it whole would not hear that records are lost. What cannot follow
    because of those stays out, too.
    """
    from kbroker.raft_metadata.image.loader import ImageLoader
    from kbroker.types import OffsetAndEpoch
    from kbroker.wire.records.metadata import NoOpRecord

    log, loader = files.replicated, ImageLoader()
    latest = log.latest_snapshot_id
    if latest is not None:
        loader.load_snapshot(log.load_snapshot(latest).records, latest)
    for batch in log.read(latest.offset if latest is not None else 0, log.end_offset):
        loader.take(batch)
    loader.publish(OffsetAndEpoch(log.end_offset - 1, log.last_epoch))

    def fill_to(offset: int) -> None:
        while log.end_offset < offset:
            records = [NoOpRecord()] * min(offset - log.end_offset, 1000)
            level = loader.image.features.metadata_version
            log.append_records(records, log.last_epoch, timestamp_ms=loader.last_timestamp, metadata_version=level)

    found = files.set_aside
    image = loader.image
    if (
        not found
        or not image.features.metadata_version
        or (image.brokers.keys() | image.controllers.keys()) - {node_id}
    ):
        return
    for data, batch in found:
        if log.end_offset <= batch.base_offset < files.promises.end.offset:
            try:
                loader.take(batch)
                loader.publish(OffsetAndEpoch(batch.last_offset, batch.epoch))
            except Exception:  # it speaks of what is lost
                loader = ImageLoader(loader.image)
                fill_to(batch.last_offset + 1)
            else:
                fill_to(batch.base_offset)
                log.append_fetched(data, batch.epoch)
    work = log.begin_flush()
    if work is not None:
        work.run()
        work.end()


def _config(arguments: argparse.Namespace) -> BrokerConfig:
    from kbroker.tools.cli.start import development_properties, with_controller_listener

    if arguments.config is not None:
        return BrokerConfig.from_properties(with_provided(read_properties_file(arguments.config)))
    properties = development_properties(arguments.data_dir or "kbroker-data")
    return BrokerConfig.from_properties(with_controller_listener(properties))


@contextmanager
def _locked(disk: Disk, log_dir: str) -> Iterator[None]:
    """Hold the lock of a log directory: its node must not run."""
    from kbroker.log.log_dir import LOCK_FILE

    if not disk.is_dir(log_dir):
        raise FatalError(f"{log_dir} is no directory")
    try:
        lock = disk.lock(os.path.join(log_dir, LOCK_FILE))
    except BlockingIOError:
        raise FatalError(f"{log_dir} is in use: stop its node first") from None
    except OSError as error:
        raise FatalError(f"cannot lock {log_dir}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _open(disk: Disk, config: BrokerConfig) -> MetadataLog:
    from kbroker.log.checkpoint_files import node_meta_properties
    from kbroker.node.controller.quorum import MetadataLog
    from kbroker.runtime.env import RealEnv

    identity = node_meta_properties(disk, config.metadata_log_dir, config.log_dirs)
    return MetadataLog(config, RealEnv(), disk, identity, may_be_damaged=True)


def _take_copy(disk: Disk, config: BrokerConfig, source: Path) -> None:
    """Put the metadata log of a copy in the place of this node's, which is set aside."""
    from kbroker.log.checkpoint_files import node_meta_properties, read_meta_properties
    from kbroker.log.log_dir import FUTURE_SUFFIX, STRAY_SUFFIX
    from kbroker.raft_metadata.storage import METADATA_DIRECTORY

    inner = source if source.name == METADATA_DIRECTORY else source / METADATA_DIRECTORY
    if not inner.is_dir() or not any(name.endswith((".log", ".checkpoint")) for name in os.listdir(inner)):
        raise FatalError(f"{source} has no {METADATA_DIRECTORY} with a metadata log in it")
    own = node_meta_properties(disk, config.metadata_log_dir, config.log_dirs)
    theirs = read_meta_properties(disk, str(inner.parent))
    if theirs is not None and theirs.cluster_id != own.cluster_id:
        raise FatalError(f"{source} belongs to cluster {theirs.cluster_id}, not to {own.cluster_id}")
    target = os.path.join(config.metadata_log_dir, METADATA_DIRECTORY)
    mark = f"{target}.{random.SystemRandom().randbytes(16).hex()}"
    try:
        disk.make_dir(mark + FUTURE_SUFFIX)
        for name in sorted(os.listdir(inner)):
            if (inner / name).is_file() and name not in _NOT_COPIED:
                path = os.path.join(mark + FUTURE_SUFFIX, name)
                disk.write_bytes(path, (inner / name).read_bytes(), sync=True)
        state = os.path.join(target, _NOT_COPIED[0])
        if disk.exists(state):
            disk.write_bytes(os.path.join(mark + FUTURE_SUFFIX, _NOT_COPIED[0]), disk.read_bytes(state), sync=True)
        disk.sync_dir(mark + FUTURE_SUFFIX)
        if disk.is_dir(target):
            disk.rename(target, mark + STRAY_SUFFIX)
        disk.rename(mark + FUTURE_SUFFIX, target)
        disk.sync_dir(config.metadata_log_dir)
    except OSError as error:
        raise FatalError(f"cannot copy {inner}: {error.strerror or error}") from error
