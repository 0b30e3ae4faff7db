"""Tables in an object store: moto's, and a proxy before it that does what networks and servers do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.testing import RunningBroker
from tests.cli_command import Run
from tests.patience import LONG, eventually

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("obstore")

import obstore
import pyarrow
from obstore.store import S3Store
from pyiceberg.catalog.sql import SqlCatalog

from kbroker.errors import FatalError
from kbroker.tables.follower import Settings
from kbroker.tables.iceberg import IcebergTarget
from kbroker.tables.plan import Refused
from kbroker.tables.stores import StoreOptions
from kbroker.tables.target import DEAD_COLUMNS, Target
from tests.tables.model_store import SECRET, StoredDelta, StoredIceberg, follow_through, options
from tests.tables.model_topic import ModelTopic, check_once, follow
from tests.tables.moto_server import BUCKET, running_moto
from tests.tables.store_proxy import Fault, Proxy, proxy_before

JSON = Settings(value_format="json", batch_records=7, max_bytes=1)
Places = Callable[[str], StoredDelta | StoredIceberg]


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_moto(tmp_path_factory.mktemp("moto") / "moto.log") as address:
        yield address


@pytest.fixture
def proxy(moto: str) -> Iterator[Proxy]:
    with proxy_before(moto) as running:
        yield running


@pytest.fixture
def place(moto: str, proxy: Proxy, tmp_path: Path) -> Places:
    """Places for tables behind the proxy."""

    def made(kind: str) -> StoredDelta | StoredIceberg:
        url, straight = f"s3://{BUCKET}/{tmp_path.name}", f"http://{moto}"
        if kind == "delta":
            return StoredDelta(f"{url}/t", proxy.url, straight)
        return StoredIceberg(tmp_path / "catalog.db", url, proxy.url, straight)

    return made


def orders() -> ModelTopic:
    """Two partitions; values are good, bad and wider than those before."""
    topic = ModelTopic()
    topic.append(0, *(b'{"id": %d}' % number for number in range(8)), b"none", gap=1)
    topic.append(1, *(b'{"id": 2, "new": {"a": [1]}}' for _ in range(3)), b"{")
    return topic


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.REPEAT], ids=lambda fault: fault.name)
def test_each_record_is_there_once_whatever_happens_to_commits(place: Places, proxy: Proxy, fault: Fault) -> None:
    """Some puts of commits have that fault; a client tries once again by itself."""
    none = Fault.NONE
    proxy.plan("PUT .*_delta_log/0", none, none, none, fault, fault, none, fault, none, fault)
    topic, stored = orders(), place("delta")
    follow_through(topic, stored, JSON)
    check_once(topic, stored)
    assert len(proxy.came()) >= 3


@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.everything)])
def test_each_record_is_there_once_whatever_happens_to_requests(place: Places, proxy: Proxy, kind: str) -> None:
    """Every seventh request has another fault than that before it."""
    proxy.plan("", Fault.REFUSE, Fault.DROP, Fault.SLOW, Fault.REPEAT, Fault.AWAY, every=7, again=True)
    topic, stored = orders(), place(kind)
    follow_through(topic, stored, JSON)
    check_once(topic, stored)
    assert len(set(proxy.came())) == 5


def test_of_two_followers_one_commits(place: Places, proxy: Proxy) -> None:
    topic, stored = orders(), place("delta")

    def other(moment: int) -> None:
        if moment == 4:
            topic.append(0, b'{"id": 77}')
            follow(topic, stored, JSON)

    assert follow(topic, stored, JSON, other).progress.conflicts == 1
    check_once(topic, stored)


@pytest.mark.parametrize("fault", [Fault.UNCONDITIONAL, Fault.UNKNOWN], ids=lambda fault: fault.name)
def test_a_store_where_a_commit_could_be_lost_is_refused(place: Places, proxy: Proxy, fault: Fault) -> None:
    """With a table that is there, and without one."""
    topic, stored = orders(), place("delta")
    proxy.plan("PUT ", fault, again=True)
    with pytest.raises(Refused, match=r"the store has no conditional put .*: name another store"):
        follow(topic, stored, JSON)
    assert stored.rows() == []
    proxy.plan("PUT ", Fault.NONE)
    follow(topic, stored, JSON)
    topic.append(0, b'{"id": 9}')
    proxy.plan("PUT ", fault, again=True)
    with pytest.raises(Refused, match="the store has no conditional put"):
        follow(topic, stored, JSON)


class InAnyCatalog(StoredIceberg):
    """A table of a catalog that pyiceberg's own configuration describes."""

    def target(self) -> Target:
        told = {"type": "sql", "uri": f"sqlite:///{self.file}", "warehouse": self.place}
        return IcebergTarget("lake.t", "catalog:kbroker", StoreOptions(told))


