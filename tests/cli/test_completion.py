"""The completion of shells, run by the shells themselves."""

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
from kbroker.tools.cli import main
from tests.cli_command import Run
from tests.patience import LONG

ROOT = str(Path(__file__).parents[2])

LINES = {
    "kbroker top": ["top", "topic"],
    "kbroker topic de": ["delete", "describe"],
    "kbroker topic create --pa": ["--partitions"],
    "kbroker topic create --partitions ": [],
    "kbroker top --view tr": ["transactions"],
    "kbroker config set topic orders retention.m": ["retention.ms="],
    "kbroker config unset group g consumer.h": ["consumer.heartbeat.interval.ms"],
    "kbroker topic create t -c segment.m": ["segment.ms="],
    "kbroker config describe br": ["broker", "broker-logger"],
    "kbroker topic delete orders orders-": ["orders-dead"],
    "kbroker topic create or": [],
    "kbroker topic describe --timeout 3 or": ["orders", "orders-dead"],
    "kbroker group describe bi": ["billing"],
    "kbroker topic delete -b 127.0.0.1:1 or": [],
    "kbroker config describe -b 127.0.0.1:1 br": ["broker", "broker-logger"],
    "kbroker consume -b HERE cl": ["clicks"],
    "kbroker topic list --profile pr": ["prod"],
    "kbroker scrub sub": ["subdirectory/"],
    "kbroker decode su": [],
    "kbroker completion --p": [],
    "kbroker nothing x": [],
}
"""A line, and what is offered for its last word; HERE is the broker's address."""


def lines(broker: RunningBroker) -> list[str]:
    return [line.replace("HERE", broker.bootstrap_servers) for line in LINES]


def script_of(shell: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "kbroker", "completion", shell], capture_output=True, text=True, check=True
    ).stdout


def offered(lines_of_output: list[str]) -> dict[str, list[str]]:
    """Line -> what was offered, from lines with words between commas."""
    found = [sorted(word.strip() for word in line.split(",") if word.strip()) for line in lines_of_output]
    return dict(zip(LINES, found, strict=True))


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


def test_bash(directory: Path, broker: RunningBroker) -> None:
    ask = "COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMPREPLY=(); _python_argcomplete kbroker"
    script = [script_of("bash"), "ask() { " + ask + '; (IFS=,; echo "${COMPREPLY[*]}"); }']
    script += [f"ask '{line}'" for line in lines(broker)]
    done = subprocess.run(
        ["bash", "--norc"], input="\n".join(script), capture_output=True, text=True, check=True, cwd=directory
    )
    assert done.stderr == ""
    assert offered(done.stdout.splitlines()) == LINES
    assert not (directory / "owned").exists()


def test_fish(directory: Path, broker: RunningBroker) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script = [script_of("fish")]
    script += [f"echo (complete -C '{line}' | string replace -r '\\t.*' '' | string join ,)" for line in lines(broker)]
    done = subprocess.run(
        ["fish", "--no-config"], input="\n".join(script), capture_output=True, text=True, check=True, cwd=directory
    )
    assert done.stderr == ""
    assert offered(done.stdout.splitlines()) == LINES
    assert not (directory / "owned").exists()


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


def test_zsh(directory: Path, broker: RunningBroker) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    (directory / "kbroker.zsh").write_text(script_of("zsh"))
    (directory / "capture.zsh").write_text(CAPTURE)
    (directory / "lines").write_text("".join(f"{line}\n" for line in lines(broker)))
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
    assert offered((directory / "answers").read_text().splitlines()) == LINES
    assert not (directory / "owned").exists()


def test_names_are_remembered_for_a_while(kb: Run, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def topics(line: str = "kbroker topic describe ") -> list[str]:
        answer = directory / "answer"
        environment = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": "bash", "_ARGCOMPLETE_IFS": "\n", "COMP_TYPE": "9"}
        environment |= {"_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "COMP_LINE": line, "COMP_POINT": str(len(line))}
        done = subprocess.run(["kbroker"], env=os.environ | environment, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("", "")
        return answer.read_text().split()

    assert topics() == ["clicks", "orders", "orders-dead"]
    assert topics("kbroker group describe ") == ["billing"]
    kb("topic", "create", "new", "--if-not-exists")
    names = directory / "cache" / "kbroker" / "names"
    for file in names.iterdir():
        os.utime(file)  # that was now, however slow the machine is
    assert topics() == ["clicks", "orders", "orders-dead"]  # those of a moment ago
    for file in names.iterdir():
        os.utime(file, (0, 0))
    assert topics() == ["clicks", "new", "orders", "orders-dead"]
    kb("topic", "delete", "new", "-y")
    for words in ("topic describe -b 127.0.0.1:1", "group describe --profile nobody", "topic describe -b x:y"):
        assert topics(f"kbroker {words} ") == []


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completion", "tcsh"])
    assert ended.value.code == 2
    assert "'tcsh'" in capsys.readouterr().err
