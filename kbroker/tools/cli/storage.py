"""``kbroker format``, ``info`` and ``random-uuid``: what Kafka's ``kafka-storage`` does, with its options.

And ``put-back``, for what a node has set aside: directories, and bytes of logs.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.config import BrokerConfig, read_properties_file, with_provided
from kbroker.config.listeners import parse_host_port
from kbroker.errors import FatalError
from kbroker.log.checkpoint_files import CorruptCheckpoint, MetaProperties, read_meta_properties
from kbroker.log.disk import Disk, OsDisk, ReadOnlyDisk
from kbroker.log.log_dir import FUTURE_SUFFIX, LOCK_FILE, MAX_NAME, STRAY_SUFFIX, parse_marked_name
from kbroker.tools.cli.data_owners import check_for_node
from kbroker.tools.cli.parser import UsageError, add_repeated
from kbroker.types import random_uuid, uuid_from_str, uuid_to_str

if TYPE_CHECKING:
    from kbroker.raft_metadata.raft.voters import VoterSet
    from kbroker.wire.records.metadata import UserScramCredentialRecord

_META_PROPERTIES = "meta.properties"


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of one of the commands."""
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    if command == "random-uuid":
        return
    if command == "put-back":
        parser.add_argument(
            "--list", action="store_true", help="show what is set aside in log directories, and what is missing"
        )
        parser.add_argument(
            "directories",
            nargs="+",
            type=Path,
            metavar="PATH",
            help="a directory whose name ends in -stray or -future, or a file that ends in .set-aside",
        )
        return
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="Kafka's server.properties")
    if command == "info":
        return
    parser.add_argument("-t", "--cluster-id", required=True, metavar="ID", help="see kbroker random-uuid")
    parser.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="skip directories that are formatted already"
    )
    parser.add_argument(
        "-r", "--release-version", metavar="VERSION", help="begin with the features of this release, e.g. 4.4-IV2"
    )
    add_repeated(parser, "-f", "--feature", metavar="NAME=LEVEL", help="begin with this level of a feature")
    add_repeated(
        parser,
        "-S",
        "--add-scram",
        metavar="MECHANISM=[name=NAME,password=PASSWORD]",
        help="begin with this user, e.g. 'SCRAM-SHA-256=[name=alice,password=alice-secret]'",
    )
    quorum = parser.add_mutually_exclusive_group()
    quorum.add_argument(
        "-s", "--standalone", action="store_true", help="this controller is the only voter of its quorum"
    )
    quorum.add_argument(
        "-I",
        "--initial-controllers",
        metavar="ID@HOST:PORT:DIRECTORY,...",
        help="the first voters of the quorum, the same list on every node",
    )
    quorum.add_argument(
        "-N", "--no-initial-controllers", action="store_true", help="this node joins a quorum that exists"
    )


def run(arguments: argparse.Namespace) -> int:
    """Do what the command says."""
    from kbroker.tools.cli.output import print_json

    if arguments.command == "random-uuid":
        made = uuid_to_str(random_uuid(random.SystemRandom()))
        if arguments.json:
            print_json({"id": made})
        else:
            print(made)
        return 0
    if arguments.command == "put-back":
        if arguments.list:
            return _list_set_aside(arguments.directories, json=arguments.json)
        return _put_back(arguments.directories, json=arguments.json)
    config = BrokerConfig.from_properties(with_provided(read_properties_file(arguments.config)))
    if arguments.command == "info":
        return _info(config, json=arguments.json)
    formatted = _format(config, arguments)
    if arguments.json:
        print_json({"formatted": formatted})
        return 0
    for directory in formatted:
        print(f"Formatted {directory}.")
    if not formatted:
        print("All of the log directories are already formatted.")
    return 0


