"""Several clusters in one page: each at an address of its own, with a session of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbroker.client import Client
from kbroker.client.topics import NewTopic, create_topics
from kbroker.testing import RunningBroker, running_broker
from tests.console.console_process import Answer, ConsoleProcess, console_process
from tests.patience import LONG


@pytest.fixture(scope="module")
def console(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """Profiles beside the first cluster: of one that is there, and of one that nobody serves."""
    home = tmp_path_factory.mktemp("home")
    with running_broker() as other, pytest.MonkeyPatch.context() as patch:
        for where, name in ((broker, "here"), (other, "there")):
            with Client(where.bootstrap_servers) as client:
                create_topics(client, [NewTopic(name, 1, 1)])
        (home / "kbroker").mkdir()
        (home / "kbroker" / "profiles.toml").write_text(f"""
[profiles.second]
bootstrap = "{other.bootstrap_servers}"
[profiles.guarded]
bootstrap = "{other.bootstrap_servers}"
protected = true
[profiles.dead]
bootstrap = "127.0.0.1:9"
[profiles.wrong]
command-config = "{home}/nothing.properties"
""")
        patch.setenv("XDG_CONFIG_HOME", str(home))
        words = ("-b", broker.bootstrap_servers, "--writes", "--timeout", "3")
        with console_process(*words, "--profiles", "second,guarded,dead") as running:
            yield running


class At:
    """The page of one cluster, with its session."""

    def __init__(self, console: ConsoleProcess, path: str) -> None:
        self.console, self.path = console, path
        answer = console.request("GET", f"{path}api/session")
        self.session = answer.json
        self.cookie = (answer.headers["Set-Cookie"] or "").split(";")[0]

    def get(self, path: str) -> Answer:
        return self.console.request("GET", f"{self.path}api/{path}", headers={"Cookie": self.cookie})

    def post(self, path: str, body: str, csrf: str) -> Answer:
        headers = {"Cookie": self.cookie, "Origin": f"http://{self.console.host}", "Content-Type": "application/json"}
        return self.console.request("POST", f"{self.path}api/{path}", body.encode(), {**headers, "X-CSRF-Token": csrf})


def names(at: At) -> list[str]:
    return [row["name"] for row in at.get("topics").json["rows"]]


def test_each_cluster_has_a_page_of_its_own(console: ConsoleProcess) -> None:
    first, second = At(console, "/"), At(console, "/at/second/")
    listed = [(each["name"], each["path"]) for each in first.session["clusters"]]
    assert listed == [
        ("this cluster", "/"),
        ("second", "/at/second/"),
        ("guarded", "/at/guarded/"),
        ("dead", "/at/dead/"),
    ]
    assert second.session["clusters"] == first.session["clusters"]
    assert (first.session["cluster"], second.session["cluster"]) == ("this cluster", "second")
    assert (names(first), names(second)) == (["here"], ["there"])
    assert console.request("GET", "/at/second").headers["Location"] == "/at/second/"
    for path in ("/at/second/", "/at/second/js/app.js", "/at/second/explorer/elements.js"):
        assert console.request("GET", path).status == 200
    assert console.request("GET", "/at/nobody/api/session").status == 404


def test_a_session_of_one_changes_nothing_in_another(console: ConsoleProcess) -> None:
    first, second, guarded = At(console, "/"), At(console, "/at/second/"), At(console, "/at/guarded/")
    assert first.cookie.split("=")[0] != second.cookie.split("=")[0]
    body = '{"name": "made"}'
    assert second.post("topic/create", body, first.session["csrf"]).status == 403
    assert second.post("topic/create", body, second.session["csrf"]).status == 200
    assert second.get("topic?name=made").status == 200 and first.get("topic?name=made").status == 404
    assert console.audit()[-1]["cluster"] == "second"
    # A protected one is only shown.
    assert guarded.session["writes"] is False
    assert guarded.post("topic/create", '{"name": "x"}', guarded.session["csrf"]).status == 403


def test_one_that_cannot_be_reached_says_so_and_others_go_on(console: ConsoleProcess) -> None:
    dead = At(console, "/at/dead/").get("reach")
    assert dead.status == 502 and "127.0.0.1:9" in dead.error and "\n" not in dead.error
    assert At(console, "/at/second/").get("reach").json == {"brokers": 1}


def test_a_profile_that_makes_no_sense_is_left_out_and_told(console: ConsoleProcess) -> None:
    running = ConsoleProcess("-b", "127.0.0.1:9", "--profiles", "second,wrong")
    running.process.terminate()
    assert running.process.wait(LONG) == 0
    assert [line for line in running.log if "profile wrong is left out: " in line and "nothing.properties" in line]
    with pytest.raises(AssertionError, match="there is no profile nobody"):
        ConsoleProcess("-b", "127.0.0.1:9", "--profiles", "nobody")
