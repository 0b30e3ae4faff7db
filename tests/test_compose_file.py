"""docker-compose.yml: its nodes are configured as they should be, and what its scripts make fits them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kbroker.config import BROKER_CONFIGS, BrokerConfig
from kbroker.config.environment import property_name
from kbroker.config.listeners import METRICS_LISTENER, http_address
from kbroker.config.node_per_core import core_properties
from kbroker.config.properties_file import read_properties_file
from kbroker.tools.cli.config_warnings import of_no_listener
from kbroker.tools.cli.container import container_properties
from kbroker.tools.cli.exposure import Exposure
from tests.patience import LONG

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docker-compose.yml").read_text("utf-8")
SECURE = ("secure-1", "secure-2", "secure-3")


def block(header: str, text: str = TEXT) -> str:
    """The lines under a line that begins with ``header``, without their indentation."""
    begin = re.search(rf"^( *){re.escape(header)}.*\n", text, re.MULTILINE)
    assert begin is not None, header
    lines = []
    for line in text[begin.end() :].splitlines():
        if line.strip() and len(line) - len(line.lstrip()) <= len(begin[1]):
            break
        lines.append(line)
    return textwrap.dedent("\n".join(lines))


def of_service(name: str) -> str:
    """The lines of a service."""
    return block(f"{name}:", block("services:"))


def variables(text: str) -> dict[str, str]:
    """Environment variables of a block, with the defaults of what compose fills in."""
    pairs = re.findall(r'^([A-Z_0-9]+): "?(.*?)"?$', text, re.MULTILINE)
    return {name: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value) for name, value in pairs}


def node(service: str, common: str) -> BrokerConfig:
    """A node of the file, as its container would be configured."""
    found = variables(block("x-environment:")) | variables(block(common))
    found |= variables(block("environment:", of_service(service)))
    return BrokerConfig.from_properties(container_properties(found))


def script(service: str) -> str:
    """The shell script of a service."""
    return block("- |", block("command:", of_service(service))).replace("$$", "$")


def test_the_compose_file_sets_properties_that_exist() -> None:
    names = {property_name(variable) for variable in variables(block("x-environment:")) if variable != "CLUSTER_ID"}
    assert names <= set(BROKER_CONFIGS) and len(names) > 10
    for prefix in ("kafka", "secure"):
        services = [f"{prefix}-{number}" for number in (1, 2, 3)]
        nodes = [node(service, f"x-{'secure-' * (prefix == 'secure')}environment:") for service in services]
        assert [config.node_id for config in nodes] == [1, 2, 3]
        assert not any(config.unknown or config.absent for config in nodes)
        voters = [(voter.node_id, voter.host) for voter in nodes[0].controller_quorum_voters]
        assert voters == list(enumerate(services, 1))
        for number, service in enumerate(services, 1):
            assert f'"--broker", "{number}"' in of_service(service), "each node's health check asks for that node"


def test_the_ports_that_a_machine_with_cores_advertises_are_published() -> None:
    found = variables(block("environment:", of_service("cores")))
    assert found["KBROKER_CORES"] == "2"
    properties = container_properties(found)
    nodes = [BrokerConfig.from_properties(core_properties(properties, core, 2, "cores")) for core in (1, 2)]
    ports = [
        [(own.port, told.port) for own, told in zip(each.broker_listeners, each.advertised_listeners, strict=True)]
        for each in nodes
    ]
    assert ports == [[(19092, 19092), (9092, 9492)], [(19093, 19093), (9093, 9493)]]
    assert "${CORES_PORT:-9492}-${CORES_LAST_PORT:-9493}:9092-9093" in of_service("cores")


@pytest.mark.parametrize("service", SECURE)
def test_a_secure_node_is_open_to_nobody(service: str) -> None:
    config = node(service, "x-secure-environment:")
    assert Exposure.of(config).lines() == []
    assert of_no_listener(config) == []


def test_only_its_own_services_are_in_the_profile() -> None:
    with_profile = block("x-secure-node:") + "".join(of_service(name) for name in ("secure-setup", "secure-client"))
    assert with_profile.count('profiles: ["secure"]') == 3
    assert all("<<: *secure-node" in of_service(name) for name in SECURE)
    assert "profiles" not in "".join(of_service(f"kafka-{number}") for number in (1, 2, 3))


def test_the_authoritys_key_is_mounted_in_one_service() -> None:
    mounts = re.findall(r"^ +- secure-authority:(\S+)$", TEXT, re.MULTILINE)
    assert mounts == ["/authority"] and "secure-authority:" in of_service("secure-setup")
    assert all(f"{name}-secrets:/etc/kafka/secrets:ro" in of_service(name) for name in SECURE)


def test_setup_makes_certificates_that_fit_and_keeps_them(tmp_path: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509")
    for name in ("authority", "clients", "bin", *(f"secrets/{service}" for service in SECURE)):
        (tmp_path / name).mkdir(parents=True)
    for command, line in (("kbroker", f'exec "{sys.executable}" -m kbroker "$@"'), ("chown", "exit 0")):
        (tmp_path / "bin" / command).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / "bin" / command).chmod(0o755)
    text = re.sub(r"(?<![\w.])/(authority|secrets|clients)\b", rf"{tmp_path}/\1", script("secure-setup"))
    environment = os.environ | {
        "PATH": os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
    }
    made: list[dict[Path, tuple[bytes, int]]] = []
    for _ in range(2):
        done = subprocess.run(["sh", "-euc", text], env=environment, capture_output=True, text=True, timeout=2 * LONG)
        assert done.returncode == 0, done.stderr
        files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
        made.append({path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files})
    assert made[0] == made[1], "a second start changes nothing: nodes would read their stores anew"
    names = {str(path.relative_to(tmp_path)) for path in made[0]}
    assert {name for name in names if name.endswith(".key")} == {"authority/ca.key"}
    for service in SECURE:
        files_of = {Path(name).name for name in names if name.startswith(f"secrets/{service}/")}
        assert files_of == {"ca.pem", "node.pem", "health.properties"}
        certificate = x509.load_pem_x509_certificate((tmp_path / "secrets" / service / "node.pem").read_bytes())
        hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert hosts.get_values_for_type(x509.DNSName) == [service, "localhost"]
        assert f"User:{certificate.subject.rfc4514_string()}" in variables(block("x-secure-environment:"))[
            "KAFKA_SUPER_USERS"
        ].split(";")
        health = read_properties_file(tmp_path / "secrets" / service / "health.properties")
        assert health["security.protocol"] == "SSL"
    assert all(path.stat().st_mode & 0o77 == 0 for path in made[0] if path.name in ("node.pem", "setup.pem", "ca.key"))


@pytest.mark.parametrize("service", ["secure-setup", "secure-client"])
def test_scripts_are_for_any_shell(service: str) -> None:
    done = subprocess.run(["sh", "-n"], input=script(service), capture_output=True, text=True, timeout=2 * LONG)
    assert script(service).strip() and done.returncode == 0, done.stderr


# --- the profile `metrics` ----------------------------------------------------------------------------------------

MONITORING = ROOT / "monitoring"


def mounts(service: str) -> dict[str, str]:
    """The folders of the repository that a service sees, by the path that it sees."""
    return {inside: outside for outside, inside in re.findall(r"- \./(\S+):(/\S+):ro", of_service(service))}


@pytest.mark.parametrize("service", ["prometheus", "grafana"])
def test_what_shows_metrics_runs_with_its_profile_alone(service: str) -> None:
    assert 'profiles: ["metrics"]' in of_service(service)
    assert re.search(rf'"127\.0\.0\.1:\$\{{{service.upper()}_PORT:-\d+\}}:\d+"', of_service(service))
    for path in mounts(service).values():
        assert (ROOT / path).is_dir(), path


def test_prometheus_asks_each_node_where_its_metrics_are() -> None:
    config = (ROOT / mounts("prometheus")["/etc/prometheus"] / "prometheus.yml").read_text("utf-8")
    targets = re.findall(r'"([\w-]+):(\d+)"', re.search(r"targets: (.*)", config)[1])  # type: ignore[index]
    assert [service for service, _ in targets] == ["kafka-1", "kafka-2", "kafka-3"]
    for service, port in targets:
        address = http_address(node(service, "x-environment:").raw, METRICS_LISTENER)
        assert address == ("", int(port)), "on all interfaces of the container, and published nowhere"
        assert port not in "".join(re.findall(r"^ +- .*:(\d+)\"$", of_service(service), re.MULTILINE))
    for secure in SECURE:
        assert http_address(node(secure, "x-secure-environment:").raw, METRICS_LISTENER) is None
    (rules,) = re.findall(r"- (/etc/prometheus/\S+)", config)
    assert (MONITORING / "prometheus" / Path(rules).name).is_file()
    (job,) = re.findall(r"job_name: (\w+)", config)
    jobs = re.findall(r'up\{job=~"(.*?)"\}', (MONITORING / "prometheus" / "alerts.yml").read_text("utf-8"))
    assert len(jobs) == 1 and re.fullmatch(jobs[0], job)


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    folders = mounts("grafana")
    provisioning = ROOT / folders["/etc/grafana/provisioning"]
    source = (provisioning / "datasources" / "prometheus.yml").read_text("utf-8")
    (port,) = re.findall(r"url: http://prometheus:(\d+)$", source, re.MULTILINE)
    assert f':{port}"' in of_service("prometheus")
    (path,) = re.findall(r"path: (\S+)", (provisioning / "dashboards" / "kbroker.yml").read_text("utf-8"))
    home = variables(block("environment:", of_service("grafana")))["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).parent == Path(path)
    assert (ROOT / folders[path] / Path(home).name).is_file()


def test_the_files_are_yaml() -> None:
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load(TEXT)
    assert set(compose["services"]) >= {"kafka-1", "prometheus", "grafana"}
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source.startswith("./") or source in compose["volumes"], volume
    for path in MONITORING.rglob("*.yml"):
        assert yaml.safe_load(path.read_text("utf-8")), path
    alerts = yaml.safe_load((MONITORING / "prometheus" / "alerts.yml").read_text("utf-8"))
    for rule in alerts["groups"][0]["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"} and rule["labels"]["severity"], rule


def test_the_image_can_serve_metrics() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    assert re.search(r"^ARG EXTRAS=.*\bmetrics\b", text, re.MULTILINE) and '".[$EXTRAS]"' in text
