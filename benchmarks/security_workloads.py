"""TLS, SCRAM and ACLs: throughput, many connections, handshakes, and those connected while others shake hands."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks import raw
from benchmarks.clients import HERE, SECONDS_LIMIT, LoadError
from benchmarks.secure_servers import USER, Secure, SecureKbroker
from benchmarks.servers import Server
from benchmarks.workloads import Bench, Figures, Workload, stored_records

PARTITIONS = 6
SIZE = 1000
THREADS = 16
"""Handshakes under way at a time; more than either broker serves at once."""
STORM = 500
"""Handshakes a second that those who are connected have beside them."""
NICENESS = 15
"""Of the clients of a storm: they are to take time from the broker's clients by what the broker does alone."""


def _secure(server: Server) -> Secure:
    assert isinstance(server, Secure)
    return server


def _settings(server: Server) -> list[str]:
    return [f"{name}={value}" for name, value in _secure(server).tls.librdkafka().items()]


def _compiled(scratch: Path) -> Path:
    """load_tls.c, compiled for this machine; LoadError where that cannot be done."""
    program = scratch / "load_tls"
    if not program.exists():
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise LoadError("the load of TLS connections needs a C compiler, and OpenSSL's headers")
        command = [compiler, "-O2", "-o", str(program), str(HERE / "load_tls.c"), "-lssl", "-lcrypto", "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LoadError(f"load_tls.c, which needs OpenSSL's headers, is not compiled: {done.stderr[-500:]}")
    return program


def _load_tls(
    bench: Bench, server: Server, mode: str, ports: object, *arguments: object, user: str = USER, niceness: int = 0
) -> subprocess.Popen[str]:
    """Start load_tls, without a ``user`` for the listener SSL. ``niceness``: others have the processors first."""
    secure = _secure(server)
    fixed = [mode, ports, secure.ca, secure.identity, user, secure.password]
    command = [str(_compiled(bench.scratch)), *map(str, fixed), *map(str, arguments)]
    if niceness:
        command = ["nice", "-n", str(niceness), *command]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def _figures(load: subprocess.Popen[str]) -> dict[str, Any]:
    """The load's figures, at its end. Raises LoadError."""
    try:
        output, errors = load.communicate(timeout=SECONDS_LIMIT)
    except subprocess.TimeoutExpired:
        load.kill()
        raise LoadError(f"load_tls did not end within {SECONDS_LIMIT} s") from None
    if load.returncode:
        raise LoadError(f"load_tls failed: {errors[-500:]}")
    return dict(json.loads(output.splitlines()[-1]))


def produce(bench: Bench, server: Server) -> Figures:
    """All records acknowledged, and all of them found in the topic afterwards."""
    count = bench.amount(600_000, 200_000)
    topic = bench.new_topic(server, PARTITIONS)
    before, address = server.cpu_seconds(), _secure(server).tls_bootstrap
    result = bench.load.run("produce", address, topic, count, SIZE, "acks=all", *_settings(server))
    cpu = server.cpu_seconds() - before
    stored = stored_records(server, topic, PARTITIONS)
    if stored < count:
        raise LoadError(f"{count:,} records were acknowledged, {stored:,} are there")
    bench.delete_topic(server, topic)
    return {"MB_per_s": result["records"] / result["seconds"] / 1e3, "cpu_s_per_GB": cpu / (count / 1e6)}


def consume(bench: Bench, server: Server) -> Figures:
    """From the beginning to the end of a topic in the page cache."""
    topic, count = bench.filled_topic(server, SIZE, PARTITIONS)
    before, address = server.cpu_seconds(), _secure(server).tls_bootstrap
    result = bench.load.run("consume", address, topic, PARTITIONS, count, *_settings(server))
    cpu = server.cpu_seconds() - before
    return {"MB_per_s": result["records"] / result["seconds"] / 1e3, "cpu_s_per_GB": cpu / (count / 1e6)}


def small_requests(bench: Bench, server: Server) -> Figures:
    """100 connections over SASL_SSL, each with one Produce request of one record under way."""
    topic = bench.new_topic(server, PARTITIONS)
    ports = _secure(server).ports_of_leaders(topic)
    for partition, port in enumerate(ports):
        raw.await_record(server.host, server.port + port - _secure(server).sasl_port, topic, partition)
    frames = bench.scratch / "frames"
    frames.write_bytes(b"".join(raw.produce_frame(topic, index, b"x" * 100) for index in range(PARTITIONS)))
    offset, seconds = raw.produce_error_offset(topic), bench.amount(8, 4)
    joined = ",".join(map(str, ports))
    load = _load_tls(bench, server, "requests", joined, frames, PARTITIONS, 100, seconds, offset)
    assert load.stdout is not None
    load.stdout.readline()  # all are connected: `handshakes` measures what that takes
    before = server.cpu_seconds()
    result = _figures(load)  # which closes its standard input: it begins
    cpu = server.cpu_seconds() - before
    stored = stored_records(server, topic, PARTITIONS)
    if stored < result["requests"]:
        raise LoadError(f"{result['requests']:,} requests were answered, {stored:,} records are there")
    bench.delete_topic(server, topic)
    return {
        "requests_per_s": result["requests"] / result["seconds"],
        "cpu_us_per_request": cpu / result["requests"] * 1e6,
    }


def requests_to_two_nodes(bench: Bench, server: Server) -> Figures:
    """The same with a kbroker node for each of two cores, where the server is kbroker: another one is started."""
    if not isinstance(server, SecureKbroker):
        return small_requests(bench, server)
    two = type(server)()
    two.options = ("--cores", "2")
    try:
        two.start()
        two.await_port()
        two.await_nodes(2)
        two.create_user()
        return small_requests(bench, two)
    finally:
        two.stop()


def handshakes(bench: Bench, server: Server) -> Figures:
    """Connect with a certificate, authenticate with SCRAM, close: as many as the server takes."""
    before = server.cpu_seconds()
    result = _figures(_load_tls(bench, server, "handshakes", _secure(server).sasl_port, THREADS, bench.amount(8, 4), 0))
    cpu = server.cpu_seconds() - before
    return {
        "connections_per_s": result["connections"] / result["seconds"],
        "connections_per_cpu_s": result["connections"] / cpu,
    }


def storm(bench: Bench, server: Server) -> Figures:
    """Measure the latency of one message at a time over TLS, undisturbed and while other clients come and log in.

    On two processors neither broker comes to so many logins: the figures say how many there were.
    """
    return _beside(bench, server, _secure(server).sasl_port, USER)


def storm_of_tls(bench: Bench, server: Server) -> Figures:
    """The same while others come with TLS alone, which takes a third of the time: their number can be had."""
    return _beside(bench, server, _secure(server).ssl_port, "")


def _beside(bench: Bench, server: Server, port: int, user: str) -> Figures:
    topic = bench.new_topic(server, 1)
    address, seconds = _secure(server).tls_bootstrap, bench.amount(8, 4)
    options = ["acks=all", "linger.ms=0", *_settings(server)]
    count = bench.amount(4_000, 2_000)
    idle = bench.load.run("latency", address, topic, count, 100, *options)["p99_ms"]
    load = _load_tls(bench, server, "handshakes", port, THREADS, seconds, STORM, user=user, niceness=NICENESS)
    try:
        time.sleep(1)  # the storm is there before it is measured
        slowed: list[float] = []
        while load.poll() is None:
            slowed.append(bench.load.run("latency", address, topic, 200, 100, *options)["p99_ms"])
        result = _figures(load)
    finally:
        load.kill()
        load.wait()
    bench.delete_topic(server, topic)
    p99 = statistics.median(slowed)
    return {
        "connections_per_s": result["connections"] / result["seconds"],
        "p99_idle_ms": idle,
        "p99_ms": p99,
        "p99_growth": p99 / idle,
    }


def warm_up(bench: Bench, server: Server) -> Figures:
    """Not reported. With TLS, a JVM needs half a minute of small requests until they cost what they will cost."""
    raw.await_record(server.host, server.port, "first")
    _secure(server).create_user()
    for _ in range(2):
        produce(bench, server)
    consume(bench, server)
    for _ in range(3):
        small_requests(bench, server)
    handshakes(bench, server)
    return {}


SECURITY_WARM_UP = Workload("tls-warm-up", "warm-up, not reported", warm_up, "secure")

SECURITY_WORKLOADS: tuple[Workload, ...] = (
    SECURITY_WARM_UP,
    Workload("tls-produce", "TLS: produce 1 KB, librdkafka, acks=all, 6 partitions", produce, "secure"),
    Workload("tls-consume", "TLS: consume 1 KB, librdkafka, 6 partitions", consume, "secure"),
    Workload("tls-requests", "100 connections over SASL_SSL, small synchronous produce", small_requests, "secure"),
    Workload(
        "tls-requests-cores",
        "100 connections over SASL_SSL, small synchronous produce, kbroker with --cores 2",
        requests_to_two_nodes,
        "secure",
    ),
    Workload("tls-handshakes", "mutual TLS and SCRAM", handshakes, "secure"),
    Workload("tls-storm", f"one message at a time beside {STORM} logins a second: mutual TLS, SCRAM", storm, "secure"),
    Workload(
        "tls-storm-handshakes", f"one message at a time beside {STORM} handshakes a second", storm_of_tls, "secure"
    ),
)
"""Run on secure servers, once asked for; the first is not reported."""
