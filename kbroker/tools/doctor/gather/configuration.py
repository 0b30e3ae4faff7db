"""A node's configuration and its directories are looked at, as ``kbroker start`` would, without changing anything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kbroker.config import BrokerConfig, Listener, read_properties_file, with_provided
from kbroker.config.config_key import InvalidConfig
from kbroker.config.provided import Provided
from kbroker.config.secret_names import is_secret_property
from kbroker.errors import FatalError
from kbroker.tools.cli.exposure import Exposure
from kbroker.tools.diagnosis.facts import DamagedReplica
from kbroker.tools.doctor.facts import CertificateFacts, ConfigurationFacts, DirectoryFacts, ListenerConfig
from kbroker.tools.doctor.gather.listeners import certificate_facts, resolve, tls_is_possible

_TLS: Final = ("SSL", "SASL_SSL")


def node_properties(path: Path | None, overrides: Mapping[str, str], data_dir: str | None) -> dict[str, str]:
    """The properties of a node: of a file, or of the development node, and what goes over them.

    :class:`FatalError` if they cannot be read.
    """
    from kbroker.tools.cli.start import development_properties, with_controller_listener

    if path is None:
        return with_controller_listener(development_properties(data_dir or "kbroker-data") | dict(overrides))
    return with_provided(read_properties_file(path) | dict(overrides))


def configuration_facts(path: Path | None, overrides: Mapping[str, str], data_dir: str | None) -> ConfigurationFacts:
    """The facts of a configuration; what is wrong with it is in ``problem``."""
    source = "the development node" if path is None else str(path)
    try:
        properties = node_properties(path, overrides, data_dir)
    except FatalError as error:
        return ConfigurationFacts(source, problem=str(error))
    values = shown(properties)
    try:
        config = BrokerConfig.from_properties(properties)
    except FatalError as error:
        return ConfigurationFacts(source, problem=str(error).rstrip("."), values=values)
    reasons = sorted(set(config.absent.values()))
    return ConfigurationFacts(
        source,
        values=values,
        unknown=config.unknown,
        absent={
            reason: tuple(name for name, missing in config.absent.items() if missing == reason) for reason in reasons
        },
        node_id=config.node_id,
        listeners=_listeners(config),
        exposed=tuple(Exposure.of(config).lines()),
        voters=len(config.controller_quorum_voters),
        directories=tuple(directory_facts(each) for each in sorted({*config.log_dirs, config.metadata_log_dir})),
    )


def shown(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that are no secrets: known ones that are no passwords, and not from a provider."""
    return {
        name: value
        for name, value in sorted(properties.items())
        if not is_secret_property(name) and type(value) is not Provided
    }


def _listeners(config: BrokerConfig) -> tuple[ListenerConfig, ...]:
    """The listeners of clients and brokers, with what they advertise."""
    advertised = {each.name: each for each in config.advertised_listeners}
    found = []
    for each in config.listeners:
        if each.name in config.controller_listener_names:
            continue
        told = advertised.get(each.name, each)
        host = told.host or each.host
        try:
            resolved = resolve(host) if host else ()
        except OSError:
            resolved = ()
        certificate = _certificate(config, each) if each.security_protocol in _TLS else None
        found.append(
            ListenerConfig(each.name, each.security_protocol, each.host, each.port, host, resolved, certificate)
        )
    return tuple(found)


def _certificate(config: BrokerConfig, listener: Listener) -> CertificateFacts | None:
    """The certificate that a listener would show; None if it cannot be read, which the start says."""
    if not tls_is_possible():
        return None
    from kbroker.security.tls.stores import read_key_store

    try:
        store = read_key_store(config.security(listener.name))
    except InvalidConfig:
        return None
    return None if store is None else certificate_facts(store.chain[0])


def _segments(partition: str) -> int:
    """Segments in a partition's directory: none in one that a node which runs has deleted meanwhile."""
    try:
        return sum(name.endswith(".log") for name in os.listdir(partition))
    except FileNotFoundError:
        return 0


def directory_facts(path: str) -> DirectoryFacts:
    """The facts of a data directory: its owner, how much is in it, and what it notes as missing; no log is read."""
    from kbroker.log.checkpoint_files import CorruptCheckpoint, read_meta_properties
    from kbroker.log.disk import OsDisk
    from kbroker.log.log_dir import parse_log_dir_name
    from kbroker.log.put_back import missing_in

    if not os.path.exists(path):
        parent = Path(path).absolute().parent
        while not parent.exists():
            parent = parent.parent
        problem = "" if os.access(parent, os.W_OK | os.X_OK) else f"it does not exist, and {parent} cannot be written"
        return DirectoryFacts(path, problem)
    if not os.path.isdir(path):
        return DirectoryFacts(path, "it is not a directory")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return DirectoryFacts(path, "it cannot be read and written")
    try:
        meta = read_meta_properties(OsDisk(), path)
        partitions = [entry for entry in os.scandir(path) if entry.is_dir() and "-" in entry.name]
        segments = sum(_segments(entry.path) for entry in partitions)
        damaged = tuple(
            DamagedReplica(-1 if meta is None else meta.node_id, tp, each.start_offset, each.end_offset, each.reason)
            for partition, each in missing_in(OsDisk(), os.path.abspath(path))
            if (tp := parse_log_dir_name(os.path.basename(partition))) is not None
        )
        usage = shutil.disk_usage(path)
    except (CorruptCheckpoint, OSError) as error:
        return DirectoryFacts(path, str(error))
    return DirectoryFacts(
        path,
        formatted=meta is not None,
        cluster_id=None if meta is None else meta.cluster_id,
        node_id=None if meta is None else meta.node_id,
        partitions=len(partitions),
        segments=segments,
        total=usage.total,
        free=usage.free,
        damaged=damaged,
    )
