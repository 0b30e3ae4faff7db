"""Apache Kafka 4.4.0 for this repository: had from Maven, run on loopback; the command-line tools are those of 4.3.1,
or of 4.4.0 where that is asked for.

It is the judge of every compatibility case: a case that fails against it is wrong. Needs ``java`` (17 or later) and
``mvn``. Everything lands under ``.cache`` of the repository (another place: environment variable ``KBROKER_CACHE``).

    python -m compat_tests.apache_kafka home                  resolve the jars, print the directory
    python -m compat_tests.apache_kafka start [--port N]      format and start one combined node, print its address
    python -m compat_tests.apache_kafka stop                  stop it and remove its data
    python -m compat_tests.apache_kafka tool kafka-topics ...  run one of its tools
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG

SERVER_VERSION = "4.4.0"
"""The release whose nodes are started, and format their directories."""
KAFKA_VERSION = "4.3.1"
"""The release of the tools that most tests run."""
LOG4J_VERSION = "2.25.4"

TOOLS: dict[str, str] = {
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
}
"""Tool name (as in Kafka's ``bin`` without ``.sh``) -> main class in 4.3.1."""

_LOGGING = (
    ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-1.2-api", LOG4J_VERSION),
)

SERVER_JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""The options of Kafka's own start script, for a server that is measured."""
TOOL_JVM_OPTIONS = ("-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""A tool lives for a second or two, a test's node not much longer: the fastest start counts, not the best code."""


class ApacheKafkaError(Exception):
    """Apache Kafka could not be had, started or stopped; the message says why."""


def cache_dir() -> Path:
    """Directory for what is fetched or built by tests: ``KBROKER_CACHE`` or ``.cache`` of the repository."""
    value = os.environ.get("KBROKER_CACHE")
    return Path(value) if value else Path(__file__).resolve().parent.parent / ".cache"


@contextlib.contextmanager
def locked(name: str) -> Iterator[Path]:
    """Hold an exclusive lock named `name` in the cache, so that two test runs do not build one thing at once."""
    cache = cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f".{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield cache


def resolve_jars(dependencies: Sequence[tuple[str, str, str]], target: Path) -> None:
    """Copy the run-time closure of Maven `dependencies` (group, artifact, version) into `target`."""
    mvn = shutil.which("mvn")
    if mvn is None:
        raise ApacheKafkaError("mvn is not installed: Apache Kafka's jars are resolved by Maven")
    with tempfile.TemporaryDirectory() as work:
        entries = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency>"
            for group, artifact, version in dependencies
        )
        Path(work, "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>kbroker</groupId>"
            "<artifactId>compat-tests</artifactId><version>1</version><packaging>pom</packaging>"
            f"<dependencies>{entries}</dependencies></project>"
        )
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        command = [mvn, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        result = subprocess.run([*command, f"-DoutputDirectory={partial}"], cwd=work, capture_output=True, text=True)
        if result.returncode:
            raise ApacheKafkaError(f"mvn failed: {result.stdout[-2000:]}{result.stderr[-2000:]}")
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)


def kafka_home(version: str = KAFKA_VERSION) -> Path:
    """Directory with ``libs/*.jar`` and ``config/`` of a release; resolves the jars the first time (a minute or so)."""
    home = cache_dir() / f"kafka-{version}"
    if not (home / "libs").is_dir():
        with locked(f"kafka-{version}"):
            if not (home / "libs").is_dir():
                home.mkdir(parents=True, exist_ok=True)
                _write_log_configs(home / "config")
                artifacts = ["kafka_2.13"] if version == SERVER_VERSION else ["kafka_2.13", "kafka-tools"]
                kafka = [("org.apache.kafka", artifact, version) for artifact in artifacts]
                resolve_jars([*kafka, *_LOGGING], home / "libs")
    return home


def tool_jars(version: str = KAFKA_VERSION) -> list[Path]:
    """Entries of the class path that a release's tools need besides its `kafka_home`; resolved the first time."""
    if version != SERVER_VERSION:
        return []
    target = cache_dir() / f"kafka-tools-{version}"
    if not target.is_dir():
        with locked(target.name):
            if not target.is_dir():
                resolve_jars([("org.apache.kafka", "kafka-tools", version)], target)
    return [target / "*"]


def class_archive(version: str = KAFKA_VERSION) -> Path:
    """The file that holds a release's classes as this machine's Java loads them; `class_archive.py` makes it."""
    java = Path(shutil.which("java") or "java").resolve()
    digest = hashlib.sha256(f"{java} {java.exists() and java.stat().st_mtime}".encode()).hexdigest()[:12]
    return kafka_home(version) / f"classes-{digest}.jsa"


def short_lived_options(version: str = KAFKA_VERSION) -> tuple[str, ...]:
    """JVM options of a process that tests start: `TOOL_JVM_OPTIONS`, and the release's `class_archive` if it is there.

    An archive that Java cannot use is passed over; what it would say of that is not for standard output.
    """
    archive = class_archive(version)
    sharing = (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable") if archive.exists() else ()
    return (*TOOL_JVM_OPTIONS, *sharing)


def kafka_jars() -> list[Path]:
    """All jars of Apache Kafka and what it needs, sorted by name."""
    return sorted((kafka_home() / "libs").glob("*.jar"))


def java_command(
    main_class: str,
    *arguments: str,
    jvm_options: Sequence[str] | None = None,
    log_config: str = "tools-log4j2.properties",
    logs_dir: Path | None = None,
    class_path: Sequence[Path] = (),
    version: str = KAFKA_VERSION,
) -> list[str]:
    """The command line that runs `main_class` on a release's class path, to which `class_path` is added.

    `jvm_options` are `short_lived_options` by default.
    """
    home = kafka_home(version)
    java = shutil.which("java")
    if java is None:
        raise ApacheKafkaError("java is not installed: Apache Kafka needs Java 17 or later")
    # The release's jars first: only what has the same beginning can use the archive of their classes.
    path = ":".join([f"{home}/libs/*", *map(str, class_path)])
    return [
        java,
        *(short_lived_options(version) if jvm_options is None else jvm_options),
        f"-Dlog4j2.configurationFile={home / 'config' / log_config}",
        f"-Dkafka.logs.dir={logs_dir or tempfile.gettempdir()}",
        "-cp",
        path,
        main_class,
        *arguments,
    ]


def tool_class(name: str) -> str:
    """Main class of the tool `name`; ApacheKafkaError for an unknown one."""
    if name not in TOOLS:
        raise ApacheKafkaError(f"no tool {name!r}; there are: {', '.join(sorted(TOOLS))}")
    return TOOLS[name]


def tool_command(
    name: str, *arguments: str, version: str = KAFKA_VERSION, jvm_options: Sequence[str] | None = None
) -> list[str]:
    """The command line of the tool `name` with `arguments`."""
    main_class = tool_class(name)
    class_path = tool_jars(version) if main_class.startswith("org.apache.kafka.tools.") else []
    return java_command(main_class, *arguments, version=version, class_path=class_path, jvm_options=jvm_options)


def tool(
    name: str,
    *arguments: str,
    stdin: str | bytes | None = None,
    timeout: float = 2 * LONG,
    check: bool = False,
    version: str = KAFKA_VERSION,
    jvm_options: Sequence[str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command-line tool of Apache Kafka to its end, its output captured as text.

    Raises subprocess.TimeoutExpired after `timeout` seconds, and ApacheKafkaError on an exit code other than 0 if
    `check`.
    """
    data = stdin.encode() if isinstance(stdin, str) else stdin
    command = tool_command(name, *arguments, version=version, jvm_options=jvm_options)
    raw = subprocess.run(command, input=data, capture_output=True, timeout=timeout)
    result = subprocess.CompletedProcess(
        raw.args, raw.returncode, raw.stdout.decode(errors="replace"), raw.stderr.decode(errors="replace")
    )
    if check and result.returncode:
        raise ApacheKafkaError(f"{name} exited {result.returncode}: {result.stdout}{result.stderr}")
    return result


def random_uuid() -> str:
    """A cluster id as ``kafka-storage random-uuid`` prints one."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _write_log_configs(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, level, target in (
        ("log4j2.properties", "info", "SYSTEM_OUT"),
        ("tools-log4j2.properties", "warn", "SYSTEM_ERR"),
    ):
        lines = [
            "appenders=c",
            "appender.c.type=Console",
            "appender.c.name=C",
            f"appender.c.target={target}",
            "appender.c.layout.type=PatternLayout",
            "appender.c.layout.pattern=[%d] %p %m (%c)%n",
            f"rootLogger.level={level}",
            "rootLogger.appenderRef.c.ref=C",
        ]
        (directory / name).write_text("\n".join(lines) + "\n")


@dataclass
class ApacheKafka:
    """One combined node (broker and controller) of Apache Kafka on loopback; a context manager.

    `directory` holds its properties, log and data and is removed on exit if it was made here. `properties` are added
    to (or replace) those of the stock server.properties, of which what equals its default is left out; "" leaves one
    out. `heap` is the JVM's heap option, the stock script's by default; `jvm_options` are its others, and
    `short_lived_options` stand in for them. `cluster_id` is a new one by default; `format_options` are those of
    kafka-storage, `version` is the release.
    """

    directory: Path | None = None
    port: int = 0
    controller_port: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    heap: Sequence[str] = ("-Xmx1G", "-Xms1G")
    jvm_options: Sequence[str] | None = None
    start_timeout: float = LONG
    node_id: int = 1
    cluster_id: str = ""
    format_options: Sequence[str] = ("--standalone",)
    version: str = SERVER_VERSION
    format_seconds: float = 0
    process: subprocess.Popen[bytes] | None = None
    _own_directory: bool = False
    _launched: float = 0

    @property
    def bootstrap(self) -> str:
        """``host:port`` of the client listener."""
        return f"127.0.0.1:{self.port}"

    @property
    def data_dir(self) -> Path:
        """The log directory."""
        assert self.directory is not None
        return self.directory / "data"

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        assert self.process is not None
        return self.process.pid

    def __enter__(self) -> ApacheKafka:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
        if self._own_directory and self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def format(self) -> None:
        """Write the properties file and format the log directory (once)."""
        if self.directory is None:
            self.directory = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
            self._own_directory = True
        self.directory.mkdir(parents=True, exist_ok=True)
        free = free_ports(2)
        self.port, self.controller_port = self.port or free[0], self.controller_port or free[1]
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **self.properties,
        }
        path = self.directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items() if value))
        if not (self.data_dir / "meta.properties").exists():
            begin = time.monotonic()
            self.cluster_id = self.cluster_id or random_uuid()
            arguments = ("format", "-t", self.cluster_id, "-c", str(path), *self.format_options)
            options = self.jvm_options and TOOL_JVM_OPTIONS  # who names options measures, and gets no archive
            tool("kafka-storage", *arguments, check=True, version=self.version, jvm_options=options)
            self.format_seconds = time.monotonic() - begin

    def start(self, *, detached: bool = False) -> None:
        """Format if needed, start, and wait until it accepts requests. ApacheKafkaError if it ends or takes too
        long."""
        self.launch(detached=detached)
        self.await_started()

    def launch(self, *, detached: bool = False) -> None:
        """Format if needed, and start: nodes of one quorum wait for one another."""
        self.format()
        assert self.directory is not None
        options = short_lived_options(self.version) if self.jvm_options is None else self.jvm_options
        command = java_command(
            "kafka.Kafka",
            str(self.directory / "server.properties"),
            jvm_options=(*options, *self.heap),
            log_config="log4j2.properties",
            logs_dir=self.directory / "logs",
            version=self.version,
        )
        self._launched = time.monotonic()
        with open(self.directory / "server.log", "wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=detached
            )

    def await_started(self) -> None:
        """Return once it accepts requests. ApacheKafkaError if it ends or takes too long."""
        assert self.directory is not None and self.process is not None
        log = self.directory / "server.log"
        deadline = self._launched + self.start_timeout
        while b"Kafka Server started" not in log.read_bytes():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                tail = log.read_text(errors="replace")[-3000:]
                raise ApacheKafkaError(f"Apache Kafka did not start:\n{tail}")
            # A poll of another process's log file, bounded by the deadline above.
            time.sleep(0.05)

    def stop(self, timeout: float = 15) -> None:
        """SIGTERM, and SIGKILL if it has not ended after `timeout` seconds."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def kill(self) -> None:
        """SIGKILL: what a crash leaves behind is what is on disk."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _start_command(options: argparse.Namespace) -> int:
    directory = Path(options.dir) if options.dir else cache_dir() / "apache-kafka-run"
    if (directory / "pid").exists():
        raise ApacheKafkaError(f"{directory / 'pid'} exists: stop that node first")
    properties = dict(pair.split("=", 1) for pair in options.option)
    node = ApacheKafka(directory.resolve(), options.port, properties=properties, jvm_options=SERVER_JVM_OPTIONS)
    node.start(detached=True)
    (directory / "pid").write_text(f"{node.pid}\n")
    print(f"apache-kafka ready: {node.bootstrap} pid={node.pid} dir={directory}", flush=True)
    return 0