def _list_set_aside(directories: Sequence[Path], *, json: bool) -> int:
    """Print what is set aside in log dirs, or directories of partitions: where, why, and what is whole of it; and which
    offsets are missing."""
    from kbroker.log.put_back import missing_in, set_aside_in
    from kbroker.tools.cli.output import print_json
    from kbroker.tools.cli.verify_log import missing_text

    strays = [str(path) for each in directories for path in sorted(each.glob("*-*.*-stray"))]
    try:
        paths = [str(directory.resolve()) for directory in directories]
        found = [each for path in paths for each in set_aside_in(ReadOnlyDisk(), path)]
        missing = [each for path in paths for each in missing_in(ReadOnlyDisk(), path)]
    except OSError as error:
        raise FatalError(f"cannot read {error.filename}: {error.strerror or error}") from error
    if json:
        lacking = [{"directory": path, **damage._asdict()} for path, damage in missing]
        print_json({"directories": strays, "files": [each._asdict() for each in found], "missing": lacking})
        return 0
    for stray in strays:
        print(f"{stray}\n    a log that is not of this node any more")
    for each in found:
        print(f"{each.path}\n    {each.reason}")
        offsets = ", ".join(f"{first} to {last}" if first < last else str(first) for first, last in each.offsets[:10])
        more = ", ..." if len(each.offsets) > 10 else ""
        print(f"    {each.size} bytes; whole batches: {offsets + more or 'none'} (kbroker dump-log shows them)")
    if not strays and not found:
        print("Nothing is set aside.")
    for path, damage in missing:
        print(f"{path}\n    {missing_text(damage)}")
    return 0


def _put_back(directories: Sequence[Path], *, json: bool) -> int:
    """Give directories of the form ``t-0.<32 digits>-stray`` the name of their log again, and logs the whole batches
    of files that were set aside, with their nodes stopped."""
    from kbroker.log.file_names import SET_ASIDE_SUFFIX
    from kbroker.tools.cli.output import print_json

    disk, names = OsDisk(), {}
    for directory in directories:
        if directory.name.endswith(SET_ASIDE_SUFFIX):
            names[str(directory)] = _put_bytes_back(disk, directory.absolute())
            if not json:
                print(f"{directory}: {names[str(directory)]}.", flush=True)
            continue
        log_dir, marked = directory.absolute().parent, parse_marked_name(directory.name)
        if marked is None or marked[1] not in (STRAY_SUFFIX, FUTURE_SUFFIX) or not directory.is_dir():
            raise FatalError(
                f"{directory} is nothing that was set aside: its name does not end in -stray, -future or .set-aside"
            )
        if len(directory.name.encode()) >= MAX_NAME:
            raise FatalError(f"{directory}: the topic's name was too long to be kept; rename it to TOPIC-PARTITION")
        target = log_dir / str(marked[0])
        try:
            lock = disk.lock(str(log_dir / LOCK_FILE))
            try:
                if target.exists():
                    raise FatalError(f"{directory} is not put back: there is a {target.name} already")
                disk.rename(str(directory), str(target))
                disk.sync_dir(str(log_dir))
            finally:
                lock.release()
        except BlockingIOError:
            raise FatalError(f"{log_dir} is in use: stop its node first") from None
        except OSError as error:
            raise FatalError(f"cannot rename {directory}: {error.strerror or error}") from error
        names[str(directory)] = str(target)
        if not json:
            print(f"{directory} is {target.name} again.", flush=True)
    if json:
        print_json({"put_back": names})
    return 0


def _put_bytes_back(disk: Disk, path: Path) -> str:
    from kbroker.log.put_back import put_back

    if path.parent.name == "__cluster_metadata-0":
        raise FatalError(f"{path} is of the metadata log, which never has holes: see kbroker recover-metadata")
    log_dir = path.parent.parent
    try:
        lock = disk.lock(str(log_dir / LOCK_FILE))
        try:
            count = len(put_back(disk, str(path)))
        finally:
            lock.release()
    except BlockingIOError:
        raise FatalError(f"{log_dir} is in use: stop its node first") from None
    except OSError as error:
        raise FatalError(f"cannot put {path} back: {error.strerror or error}") from error
    return f"{count} batches are in the log again" if count else "the log has all that is whole of it"


