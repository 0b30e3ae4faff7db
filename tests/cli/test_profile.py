"""Profiles: the file, the choice of a cluster, and clusters that are protected."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import FatalError
from kbroker.testing import RunningBroker
from kbroker.tools.cli import COMMANDS
from kbroker.tools.cli.parser import all_parsers
from kbroker.tools.cli.profiles import Profile, Profiles, chosen_profile, read_profiles, write_profiles
from kbroker.tools.cli.protection import READING
from tests.cli_command import Run
from tests.with_each import examples


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file of the test is."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("KBROKER_PROFILE", raising=False)
    return tmp_path / "kbroker" / "profiles.toml"


def test_profiles_are_set_listed_used_and_removed(kb: Run, home: Path, tmp_path: Path) -> None:
    assert kb("profile", "list").err.startswith("kbroker: there is no profile in ")
    assert kb("profile", "list", "--json").json == []
    config = tmp_path / "client.properties"
    config.write_text("client.id=me\n")
    kb("profile", "set", "prod", "-b", "a:9092,b:9092", "--command-config", str(config), "--protected")
    assert "in use" in kb("profile", "set", "dev", "-b", "localhost:9092", "--use").out
    assert [row[:3] for row in kb("profile", "list").rows] == [
        ["name", "bootstrap", "command-config"],
        ["dev", "localhost:9092", "-"],
        ["prod", "a:9092,b:9092", str(config)],
    ]
    assert kb("profile", "show", "--json").json == {
        "name": "dev",
        "bootstrap": "localhost:9092",
        "command_config": None,
        "protected": False,
        "used": True,
    }
    assert home.stat().st_mode & 0o777 == 0o600
    kb("profile", "set", "prod", "--no-protected")
    assert kb("profile", "show", "prod", "--json").json["protected"] is False
    kb("profile", "use", "prod")
    assert kb("profile", "show").rows[0] == ["profile", "prod"]
    kb("profile", "delete", "prod")
    assert kb("profile", "show", code=1).err.count("\n") == 1
    assert [each["name"] for each in kb("profile", "list", "--json").json] == ["dev"]


def test_the_cluster_of_a_profile_is_asked(kb: Run, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    kb("profile", "set", "here", "-b", broker.bootstrap_servers, "--use")
    kb("profile", "set", "away", "-b", "127.0.0.1:1")
    monkeypatch.setenv("KBROKER_BOOTSTRAP", "127.0.0.1:2")
    assert "127.0.0.1:2" in kb("topic", "list", code=1).err
    kb("topic", "list", "--profile", "here")
    assert "127.0.0.1:1" in kb("topic", "list", "--profile", "away", code=1).err
    monkeypatch.setenv("KBROKER_PROFILE", "here")
    kb("topic", "list")
    kb("topic", "list", "--profile", "away", "-b", broker.bootstrap_servers)
    monkeypatch.delenv("KBROKER_PROFILE")
    monkeypatch.delenv("KBROKER_BOOTSTRAP")
    kb("topic", "list")
    assert kb("topic", "list", "--profile", "none", code=1).err.endswith("(there are: away, here)\n")


def test_a_protected_cluster_is_changed_after_a_yes_alone(
    kb: Run, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kb("profile", "set", "prod", "-b", broker.bootstrap_servers, "--protected")
    monkeypatch.setenv("KBROKER_PROFILE", "prod")
    kb("topic", "list")
    kb("topic", "create", "t", "--dry-run")
    refused = kb("topic", "create", "t", code=1)
    assert refused.out == "" and refused.err == (
        "kbroker: The cluster of profile prod is protected: kbroker topic create? Give --yes to do it without being"
        " asked.\n"
    )
    kb("topic", "create", "t", "--yes")
    lines = tmp_path / "lines"
    lines.write_text("a\n")
    assert "is protected" in kb("produce", "t", str(lines), code=1).err
    kb("produce", "t", str(lines), "-y", "-q")
    assert "is protected" in kb("group", "reset", "g", "--topic", "t", "--to-latest", code=1).err
    kb("group", "reset", "g", "--topic", "t", "--to-latest", "--execute")
    assert "Give --yes" in kb("topic", "delete", "t", code=1).err
    assert "the protected cluster of profile prod" in kb("topic", "elect", "t", code=1).err
    assert kb("topic", "elect", "t", "--yes").out == "0 leaders elected\n"
    monkeypatch.delenv("KBROKER_PROFILE")
    assert kb("topic", "list", "--names", "-b", broker.bootstrap_servers).out == "t\n"


def test_secrets_that_others_may_read_are_told_of(kb: Run, tmp_path: Path, home: Path) -> None:
    config = tmp_path / "secret.properties"
    config.write_text("sasl.jaas.config=x required password=hunter2;\nbootstrap.servers=h:1\n")
    config.chmod(0o644)
    told = kb("profile", "set", "prod", "--command-config", str(config)).err
    assert "sasl.jaas.config in clear" in told and "hunter2" not in told + home.read_text()
    config.chmod(0o600)
    assert kb("profile", "set", "prod", "--command-config", str(config)).err == ""


@pytest.mark.parametrize(
    ("words", "problem", "code"),
    [
        ("profile set a/b -b h:1", "'a/b' cannot be a name", 2),
        ("profile set a -b h:x", "--bootstrap-server: 'h:x' is not of the form", 2),
        ("profile set a", "give where the cluster is", 2),
        ("profile set a --command-config /no/such", "there is no file /no/such", 1),
        ("profile use", "give a NAME, or --none", 2),
        ("profile use nobody", "there is no profile nobody", 1),
        ("profile delete nobody", "there is no profile nobody", 1),
        ("profile show", "no profile is in use", 1),
    ],
)
def test_mistakes_are_one_line(kb: Run, words: str, problem: str, code: int) -> None:
    told = kb(*words.split(), code=code).err
    assert problem in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("use = 1", "use = 1, and there is no such profile"),
        ("[profiles.a]\nbootstrap = 1", "profiles.a.bootstrap has to be a text"),
        ("[profiles.a]\nprotected = 'yes'", "profiles.a.protected has to be true or false"),
        ("[profiles.a]\npassword = 'x'", "profiles.a.password means nothing here"),
        ("[other]", "other means nothing here"),
        ("profiles = 3", "profiles has to be tables"),
        ("[profiles", "profiles.toml: "),
        ("\xff", "profiles.toml: "),
    ],
)
def test_a_file_that_is_wrong_is_one_line(home: Path, text: str, problem: str) -> None:
    home.parent.mkdir(parents=True)
    home.write_bytes(text.encode("latin-1"))
    with pytest.raises(FatalError, match=problem) as told:
        read_profiles()
    assert "\n" not in str(told.value)


@settings(max_examples=examples(20), deadline=None)
@given(
    st.dictionaries(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True), st.text(min_size=1), max_size=4)
)
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, named: dict[str, str]) -> None:
    path = tmp_path_factory.mktemp("profiles") / "profiles.toml"
    usable = {name: text for name, text in named.items() if text.isprintable()}
    known = {name: Profile(name, text, Path("/") / "x", True) for name, text in sorted(usable.items())}
    wanted = Profiles(path, known, next(iter(known), None))
    write_profiles(wanted)
    assert read_profiles(path) == wanted


def test_an_explicit_address_counts_more_than_a_profile_in_use(home: Path) -> None:
    write_profiles(Profiles(home, {"p": Profile("p", "h:1")}, "p"))
    plain = Namespace(bootstrap_server=None, command_config=None, profile=None)
    assert chosen_profile(plain, elsewhere=False) == Profile("p", "h:1")
    assert chosen_profile(plain, elsewhere=True) is None
    assert chosen_profile(Namespace(bootstrap_server="x:1", command_config=None, profile=None), elsewhere=False) is None
    assert (
        chosen_profile(Namespace(bootstrap_server=None, command_config=Path("c"), profile=None), elsewhere=False)
        is None
    )


def test_every_command_that_changes_a_cluster_can_be_agreed_to() -> None:
    asked = {
        name: parser
        for name, parser in all_parsers(COMMANDS)
        if "--bootstrap-server" in parser._option_string_actions and name != "profile set"
    }
    assert [name for name in asked if "--profile" not in asked[name]._option_string_actions] == []
    changing = set(asked) - READING
    assert {"topic create", "topic delete", "produce", "acl add", "config set", "user add", "txn abort"} <= changing
    assert [name for name in changing if "--yes" not in asked[name]._option_string_actions] == []
    assert {name for name in READING if name.split()[-1] in ("create", "delete", "set", "add", "reset")} == {
        "profile set"
    }


def test_the_doctor_looks_at_the_cluster_of_a_profile(kb: Run, broker: RunningBroker) -> None:
    kb("profile", "set", "here", "-b", broker.bootstrap_servers, "--protected")
    looked = kb("doctor", "--profile", "here", "--look-again", "0", "--json", code=None).json
    assert broker.bootstrap_servers in str(looked)
