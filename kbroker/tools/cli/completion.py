"""``kbroker completion``: a script that lets a shell complete commands, options, and names in a cluster.

The script is argcomplete's: it runs this command for each press of Tab. That is quick and silent, or gives nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.errors import FatalError
from kbroker.tools.cli.parser import PROGRAM, Parser
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
    """The options of ``completion``."""
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="the shell that the script is for")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from argcomplete.shell_integration import shellcode

    print(shellcode([PROGRAM], use_defaults=False, shell=arguments.shell))
    return 0


def complete(build_parser: Callable[[Sequence[str]], tuple[Parser, Sequence[str]]]) -> None:
    """Offer words for the line in ``COMP_LINE``, and end the process: a shell has run this command for Tab."""
    import argcomplete
    from argcomplete.lexers import split_line

    line = os.environ["COMP_LINE"]
    point = len(line.encode()[: int(os.environ["COMP_POINT"])].decode(errors="ignore"))
    words = split_line(line, point)[3][1:]
    parser, rest = build_parser(words)
    chosen = words[: len(words) - len(rest)]
    for action in parser._actions:
        if not action.choices:
            action.completer = _completer(" ".join(chosen), action)  # type: ignore[attr-defined]
    os.environ["_ARGCOMPLETE"] = str(1 + len(chosen))  # where the words begin that this parser knows
    argcomplete.autocomplete(parser, always_complete_options=False)


_NAMED: Final = {"TOPIC": "topics", "FROM_TOPIC": "topics", "TO_TOPIC": "topics", "GROUP": "groups"}
"""A word in the help -> the kind of names that it is one of."""


def _completer(path: str, action: argparse.Action) -> Callable[..., Iterable[str]]:
    """Returns what offers values of an option or words at a place; nothing for those that nobody can guess."""
    from argcomplete.completers import ChoicesCompleter, DirectoriesCompleter, FilesCompleter

    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.dest == "profile" or (path.startswith("profile ") and path != "profile set" and action.dest == "name"):
        return partial(_complete_names, "profiles", action.dest)
    if name in _NAMED and path != "topic create":  # names of what is not there yet
        return partial(_complete_names, _NAMED[name], action.dest)
    if name in ("KEY=VALUE", "KEY") or (path in ("topic create", "topic alter") and action.dest in ("config", "unset")):
        return partial(_complete_configs, "=" if "=" in name else "")
    if name == "FILE":
        return FilesCompleter()
    return DirectoriesCompleter() if name == "DIR" else ChoicesCompleter({})


def _complete_configs(end: str, *, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Returns names of properties of what is configured: of topics unless the line says otherwise."""
    kind = getattr(parsed_args, "kind", "topic")
    if kind not in ("topic", "broker", "group"):
        return []
    from kbroker.config import GROUP_CONFIGS
    from kbroker.config.broker import BROKER_CONFIGS
    from kbroker.config.topic import TOPIC_CONFIGS

    return [f"{name}{end}" for name in {"topic": TOPIC_CONFIGS, "broker": BROKER_CONFIGS, "group": GROUP_CONFIGS}[kind]]


def _complete_names(kind: str, dest: str, *, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Returns names that are not given yet."""
    given = getattr(parsed_args, dest, None)
    return [name for name in names_of(kind, parsed_args) if not isinstance(given, list) or name not in given]


def names_of(
    kind: str, arguments: argparse.Namespace, ask: Callable[[str, argparse.Namespace], list[str] | None] | None = None
) -> Iterable[str]:
    """Returns names of a kind, as ``ask`` tells them; none after any failure: whoever presses Tab wants no error."""
    if kind == "profiles":
        from kbroker.tools.cli.profiles import read_profiles

        try:
            return read_profiles().known
        except FatalError:
            return ()
    from kbroker.tools.cli.name_cache import recall, remember

    try:
        key = _asked(kind, arguments)
    except OSError:
        return ()  # the directory of the moment is gone
    names = recall(key)
    if names is None:
        names = (ask or _asked_of_cluster)(kind, arguments)
        if names is None:
            return ()
        if names:  # none may be because the cluster has just begun
            remember(key, names)
    return filter(_HARMLESS.fullmatch, names)


def _asked(kind: str, arguments: argparse.Namespace) -> list[object]:
    """The kind of names, and all that says of which cluster, as whom; cheaper than to find that out."""
    variables = [os.environ.get(name) for name in ("KBROKER_PROFILE", "KBROKER_BOOTSTRAP")]
    profiles = os.path.join(user_directory("XDG_CONFIG_HOME", ".config"), PROFILES)
    properties = "" if arguments.command_config is None else os.path.abspath(arguments.command_config)
    files = [(name, _changed(name)) for name in (profiles, properties)]
    return [kind, arguments.bootstrap_server, arguments.profile, *variables, *files]


def _changed(file: str) -> int:
    """The time of a file's last change in ns; 0 if there is none."""
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


def _asked_of_cluster(kind: str, arguments: argparse.Namespace) -> list[str] | None:
    """The names as the cluster tells them now; None if it does not."""
    from kbroker.tools.cli.common import cluster

    try:
        ask = _group_names() if kind == "groups" else _topic_names()
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