def _format(config: BrokerConfig, arguments: argparse.Namespace) -> list[str]:
    from kbroker.raft_metadata.storage import format_log_dirs

    if not arguments.cluster_id.strip() or not arguments.cluster_id.isascii():
        raise UsageError(f"--cluster-id {arguments.cluster_id!r}: expected an id as kbroker random-uuid prints it")
    dynamic = not config.controller_quorum_voters
    chooses = arguments.standalone or arguments.initial_controllers is not None
    if not dynamic and chooses:
        raise UsageError(
            "--standalone and --initial-controllers need a dynamic quorum: take controller.quorum.voters out of the"
            " configuration and set controller.quorum.bootstrap.servers"
        )
    if dynamic and config.is_controller and not chooses and not arguments.no_initial_controllers:
        raise UsageError(
            "controller.quorum.voters is not set on this controller, so one of --standalone, --initial-controllers"
            " and --no-initial-controllers must be given"
        )
    if arguments.standalone and not config.is_controller:
        raise UsageError("--standalone is only for a node with the role controller")
    return format_log_dirs(
        OsDisk(),
        config.log_dirs,
        config.metadata_log_dir,
        node_id=config.node_id,
        cluster_id=arguments.cluster_id,
        rng=random.SystemRandom(),
        now_ms=time.time_ns() // 1_000_000,
        feature_levels=_feature_levels(arguments.feature, arguments.release_version, dynamic=dynamic),
        standalone_listeners=_controller_endpoints(config) if arguments.standalone else None,
        initial_controllers=None
        if arguments.initial_controllers is None
        else parse_initial_controllers(arguments.initial_controllers, config.controller_listener_names[0]),
        scram_records=_scram_records(arguments.add_scram),
        ignore_formatted=arguments.ignore_formatted,
    )


def _scram_records(entries: list[str]) -> list[UserScramCredentialRecord]:
    if not entries:
        return []
    from kbroker.raft_metadata.controller.scram import credential_record
    from kbroker.security.sasl.add_scram import parse_add_scram

    records = []
    for entry in entries:
        try:
            records.append(credential_record(*parse_add_scram(entry)))
        except ValueError as error:
            raise UsageError(f"--add-scram: {error}") from None
    return records


def format_if_needed(config: BrokerConfig) -> None:
    """Make a development node's directories ready, as a cluster of one, if they are not yet.

    ``FatalError`` for a directory that belongs to another command (``kbroker.tools.cli.data_owners``), and for one
    whose node has served before: formatted again it would be another node's, which waits for the one that it was.
    """
    from kbroker.raft_metadata.storage import format_log_dirs, mend_meta_properties

    directories = sorted({*config.log_dirs, config.metadata_log_dir})
    mend_meta_properties(OsDisk(), config.metadata_log_dir, config.log_dirs)
    check_for_node(directories)
    ready = [directory for directory in directories if os.path.exists(os.path.join(directory, _META_PROPERTIES))]
    metadata = os.path.join(config.metadata_log_dir, "__cluster_metadata-0")
    if len(ready) == len(directories):
        if config.is_controller and not config.controller_quorum_voters and not os.path.isdir(metadata):
            raise FatalError(
                f"{metadata} is missing, the metadata log of this node: put it back, or remove the directory to begin"
                " anew"
            )
        return
    elected = os.path.join(metadata, "quorum-state")
    if config.metadata_log_dir not in ready and os.path.exists(elected):
        raise FatalError(
            f"{os.path.join(config.metadata_log_dir, _META_PROPERTIES)} is missing, and the logs of a node are there:"
            " put the file back, or remove the directory to begin anew"
        )

    disk, rng = OsDisk(), random.SystemRandom()
    try:
        existing = read_meta_properties(disk, ready[0]) if ready else None
    except CorruptCheckpoint as error:
        raise FatalError(str(error)) from error
    format_log_dirs(
        disk,
        config.log_dirs,
        config.metadata_log_dir,
        node_id=config.node_id,
        cluster_id=uuid_to_str(random_uuid(rng)) if existing is None else existing.cluster_id,
        rng=rng,
        now_ms=time.time_ns() // 1_000_000,
        standalone_listeners=None if config.controller_quorum_voters else _controller_endpoints(config),
        ignore_formatted=True,
    )


def _controller_endpoints(config: BrokerConfig) -> list[tuple[str, str, int]]:
    return [
        (listener.name, listener.host or "localhost", listener.port)
        for listener in config.advertised_controller_listeners
    ]


def _feature_levels(features: list[str], release: str | None, *, dynamic: bool) -> dict[str, int]:
    from kbroker.raft_metadata.features import KRAFT_VERSION, METADATA_VERSION
    from kbroker.raft_metadata.storage import metadata_version_level

    levels: dict[str, int] = {}
    if release is not None:
        try:
            levels[METADATA_VERSION] = metadata_version_level(release)
        except FatalError as error:
            raise UsageError(f"--release-version: {error}") from None
    for feature in features:
        name, equals, level = feature.partition("=")
        name, level = name.strip(), level.strip()
        if not equals or not level.isascii() or not level.isdigit():
            raise UsageError(f"--feature {feature}: expected NAME=LEVEL, for example metadata.version=30")
        if name in levels:
            raise UsageError(f"--feature {feature}: {name} is given more than once, or by --release-version too")
        levels[name] = int(level)
    kraft = levels.pop(KRAFT_VERSION, None)
    if kraft is not None and kraft != int(dynamic):
        reason = "is not set" if dynamic else "is set"
        raise UsageError(f"kraft.version must be {int(dynamic)}, as controller.quorum.voters {reason}")
    return levels


