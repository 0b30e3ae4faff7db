"""Tells whose a directory is: the commands that start nodes refuse what belongs to another of them.

``kbroker start``, and whatever starts a development node as it does, has its log directory in the directory itself.
``kbroker up``, and whatever starts a cluster as it does, has one for each node in it: ``node-1`` and so on, each with
``node-1.properties`` beside it; ``security`` if it is secure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

from kbroker.errors import FatalError
from kbroker.log.checkpoint_files import META_PROPERTIES, CorruptCheckpoint, read_meta_properties
from kbroker.log.disk import OsDisk
from kbroker.log.log_dir import LOCK_FILE

SECURITY: Final = "security"
"""The directory of a secure cluster that has its certificates and users."""
PASSWORDS: Final = "passwords.properties"
"""The file in it that has the users."""

CONTAINER_CLUSTER_ID: Final = "5L6g3nShT-eMCtK--X86sw"
"""The cluster id of Apache Kafka's image, and of kbroker's, when CLUSTER_ID is not set."""

_NODE: Final = re.compile(r"node-[0-9]+")

Path = str | os.PathLike[str]


def is_cluster(directory: Path, *, secure: bool) -> bool:
    """Whether a directory has a cluster of ``kbroker up`` of that kind, or at least its users."""
    if os.path.isfile(os.path.join(directory, SECURITY, PASSWORDS)):
        return secure
    try:
        names = os.listdir(directory)
    except OSError:
        return False
    return not secure and any(_is_node_of_cluster(os.path.join(directory, name)) for name in names)


def _is_formatted(log_dir: Path) -> bool:
    return os.path.isfile(os.path.join(log_dir, META_PROPERTIES))


def _is_node_of_cluster(log_dir: Path) -> bool:
    is_named = _NODE.fullmatch(os.path.basename(log_dir)) is not None
    return is_named and _is_formatted(log_dir) and os.path.isfile(f"{os.fspath(log_dir)}.properties")


def owner_of(directory: Path) -> str | None:
    """The command that a directory belongs to; None if it is none of these."""
    path = os.path.abspath(directory)
    if _is_node_of_cluster(path):
        path = os.path.dirname(path)
    elif _is_formatted(path):
        try:
            found = read_meta_properties(OsDisk(), path)
        except (CorruptCheckpoint, OSError):
            found = None
        is_container = found is not None and found.cluster_id == CONTAINER_CLUSTER_ID
        return "kbroker container" if is_container else f"kbroker start --data-dir {_shown(path)}"
    for secure in (True, False):
        if is_cluster(path, secure=secure):
            return f"kbroker up{' --secure' * secure} --data {_shown(path)}"
    return None


def _shown(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def refuse(directory: Path, owner: str | None) -> FatalError:
    """The error of a command that is given the directory of another."""
    return FatalError(f"{directory} belongs to {owner}: take that command, or another directory")


def check_for_node(log_dirs: Iterable[Path]) -> None:
    """:class:`FatalError` if a development node is not to have its logs in the place of a cluster or a container."""
    for log_dir in log_dirs:
        owner = owner_of(log_dir)
        if owner is not None and not owner.startswith("kbroker start"):
            raise refuse(log_dir, owner)


def check_for_cluster(data: Path, nodes: Iterable[Path], *, secure: bool) -> None:
    """:class:`FatalError` if a cluster is not to have its ``nodes`` there, or they run already.

    Beside a cluster that is there already a node of ``kbroker start`` does no harm: neither touches the other's.
    """
    if not is_cluster(data, secure=secure) and (owner := owner_of(data)) is not None:
        raise refuse(data, owner)
    for node in nodes:
        if _is_formatted(node) and not _is_node_of_cluster(node):
            raise refuse(node, owner_of(node))
        lock = os.path.join(node, LOCK_FILE)
        if os.path.exists(lock):
            try:
                OsDisk().lock(lock).release()
            except BlockingIOError:
                raise FatalError(f"{node} is in use: its node runs") from None
            except OSError:
                pass  # the node says why it cannot be opened
