"""``kbroker bundle``: packs what a report of a mistake needs into one file, without secrets."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.client.configs import ResourceType, describe_configs
from kbroker.client.errors import ClientError
from kbroker.config import read_properties_file
from kbroker.errors import FatalError
from kbroker.tools.cli.common import cluster, complain
from kbroker.tools.cli.output import print_json, print_table, size
from kbroker.tools.cli.parser import add_repeated
from kbroker.tools.cli.start import parse_overrides
from kbroker.tools.doctor.scope import add_look_arguments, looked_at, scope_of, take_look

if TYPE_CHECKING:
    from kbroker.tools.doctor.bundle import Bundle
    from kbroker.tools.doctor.facts import Facts

DETAILS: Final = """\
In it are versions, machine, configuration, the description of the cluster, what kbroker doctor says, sizes of data
files and the last lines of logs. Passwords and keys are hidden; records are not looked at. Look through it before you
send it: it has the names of topics, groups and hosts."""


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``bundle``."""
    parser.add_argument(
        "output", nargs="?", type=Path, metavar="FILE", help="the archive (default kbroker-bundle-TIME.tar.gz)"
    )
    add_repeated(
        parser,
        "--log",
        metavar="FILE|DIR",
        type=Path,
        help="a node's log, or a directory with *.log: their last 2000 lines",
    )
    add_look_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look, pack and tell what is in the file."""
    from kbroker.tools.doctor.bundle import README, Bundle, data_files, machine, versions

    output = arguments.output or Path(time.strftime("kbroker-bundle-%Y%m%d-%H%M%S.tar.gz", time.gmtime()))
    if output.exists():
        raise FatalError(f"{output} is there already")
    for path in arguments.log:
        if not path.exists():  # told before the look, which takes its time
            raise FatalError(f"cannot read {path}: No such file or directory")
    bundle = Bundle()
    _add_properties(bundle, arguments)
    facts = take_look(arguments)
    bundle.add("README.txt", README)
    bundle.add_json("versions.json", versions())
    bundle.add_json("machine.json", machine(facts))
    bundle.add_facts(facts)
    _add_findings(bundle, facts)
    _add_configs(bundle, facts, arguments)
    if facts.configuration is not None and facts.configuration.directories:
        bundle.add_json("data.json", data_files([each.path for each in facts.configuration.directories]))
    for path in arguments.log:
        bundle.add_log(path)
    bundle.write(output)
    if arguments.json:
        print_json({"bundle": str(output), "files": {name: len(content) for name, content in bundle.files.items()}})
    else:
        print(f"{output}, {size(output.stat().st_size)}:")
        print_table(["file", "size"], [[name, size(len(content))] for name, content in bundle.files.items()])
    return 0


def _add_properties(bundle: Bundle, arguments: argparse.Namespace) -> None:
    """The files with properties; first, so that their secrets are known when the rest is added."""
    if scope_of(arguments).configuration:
        from kbroker.tools.doctor.gather.configuration import node_properties

        overrides = parse_overrides(arguments.override)
        try:
            bundle.add_node_properties(node_properties(arguments.config, overrides, arguments.data_dir))
        except FatalError as error:
            complain(str(error))
    if arguments.command_config is not None:
        bundle.add_client_properties(read_properties_file(arguments.command_config))


def _add_findings(bundle: Bundle, facts: Facts) -> None:
    from kbroker.tools.doctor.checklist import all_checks
    from kbroker.tools.doctor.findings import examine
    from kbroker.tools.doctor.report import as_document, as_lines

    names = list(all_checks())
    found = examine(facts, names)
    bundle.add_json("doctor.json", as_document(found, looked_at(facts), names))
    bundle.add("doctor.txt", "".join(f"{line}\n" for line, _ in as_lines(found, looked_at(facts), names)))


def _add_configs(bundle: Bundle, facts: Facts, arguments: argparse.Namespace) -> None:
    """The configs of each broker that was reached; a broker that does not tell is left out."""
    from kbroker.config.secret_names import is_secret_property

    brokers = [] if facts.cluster is None else [each for each in facts.cluster.brokers if each.configs is not None]
    if not brokers:
        return
    configs: dict[str, dict[str, dict[str, str | None]]] = {}
    with cluster(arguments) as client:
        for broker in brokers:
            try:
                entries = describe_configs(client, ResourceType.BROKER, str(broker.id))
            except ClientError as error:
                complain(str(error))
                continue
            configs[str(broker.id)] = {
                entry.name: {"value": entry.value, "source": entry.source}
                for entry in entries
                if not entry.sensitive and not is_secret_property(entry.name)
            }
    bundle.add_json("configs.json", configs)