def parse_initial_controllers(text: str, listener_name: str) -> VoterSet:
    """``id@host:port:directory,...`` as voters that are reached on ``listener_name``."""
    from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint, VoterNode, VoterSet

    voters: list[VoterNode] = []
    for entry in (part.strip() for part in text.split(",")):
        problem = UsageError(f"--initial-controllers: {entry!r} is not of the form id@host:port:directory")
        node_id, at, rest = entry.partition("@")
        address, colon, directory = rest.rpartition(":")
        if not at or not colon or not node_id.isascii() or not node_id.isdigit():
            raise problem
        try:
            host, port = parse_host_port("--initial-controllers", address)
            key = ReplicaKey(int(node_id), uuid_from_str(directory))
        except (ValueError, FatalError):
            raise problem from None
        voters.append(VoterNode(key, {listener_name: VoterEndpoint(host, port)}))
    if len({voter.key.id for voter in voters}) != len(voters):
        raise UsageError("--initial-controllers: a node id is given more than once")
    return VoterSet.of(voters)


def _info(config: BrokerConfig, *, json: bool = False) -> int:
    """Print what is found, as Kafka's tool does; 1 if something is wrong with the directories."""
    from kbroker.tools.cli.exposure import Exposure
    from kbroker.tools.cli.output import print_json

    directories = sorted({*config.log_dirs, config.metadata_log_dir})
    found: dict[str, MetaProperties] = {}
    present: list[str] = []
    problems: list[str] = []
    for directory in directories:
        if not os.path.isdir(directory):
            problems.append(f"{directory} {'is not a directory' if os.path.exists(directory) else 'does not exist'}")
            continue
        present.append(directory)
        try:
            properties = read_meta_properties(OsDisk(), directory)
        except CorruptCheckpoint as error:
            problems.append(str(error))
            continue
        except OSError as error:
            problems.append(f"{directory}: {error.strerror}")
            continue
        if properties is None:
            problems.append(f"{directory} is not formatted.")
        else:
            found[directory] = properties
    problems += _contradictions(found, config.node_id)
    exposed = Exposure.of(config).lines()
    if json:
        print_json(_document(present, found, problems, exposed))
        return 1 if problems else 0
    _print_list("Found log director" + ("y" if len(present) == 1 else "ies"), present)
    for directory, properties in found.items():
        directory_id = (
            "" if properties.directory_id is None else f"directory.id={uuid_to_str(properties.directory_id)}, "
        )
        print(
            f"Found metadata in {directory}: {{cluster.id={properties.cluster_id}, {directory_id}"
            f"node.id={properties.node_id}, version=1}}\n"
        )
    _print_list("Found problem" + ("" if len(problems) == 1 else "s"), problems)
    _print_list("Found open listener" + ("" if len(exposed) == 1 else "s"), exposed)
    return 1 if problems else 0


def _document(
    present: Sequence[str], found: Mapping[str, MetaProperties], problems: Sequence[str], exposed: Sequence[str]
) -> dict[str, object]:
    return {
        "directories": list(present),
        "formatted": [
            {
                "directory": directory,
                "cluster_id": properties.cluster_id,
                "directory_id": None if properties.directory_id is None else uuid_to_str(properties.directory_id),
                "node_id": properties.node_id,
            }
            for directory, properties in found.items()
        ],
        "problems": list(problems),
        "open_listeners": list(exposed),
    }


def _contradictions(found: Mapping[str, MetaProperties], node_id: int) -> list[str]:
    problems = [
        f"{directory} belongs to node {properties.node_id}, and node.id is {node_id}"
        for directory, properties in found.items()
        if properties.node_id != node_id
    ]
    clusters = {properties.cluster_id for properties in found.values()}
    if len(clusters) > 1:
        problems.append(f"the directories belong to different clusters: {', '.join(sorted(clusters))}")
    return problems


def _print_list(title: str, lines: list[str]) -> None:
    if lines:
        print(f"{title}:")
        for line in lines:
            print(f"  {line}")
        print()
