"""The completion of shells: scripts made from the parsers, run by the shells themselves."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from kbroker.testing import RunningBroker
from kbroker.tools.cli import COMMANDS, main
from kbroker.tools.cli.command_words import words_of
from kbroker.tools.cli.completion_scripts import SCRIPTS
from tests.cli_command import Run
from tests.patience import LONG

ROOT = str(Path(__file__).parents[2])

LINES = {
    "kbroker top": ["top", "topic"],
    "kbroker topic de": ["delete", "describe"],
    "kbroker topic create --pa": ["--partitions"],
    "kbroker topic create --partitions ": [],
    "kbroker top --view tr": ["transactions"],
    "kbroker config describe br": ["broker", "broker-logger"],
    "kbroker topic delete orders orders-": ["orders-dead"],
    "kbroker topic create or": [],
    "kbroker topic describe --timeout 3 or": ["orders", "orders-dead"],
    "kbroker group describe bi": ["billing"],
    "kbroker topic delete -b 127.0.0.1:1 or": [],
    "kbroker topic list --profile pr": ["prod"],
    "kbroker verify-log sub": ["subdirectory"],
    "kbroker decode su": [],
    "kbroker completion --p": [],
    "kbroker nothing x": [],
}
"""A line, and what is offered for its last word."""


@pytest.fixture
def directory(kb: Run, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where shells run: ``kbroker`` on the path, a profile, topics, and groups, one of them with a wicked name."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "bin" / "kbroker"
    program.parent.mkdir()
    # On a busy machine names are waited for longer.
    patient = "import sys; from kbroker.tools.cli import completion, main; completion.SECONDS = 20; sys.exit(main())"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c \'{patient}\' "$@"\n')
    program.chmod(0o755)
    (tmp_path / "subdirectory").mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", ROOT)
    kb("topic", "create", "orders", "orders-dead", "clicks", "--if-not-exists")
    kb("profile", "set", "prod", "-b", broker.bootstrap_servers)
    for group in ("billing", "bi$(touch owned)", "bi`touch owned`"):
        kb("group", "reset", group, "--topic", "orders", "--to-latest", "--execute")
    return tmp_path


def test_bash(directory: Path) -> None:
    script = [SCRIPTS["bash"](COMMANDS)]
    script += ['ask() { COMP_LINE=$1 COMP_POINT=${#1} COMPREPLY=(); _kbroker; (IFS=,; echo "${COMPREPLY[*]}"); }']
    script += [f"ask '{line}'" for line in LINES]
    done = subprocess.run(
        ["bash", "--norc"], input="\n".join(script), capture_output=True, text=True, check=True, cwd=directory
    )
    assert done.stderr == ""
    found = [sorted(filter(None, line.split(","))) for line in done.stdout.splitlines()]
    assert dict(zip(LINES, found, strict=True)) == LINES
    assert not (directory / "owned").exists()


def test_fish(directory: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    files = {"kbroker verify-log sub": ["subdirectory/"]}
    script = [SCRIPTS["fish"](COMMANDS)]
    script += [f"echo (complete -C '{line}' | string replace -r '\\t.*' '' | string join ,)" for line in LINES]
    done = subprocess.run(
        ["fish", "--no-config"], input="\n".join(script), capture_output=True, text=True, check=True, cwd=directory
    )
    assert done.stderr == ""
    found = [sorted(filter(None, line.split(","))) for line in done.stdout.splitlines()]
    told = dict(zip(LINES, found, strict=True))
    # fish offers files where a command takes no word.
    for line, words in LINES.items():
        if words:
            assert told[line] == files.get(line, words), line
    assert not (directory / "owned").exists()


def test_zsh_reads_the_script(directory: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    (directory / "kbroker.zsh").write_text(SCRIPTS["zsh"](COMMANDS))
    loaded = "autoload -Uz compinit && compinit -D -u; source ./kbroker.zsh; print -r -- ${_comps[kbroker]}"
    done = subprocess.run(["zsh", "-f", "-c", loaded], capture_output=True, text=True, check=True, cwd=directory)
    assert (done.stdout, done.stderr) == ("_kbroker\n", "")


CAPTURE = r"""
PROMPT=
autoload -Uz compinit && compinit -D -u
source ./kbroker.zsh
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
    builtin compadd "$@"
    return
  fi
  local -a hits
  builtin compadd -A hits "$@"
  offered+=($hits)
  builtin compadd "$@"
}
ask() {
  local -aU offered
  while IFS= read -r line; do
    BUFFER=$line CURSOR=$#line offered=()
    zle complete-word
    print -r -- ${(j:,:)offered} >> answers
  done < lines
  exit
}
zle -N ask
bindkey '^I' ask
"""
"""Has zsh's editor complete each of some lines, and writes down what it would offer (``compadd -A``)."""


def test_zsh_completes(directory: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    (directory / "kbroker.zsh").write_text(SCRIPTS["zsh"](COMMANDS))
    (directory / "capture.zsh").write_text(CAPTURE)
    (directory / "lines").write_text("".join(f"{line}\n" for line in LINES))
    (directory / "answers").touch()
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "dumb"}
    with subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, cwd=directory, env=environment
    ) as shell:
        os.close(theirs)
        os.write(ours, b"source ./capture.zsh\n\t")
        with suppress(OSError):  # that is how Linux tells that the shell has ended
            while os.read(ours, 10_000):
                pass
        assert shell.wait(LONG) == 0
    os.close(ours)
    found = [sorted(filter(None, line.split(","))) for line in (directory / "answers").read_text().splitlines()]
    told = dict(zip(LINES, found, strict=True))
    for line, words in LINES.items():
        if words:
            assert told[line] == words, line
    assert not (directory / "owned").exists()


def test_every_command_and_option_is_in_every_script() -> None:
    words = words_of(COMMANDS)
    for shell, make in SCRIPTS.items():
        script = make(COMMANDS)
        for each in words:
            assert each.path in script
            for option in each.options:
                for name in option.names:
                    in_fish = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                    assert (in_fish if shell == "fish" else name) in script


def test_names_are_asked_for_silently(kb: Run, directory: Path) -> None:
    assert kb("completion", "topics").out.split() == ["clicks", "orders", "orders-dead"]
    assert kb("completion", "groups").out.split() == ["billing"]
    kb("topic", "create", "new", "--if-not-exists")
    for file in (directory / "cache" / "kbroker" / "names").iterdir():
        os.utime(file)  # that was now, however slow the machine is
    assert kb("completion", "topics").out.split() == ["clicks", "orders", "orders-dead"]  # those of a moment ago
    for file in (directory / "cache" / "kbroker" / "names").iterdir():
        os.utime(file, (0, 0))
    assert kb("completion", "topics").out.split() == ["clicks", "new", "orders", "orders-dead"]
    kb("topic", "delete", "new", "-y")
    for words in (("topics", "-b", "127.0.0.1:1"), ("groups", "--profile", "nobody"), ("topics", "-b", "x:y")):
        silent = kb("completion", *words)
        assert (silent.out, silent.err) == ("", "")


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh' is none of bash, zsh, fish" in capsys.readouterr().err
