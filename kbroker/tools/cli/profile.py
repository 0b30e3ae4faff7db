"""``kbroker profile``: names for clusters, so that ``--profile prod`` stands for addresses and a file of properties."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from kbroker.errors import FatalError
from kbroker.tools.cli.common import add_yes, complain, confirm
from kbroker.tools.cli.output import print_json, print_table
from kbroker.tools.cli.parser import Action, UsageError
from kbroker.tools.cli.profiles import PROFILE_VARIABLE, Profile, Profiles, is_name, read_profiles, write_profiles


def _json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")


def _document(profiles: Profiles, profile: Profile) -> dict[str, object]:
    return {
        "name": profile.name,
        "bootstrap": profile.bootstrap or None,
        "command_config": None if profile.command_config is None else str(profile.command_config),
        "protected": profile.protected,
        "used": profile.name == profiles.used,
    }


def _list(arguments: argparse.Namespace) -> int:
    profiles = read_profiles()
    documents = [_document(profiles, profile) for profile in profiles.known.values()]
    if arguments.json:
        print_json(documents)
    elif not documents:
        complain(f"there is no profile in {profiles.path}: kbroker profile set NAME -b HOST:PORT makes one")
    else:
        print_table(
            ["name", "bootstrap", "command-config", "protected", "used"],
            [
                [each["name"], each["bootstrap"], each["command_config"], each["protected"], each["used"]]
                for each in documents
            ],
        )
    return 0


def _name_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the profile")


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the profile (default: the one in use)")
    _json_argument(parser)


def _show(arguments: argparse.Namespace) -> int:
    profiles = read_profiles()
    name = arguments.name or os.environ.get(PROFILE_VARIABLE) or profiles.used
    if name is None:
        raise FatalError("no profile is in use: give its NAME, or kbroker profile use NAME")
    document = _document(profiles, profiles.find(name))
    if arguments.json:
        print_json(document)
    else:
        rows = [[key.replace("_", "-"), value] for key, value in document.items()][1:]
        print_table(["profile", name], rows)
    return 0


def _set_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    parser.add_argument("-b", "--bootstrap-server", metavar="HOST:PORT", help="its brokers, separated by commas")
    parser.add_argument(
        "--command-config", type=Path, metavar="FILE", help="Kafka's client properties; passwords stay in that file"
    )
    protected = parser.add_mutually_exclusive_group()
    protected.add_argument("--protected", action="store_true", help="ask before each command that changes something")
    protected.add_argument("--no-protected", action="store_true", help="do not ask any more")
    parser.add_argument("--use", action="store_true", help="use it wherever no other cluster is named")


def _set(arguments: argparse.Namespace) -> int:
    from kbroker.client.cluster import parse_bootstrap

    name = arguments.name
    if not is_name(name):
        raise UsageError(f"{name!r} cannot be a name: letters, digits, dots, dashes and underscores")
    profiles = read_profiles()
    profile = profiles.known.get(name, Profile(name))
    if arguments.bootstrap_server is not None:
        try:
            parse_bootstrap(arguments.bootstrap_server)
        except ValueError as error:
            raise UsageError(f"--bootstrap-server: {error}") from None
        profile = replace(profile, bootstrap=arguments.bootstrap_server)
    if arguments.command_config is not None:
        config = arguments.command_config.expanduser().absolute()
        if not config.is_file():
            raise FatalError(f"there is no file {config}")
        _warn_of_secrets(config)
        profile = replace(profile, command_config=config)
    if arguments.protected or arguments.no_protected:
        profile = replace(profile, protected=arguments.protected)
    if not profile.bootstrap and profile.command_config is None:
        raise UsageError("give where the cluster is: -b HOST:PORT, or --command-config with bootstrap.servers")
    used = name if arguments.use else profiles.used
    write_profiles(replace(profiles, known={**profiles.known, name: profile}, used=used))
    print(f"profile {name} is set{' and in use' if used == name else ''}, in {profiles.path}")
    return 0


def _warn_of_secrets(path: Path) -> None:
    """Tell of a file with secrets in clear that others may read: the profile only names it."""
    from kbroker.config import read_properties_file
    from kbroker.config.secret_names import sounds_secret

    try:
        secrets = [
            name for name, value in read_properties_file(path).items() if sounds_secret(name) and "${" not in value
        ]
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        raise FatalError(f"cannot read {path}: {error.strerror}") from None
    if secrets and mode & 0o077:
        complain(f"{path} has {', '.join(secrets)} in clear, and others may read it ({mode:o}): chmod 600 {path}")


def _use_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the profile")
    parser.add_argument("--none", action="store_true", help="use no profile any more")


def _use(arguments: argparse.Namespace) -> int:
    if (arguments.name is None) == (not arguments.none):
        raise UsageError("give a NAME, or --none")
    profiles = read_profiles()
    if arguments.name is not None:
        profiles.find(arguments.name)
    write_profiles(replace(profiles, used=arguments.name))
    print("no profile is in use" if arguments.name is None else f"profile {arguments.name} is in use")
    return 0


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    add_yes(parser)


def _delete(arguments: argparse.Namespace) -> int:
    profiles = read_profiles()
    profile = profiles.find(arguments.name)
    if profile.protected and not confirm(f"Profile {profile.name} is protected. Delete it?", arguments.yes):
        return 1
    known = {name: each for name, each in profiles.known.items() if name != profile.name}
    write_profiles(replace(profiles, known=known, used=None if profiles.used == profile.name else profiles.used))
    print(f"profile {profile.name} is deleted")
    return 0


_DETAILS = """\
Each command that talks to a cluster takes --profile NAME in place of -b and --command-config; $KBROKER_PROFILE
names one for a shell, and kbroker profile use NAME one for wherever no cluster is named. A profile holds no
password: it names a file of Kafka's client properties, which should be readable by its owner alone.

On the cluster of a protected profile every command that changes something asks first, or wants --yes. Who
gives its address by -b is not asked."""

ACTIONS = {
    "list": Action(
        "list the profiles",
        _json_argument,
        _list,
        "They are in kbroker/profiles.toml below $XDG_CONFIG_HOME, which is ~/.config by default.",
    ),
    "show": Action("show one profile, or the one in use", _show_arguments, _show),
    "set": Action("make a profile, or change one", _set_arguments, _set, _DETAILS),
    "use": Action("use a profile wherever no cluster is named", _use_arguments, _use),
    "delete": Action("delete a profile", _delete_arguments, _delete),
}