def _stop_command(options: argparse.Namespace) -> int:
    directory = Path(options.dir) if options.dir else cache_dir() / "apache-kafka-run"
    pid_file = directory / "pid"
    if pid_file.exists():
        pid = int(pid_file.read_text())
        deadline = time.monotonic() + 15
        number = signal.SIGTERM
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(pid, number)
                number = signal.SIGKILL if time.monotonic() > deadline else signal.Signals(signal.SIGTERM)
                time.sleep(0.1)
        pid_file.unlink()
    if not options.keep:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.apache_kafka", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("home", help="resolve the jars and print the directory")
    start = commands.add_parser("start", help="format and start one combined node")
    start.add_argument("--port", type=int, default=0, help="client port; 0 picks a free one")
    start.add_argument("-o", "--option", action="append", default=[], metavar="NAME=VALUE")
    stop = commands.add_parser("stop", help="stop the node and remove its data")
    stop.add_argument("--keep", action="store_true", help="keep the data")
    for command in (start, stop):
        command.add_argument("--dir", help="where its data and log live")
    run = commands.add_parser("tool", help="run one of its command-line tools")
    run.add_argument("name")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    try:
        if options.command == "home":
            print(kafka_home())
            print(kafka_home(SERVER_VERSION))
            return 0
        if options.command == "start":
            return _start_command(options)
        if options.command == "stop":
            return _stop_command(options)
        return subprocess.run(tool_command(options.name, *options.arguments)).returncode
    except ApacheKafkaError as error:
        print(f"apache_kafka: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
