"""The command line itself: what is imported, what is refused, what help there is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from kbroker.tools.cli import COMMANDS, build_parser, main
from kbroker.tools.cli.parser import all_parsers, parser_of
from tests.with_each import examples, with_each

ROOT = str(Path(__file__).parents[2])
EVERY = dict(all_parsers(COMMANDS))


@with_each(EVERY)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    assert ended.value.code == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"usage: kbroker {name} ") and captured.err == ""
    assert max(map(len, captured.out.splitlines())) <= 120


@with_each(EVERY)
def test_every_option_says_what_it_does(name: str) -> None:
    assert [action.dest for action in EVERY[name]._actions if not action.help] == []


CHOOSING = ["", *(name for name, command in COMMANDS.items() if command.actions)]
"""Words after which the name of a command or an action is to come."""
TEXT = st.text(max_size=30)
SOME = settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@SOME
@given(before=st.sampled_from(CHOOSING), word=TEXT.filter(lambda word: not word.startswith("-")))
@example(before="", word="two\nlines")
def test_a_wrong_word_is_answered_in_three_lines_at_most(
    before: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*before.split(), word]
    assume(" ".join(words) not in EVERY and word not in COMMANDS)
    is_refused(words, capsys)


@SOME
@given(name=st.sampled_from(sorted(EVERY)), rest=st.lists(TEXT, max_size=3), word=TEXT.filter(bool))
@example(name="topic list", rest=[], word="two\nlines")
def test_a_wrong_option_is_answered_in_three_lines_at_most(
    name: str, rest: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assume(f"--{word}".partition("=")[0] not in EVERY[name]._option_string_actions)
    assume(" " not in word)  # argparse takes it for an argument then, and the command would run
    is_refused([*name.split(), f"--{word}", *(each.lstrip("-") for each in rest)], capsys)


def is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing but a line or three says what is wrong; 80 columns wide each, but for the word itself."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    captured = capsys.readouterr()
    assert ended.value.code == 2 and captured.out == "" and captured.err.startswith("kbroker")
    assert captured.err.count("\n") == 1 and "\r" not in captured.err
    assert len(captured.err) <= 3 * 80 + sum(len(repr(word)) for word in words)


@pytest.mark.parametrize("words", [[], ["topic"], ["group"], ["config"], ["cluster"]])
def test_without_a_choice_there_is_the_list_and_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("usage: kbroker ")
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == captured.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["frob"], "kbroker: there is no command 'frob' (see kbroker --help)"),
        (["topic", "frob"], "kbroker topic: there is no action 'frob' (see"),
        (["tpoic"], "kbroker: there is no command 'tpoic': did you mean topic? (see kbroker --help)"),
        (["topic", "lst"], "there is no action 'lst': did you mean list?"),
        (["topic", "create", "t", "--partition=3"], "--partition=3: did you mean --partitions?"),
        (["topic", "list", "--frob"], "kbroker topic list: unrecognized arguments: --frob"),
        (["topic", "create"], "kbroker topic create: the following arguments are required: TOPIC"),
        (
            ["topic", "create", "t", "-p", "0"],
            "kbroker topic create: argument -p/--partitions: 0 is not a number from 1",
        ),
        (["topic", "list", "--timeout", "x"], "argument --timeout: 'x' is not a number of seconds"),
        (["topic", "list", "--timeout", "-1"], "argument --timeout: '-1' is not a positive number"),
        (["topic", "create", "t", "-c", "x"], "'x' is not of the form NAME=VALUE"),
        (["topic", "truncate", "t"], "one of the arguments --before-offset --before --all is required"),
        (["consume", "t", "--json", "--hex"], "not allowed with argument"),
        (["config", "set", "user", "x", "a=b"], "invalid choice: 'user'"),
        (["group", "list", "--state", "wat"], "argument --state: 'wat' is none of Stable, Empty, "),
        (["group", "list", "--type", "wat"], "argument --type: 'wat' is none of classic, "),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and problem in captured.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("up -n 3 --port 65533", "--port 65533: 3 nodes need 6 ports"),
        ("topic list -b nonsense:port", "--bootstrap-server: 'nonsense:port' is not of the form host:port"),
        ("topic create t --assignment 1 -p 1", "--assignment goes without --partitions and --replicas"),
        ("topic alter t", "there is nothing to change"),
        ("topic alter t -c a=b --assignment 1", "--assignment goes with --partitions"),
        ("topic offsets t --at x", "--at: 'x' is not a time"),
        ("topic truncate t --before x", "--before: 'x' is not a time"),
        ("produce a/b", "'a/b' is not a name of a topic"),
        ("produce t -i csv --key-separator :", "--key-separator goes with --input lines, not csv"),
        ("produce t -i lines --key-column x", "--key-column goes with --input csv or json, not lines"),
        ("produce t -i csv --delimiter ::", "--delimiter '::': expected one character"),
        ("produce t -k x --key-separator :", "--key goes without"),
        ("consume t --format {x}", "{x} is none of topic,"),
        ("consume t --from x", "--from: 'x' is not a time"),
        ("consume t --until x", "--until: 'x' is not a time"),
        ("consume t -f --until 3", "--until and --follow exclude each other"),
        ("group reset g --topic t", "give one of --to-earliest"),
        ("group reset g --topic t --to-earliest --to-latest", "give one of --to-earliest"),
        ("group reset g --to-earliest", "give --topic TOPIC"),
        ("group reset g --to-earliest --all-topics --topic t", "exclude each other"),
        ("group reset g --to-earliest --topic t --dry-run --execute", "exclude each other"),
        ("group reset g --to-datetime x --topic t", "--to-datetime: 'x' is not a time"),
        ("group reset g --by-duration x --topic t", "--by-duration: 'x' is not a length of time"),
        ("group reset g --from-file offsets.csv --topic t", "--from-file says which partitions"),
        ("txn abort --yes", "give a transactional id, or"),
        ("txn abort --topic t --yes", "go together"),
        ("config set topic t x", "'x' is not of the form KEY=VALUE"),
        ("config describe broker x", "a broker is named by its id"),
        ("decode --response Fetch 00", "expected API:VERSION"),
        ("decode --response Nothing:1 00", "there is no API Nothing"),
    ],
)
def test_what_cannot_be_meant_is_one_line_too(
    words: str, problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KBROKER_BOOTSTRAP", raising=False)
    (tmp_path / "offsets.csv").write_text("t,0,1\n")
    assert main(words.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and problem in captured.err
    assert captured.err.startswith("kbroker ") and captured.err.endswith(" --help)\n")


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["consume", "t", "--from", "-1h"], "start", "-1h"),
        (["consume", "t", "--from", "-10"], "start", "-10"),
        (["consume", "t", "--from=-1h30m", "-n", "3"], "start", "-1h30m"),
        (["consume", "t", "--until", "-PT1H"], "until", "-PT1H"),
        (["group", "reset", "g", "--shift-by", "-5"], "shift_by", -5),
        (["topic", "truncate", "t", "--before", "-7d"], "before", "-7d"),
        (["topic", "offsets", "t", "--at", "-1h"], "at", "-1h"),
    ],
)
def test_values_that_begin_with_a_dash(words: list[str], name: str, value: object) -> None:
    parser, rest = build_parser(words)
    assert getattr(parser.parse_args(rest), name) == value


def test_an_option_without_a_value_takes_none() -> None:
    parser, rest = build_parser(["consume", "--json", "t", "--from"])
    with pytest.raises(SystemExit):
        parser.parse_args(rest)


def test_starting_a_node_imports_nothing_of_the_other_commands() -> None:
    code = (
        "import sys; from kbroker.tools.cli import build_parser\n"
        "parser, words = build_parser(['start', '--port', '0']); parser.parse_args(words)\n"
        "print([name for name in sys.modules if name.startswith(('rich', 'kbroker.client', 'kbroker.tools.cli.'))"
        " or name in ('shutil', 'json', 'csv', 'trio')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": ROOT}
    )
    own = [
        f"kbroker.tools.cli.{name}"
        for name in ("parser", "control_options", "log_output", "node_per_core", "registry_beside", "start")
    ]
    assert done.stdout.strip() == str(own)


@pytest.mark.parametrize("module", ["argparse", "dataclasses"])
def test_ctrl_c_while_modules_are_imported_is_quiet(tmp_path: Path, module: str) -> None:
    """Those of the command itself, and those of its module for tables."""
    (tmp_path / f"{module}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    words = [sys.executable, "-m", "kbroker", "table", "describe", "delta:lake/orders"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    "line",
    [
        "produce t f.csv --key k -i csv",
        "produce t --key k f.csv -i csv",
        "produce -i csv t --key k f.csv",
        "produce --key k -i csv t f.csv",
    ],
)
def test_options_between_what_is_named_by_its_place(line: str) -> None:
    words = line.split()
    arguments = parser_of("produce", COMMANDS["produce"]).parse_args(words[1:])
    assert (arguments.topic, arguments.file, arguments.key, arguments.input) == ("t", "f.csv", "k", "csv")
    topics = parser_of("topic", COMMANDS["topic"], ["create"]).parse_args(["a", "-p", "3", "b"])
    assert (topics.topics, topics.partitions) == (["a", "b"], 3)


@pytest.mark.parametrize("line", ["", "a b c", "t --no-such", "t f --key"])
def test_wrong_usage_of_words_is_told(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser_of("produce", COMMANDS["produce"]).parse_args(line.split())
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("kbroker produce: ") and told.count("\n") == 1, told
