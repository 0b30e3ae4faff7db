"""``kbroker completion``: a script that lets a shell complete commands, options, and names in a cluster.

The script asks this command for names of topics, groups and profiles. That is quick and silent, or gives nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.tools.cli.parser import UsageError
from kbroker.tools.cli.user_directories import PROFILES, user_directory

if TYPE_CHECKING:
    from kbroker.client import Client

SHELLS: Final = ("bash", "zsh", "fish")

SECONDS: Final = 0.3
"""The time that names may take, with the start of this process; a cluster gets what is left."""

_LEAST_SECONDS: Final = 0.1

_NAMES: Final = 2000

_HARMLESS: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.:/@%+=,-]*")
"""Names that no shell takes for more than a name: anybody may have chosen those of groups."""

DETAILS = """\
For the shell of the moment, and in ~/.bashrc or ~/.zshrc for each new one:

  source <(kbroker completion bash)
  source <(kbroker completion zsh)
  kbroker completion fish | source          (in ~/.config/fish/config.fish)

Names of topics and groups are asked of the cluster of -b, --profile or the environment. If it has not answered
0.3 s after the key was pressed, none are offered. They are remembered for a minute in the user's cache directory
($XDG_CACHE_HOME/kbroker/names, or ~/.cache): for so long a new topic is not offered, a deleted one still is, and it is
not noticed that a file or variable to which the client's properties refer has changed."""


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``completion``. Those that are not in the help are for the scripts."""
    parser.add_argument("shell", metavar="|".join(SHELLS), help="the shell that the script is for")
    parser.add_argument("-b", "--bootstrap-server", help=argparse.SUPPRESS)
    parser.add_argument("--profile", help=argparse.SUPPRESS)
    parser.add_argument("--command-config", type=Path, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Print the script; or, for a script, names."""
    if arguments.shell in ("topics", "groups", "profiles"):
        for name in _names(arguments):
            sys.stdout.write(f"{name}\n")
        return 0
    if arguments.shell not in SHELLS:
        raise UsageError(f"{arguments.shell!r} is none of {', '.join(SHELLS)}")
    from kbroker.tools.cli import COMMANDS
    from kbroker.tools.cli.completion_scripts import SCRIPTS

    sys.stdout.write(SCRIPTS[arguments.shell](COMMANDS))
    return 0


def _names(arguments: argparse.Namespace) -> Iterable[str]:
    """Names of a kind; none after any failure: whoever presses Tab wants no error."""
    if arguments.shell == "profiles":
        from kbroker.errors import FatalError
        from kbroker.tools.cli.profiles import read_profiles

        try:
            return read_profiles().known
        except FatalError:
            return ()
    from kbroker.tools.cli.name_cache import recall, remember

    try:
        key = _asked(arguments)
    except OSError:
        return ()  # the directory of the moment is gone
    names = recall(key)
    if names is None:
        names = _asked_of_cluster(arguments)
        if names is None:
            return ()
        if names:  # none may be because the cluster has just begun
            remember(key, names)
    return filter(_HARMLESS.fullmatch, names)


def _asked(arguments: argparse.Namespace) -> list[object]:
    """The kind of names, and all that says of which cluster, as whom; cheaper than to find that out."""
    variables = [os.environ.get(name) for name in ("KBROKER_PROFILE", "KBROKER_BOOTSTRAP")]
    profiles = os.path.join(user_directory("XDG_CONFIG_HOME", ".config"), PROFILES)
    properties = "" if arguments.command_config is None else os.path.abspath(arguments.command_config)
    files = [(name, _changed(name)) for name in (profiles, properties)]
    return [arguments.shell, arguments.bootstrap_server, arguments.profile, *variables, *files]


def _changed(file: str) -> int:
    """The time of a file's last change in ns; 0 if there is none."""
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


def _asked_of_cluster(arguments: argparse.Namespace) -> list[str] | None:
    """The names as the cluster tells them now; None if it does not."""
    from kbroker.errors import FatalError
    from kbroker.tools.cli.common import cluster

    try:
        ask = _group_names() if arguments.shell == "groups" else _topic_names()
        arguments.timeout = max(SECONDS - time.process_time(), _LEAST_SECONDS)
        with cluster(arguments) as client:
            return [name for name in ask(client) if _HARMLESS.fullmatch(name)][:_NAMES]
    except (FatalError, OSError):
        return None


def _group_names() -> Callable[[Client], Iterable[str]]:
    from kbroker.client.groups import list_groups

    return lambda client: (group.group_id for group in list_groups(client))


def _topic_names() -> Callable[[Client], Iterable[str]]:
    from kbroker.client.topics import list_topics

    return lambda client: (topic.name for topic in list_topics(client) if not topic.internal)