def test_a_commit_that_the_network_repeated_keeps_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog has done it, and refuses to do it again; pyiceberg deletes the files of what is refused."""
    commit = SqlCatalog.commit_table
    monkeypatch.setattr(SqlCatalog, "commit_table", lambda *words: (commit(*words), commit(*words))[1])
    topic, stored = orders(), InAnyCatalog(tmp_path / "catalog.db", f"file://{tmp_path}", "", "")
    assert follow(topic, stored, JSON).progress.conflicts > 2
    check_once(topic, stored)


@pytest.mark.everything
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_in_a_store_is_told_of_paused_and_dropped(place: Places, moto: str, kind: str) -> None:
    topic, stored = orders(), place(kind)
    follow(topic, stored, JSON)
    target = stored.target()
    target.load(())
    letters = pyarrow.Table.from_batches(target.dead_letters())
    assert letters.column_names == DEAD_COLUMNS and letters.num_rows == 2
    [(name, text)] = target.noted().items()
    assert '"ended"' in text
    target.note("follower-here.json", "here")
    assert stored.target().noted() == {name: text, "follower-here.json": "here"}
    target.note(name, None)
    merged, cleaned = stored.target().maintain(), stored.target().clean(0)
    assert "kept_files_of_others" not in merged | cleaned
    assert stored.target().noted() == {"follower-here.json": "here"}
    target.pause(paused=True)
    with pytest.raises(Refused, match="is paused"):
        follow(topic, stored, JSON)
    stored.target().pause(paused=False)
    check_once(topic, stored)
    assert stored.target().drop() == 0
    assert stored.target().topic() is None
    store = S3Store.from_url(stored.place, config=options_of(moto), client_options={"allow_http": True})
    assert [each["path"] for page in obstore.list(store) for each in page if each["size"]] == []


def options_of(moto: str) -> Any:
    """The options that ``obstore`` needs for the store itself."""
    told = {name.lower(): each for name, each in options(f"http://{moto}").items() if name.isupper()}
    return {"aws_endpoint": told.pop("aws_endpoint_url")} | told


# --- The command -----------------------------------------------------------------------------------------------------


def options_file(path: Path, url: str, **more: str) -> str:
    """A file with the options for a store."""
    path.write_text("".join(f"{name}={each}\n" for name, each in (options(url) | more).items()))
    return str(path)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_command_knows_stores(
    kb: Run, broker: RunningBroker, moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    topic = f"stored-{kind}"
    file = options_file(tmp_path / "store.properties", f"http://{moto}", warehouse=f"s3://{BUCKET}/{topic}")
    values = tmp_path / "values"
    values.write_text('{"id": 1}\nnone\n{"id": 2}\n')
    kb("topic", "create", topic)
    kb("produce", topic, str(values))
    where = [f"delta:s3://{BUCKET}/{topic}"] if kind == "delta" else ["iceberg:lake.t", "--catalog"]
    where += [] if kind == "delta" else [f"sqlite:{tmp_path / 'catalog.db'}"]
    told = kb(
        "table", "follow", topic, "--to", *where, "--value", "json", "--once", "--json", "--store-options", file
    ).json
    assert (told["rows"], told["dead_letters"]) == (2, 1)
    told = kb("table", "describe", *where, "--store-options", file, "--json").json
    assert (told["rows"], told["dead_letters"], told["lag"]) == (2, 1, 0)
    told = kb("table", "maintain", *where, "--store-options", file, "--json").json
    assert told["removed_files"] == 0
    catalog = "" if kind == "delta" else f'catalog = "{where[2]}"\n'
    text = f'[[table]]\ntopic = "{topic}"\nto = "{where[0]}"\n{catalog}store-options = "store.properties"\n'
    (tmp_path / "tables.toml").write_text(text)
    kb("produce", topic, str(values))
    assert "2 rows to 1 table\n" in kb("table", "run", str(tmp_path / "tables.toml"), "--once").out
    [listed] = kb("table", "list", str(tmp_path / "tables.toml"), "--json").json
    assert (listed["rows"], listed["problem"]) == (4, None)
    noted = Path(broker.data_dir) / "replication-offset-checkpoint"
    eventually(lambda: noted.exists() and f"{topic} 0 6" in noted.read_text())
    assert kb("table", "backfill", topic, "--from", str(broker.data_dir), "--to", *where, "--store-options", file)
    for name, value in options(f"http://{moto}", "id-of-a-key").items():
        if name.isupper():
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYICEBERG_CATALOG__KBROKER__WAREHOUSE", f"s3://{BUCKET}/{topic}")
    assert kb("table", "describe", *where, "--json").json["rows"] == 4
    assert SECRET not in "".join(path.read_text() for path in tmp_path.glob("*.toml"))


def test_a_store_that_is_away_is_asked_again(kb: Run, broker: RunningBroker, proxy: Proxy, tmp_path: Path) -> None:
    file = options_file(tmp_path / "store.properties", proxy.url)
    to = ("--to", f"delta:s3://{BUCKET}/away", "--store-options", file)
    kb("topic", "create", "away")
    (tmp_path / "values").write_text("a\nb\n")
    kb("produce", "away", str(tmp_path / "values"))
    proxy.plan("", Fault.AWAY, again=True)
    said = kb("table", "follow", "away", *to, "--once", code=1).err
    assert said.startswith(f"kbroker: delta:s3://{BUCKET}/away: ") and said.count("\n") == 1
    words = [sys.executable, "-m", "kbroker", "table", "follow", "away", *to, "--every", "10ms"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    log = tmp_path / "log"
    with log.open("w") as errors:
        follower = subprocess.Popen([*words, "-b", broker.bootstrap_servers], env=environment, stderr=errors)
        try:
            eventually(lambda: "; trying again" in log.read_text())
            proxy.plan("", Fault.NONE)
            eventually(lambda: "2 rows of away" in log.read_text())
            follower.terminate()
            assert follower.wait(LONG) == 0
        finally:
            follower.kill()
    assert SECRET not in log.read_text() + said


def test_what_is_missing_is_told_in_a_line(kb: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials, without asking the machine for long; a directory that may not be written."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with socket.create_server(("127.0.0.1", 0)) as machine:
        endpoint = f"http://127.0.0.1:{machine.getsockname()[1]}"
    (tmp_path / "store.properties").write_text(f"aws_metadata_endpoint={endpoint}\nwarehouse=s3://b/x\n")
    (tmp_path / "catalog.db").touch()
    for place in (["delta:s3://b/t"], ["iceberg:lake.t", "--catalog", f"sqlite:{tmp_path / 'catalog.db'}"]):
        found = kb("table", "describe", *place, "--store-options", str(tmp_path / "store.properties"), code=1)
        assert f"{place[0]}: there are no credentials for S3: AWS_ACCESS_KEY_ID and " in found.err
    for text, told in (
        ("PUT http://1.2.3.4/latest/api/token in 2ms", "there are no credentials for S3: .*"),
        ("Unable to open file /a b/c.json#1 Permission denied (os error 13)", "permission denied: /a b/c.json"),
        ("Could not create: /a Error: Os { code: 13, kind: PermissionDenied }", "permission denied: /a"),
        ("[Errno 13] Permission denied: '/a/b'", "permission denied: /a/b"),
        ("http://a/b: permission denied: you", "http://a/b: permission denied: you"),
    ):
        with pytest.raises(FatalError, match=f"^there: {told}$"), StoreOptions().readable("there", (OSError,)):
            raise OSError(text)


def test_no_secret_is_told(kb: Run, proxy: Proxy, moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many things are wrong, and the secret is in a file or in the environment."""
    kb("topic", "create", "secret")
    token = "very-hush-token"
    proxy.plan("away", Fault.AWAY, again=True)
    sqlite, rest = f"sqlite:{tmp_path / 'catalog.db'}", f"rest:{proxy.url}/away"
    places = [
        [f"delta:s3://{BUCKET}/away/t"],
        ["delta:s3://no-bucket/t"],
        ["delta:gs://bucket/t"],
        ["delta:abfss://box@acc.dfs.core.windows.net/t"],
        ["iceberg:lake.t", "--catalog", sqlite],
        ["iceberg:lake.t", "--catalog", rest],
        ["iceberg:lake.t", "--catalog", f"rest:http://{moto}/nothing"],
        ["iceberg:lake.t", "--catalog", "catalog:nobodys"],
    ]
    more = {
        "google_service_account_key": f'{{"private_key": "{SECRET}"}}',
        "azure_storage_account_key": "not+base64",
        "token": token,
        "credential": f"me:{SECRET}",
        "warehouse": "s3://no-bucket/x",
    }
    file = options_file(tmp_path / "store.properties", proxy.url, **more)
    secrets = {SECRET, token, "not+base64", "some-key"}

    def check(*words: str, code: int = 1) -> None:
        found = kb("table", *words, code=code)
        assert len(found.err.splitlines()) == 1 and "Traceback" not in found.err, found.err
        assert not [each for each in secrets if each in found.out + found.err], found.err

    for where in places:
        check("follow", "secret", "--to", *where, "--once", "--store-options", file)
        check("describe", *where, "--store-options", file)
    for name, value in {**options(proxy.url), "PYICEBERG_CATALOG__KBROKER__TOKEN": token}.items():
        if name.isupper():
            monkeypatch.setenv(name, value)
    check("describe", f"delta:s3://{BUCKET}/away/t")
    check("describe", "iceberg:lake.t", "--catalog", rest)
    check("maintain", "delta:s3://no-bucket/t")
    for wrong in (f"delta:s3://some-key:{SECRET}@bucket/t", f"delta:az://box/t?sig={SECRET}"):
        check("describe", wrong, code=2)
        (tmp_path / "tables.toml").write_text(f'[[table]]\ntopic = "secret"\nto = "{wrong}"\n')
        check("run", str(tmp_path / "tables.toml"))
    check("describe", "iceberg:lake.t", "--catalog", f"rest:https://{token}@host/", code=2)
