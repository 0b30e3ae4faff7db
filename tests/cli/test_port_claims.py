"""Ports that a process has chosen are nobody else's, whether anybody listens there yet or not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.errors import FatalError
from kbroker.tools.cli.cluster_plan import HOST, free_ports
from kbroker.tools.cli.port_claims import MOST, PortClaims, listening_ports

_OTHER = """
import sys
from pathlib import Path
from kbroker.tools.cli.port_claims import PortClaims
print(PortClaims(Path(sys.argv[1])).claim(int(sys.argv[2])))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "claims"


def other_process_gets(file: Path, port: int) -> bool:
    """Whether another process may have it."""
    done = subprocess.run([sys.executable, "-c", _OTHER, str(file), str(port)], capture_output=True, text=True)
    return {"True\n": True, "False\n": False}[done.stdout]


def test_another_process_does_not_get_a_chosen_port(file: Path) -> None:
    """Locks hold between processes only, so another one has to be asked."""
    mine = PortClaims(file)
    assert mine.claim(31_000)
    assert not mine.claim(31_000)
    assert not other_process_gets(file, 31_000)
    assert other_process_gets(file, 31_001)
    mine.release(31_000)
    assert other_process_gets(file, 31_000)


def test_what_a_process_had_is_free_when_it_has_ended(file: Path) -> None:
    assert other_process_gets(file, 31_000)
    assert other_process_gets(file, 31_000)


def test_a_forked_process_has_no_claims_and_takes_none_away(file: Path) -> None:
    mine = PortClaims(file)
    assert mine.claim(31_000)
    child = os.fork()
    if child == 0:
        # It does not return into pytest.
        code = 1
        try:
            code = 0 if not mine.claim(31_000) and mine.claim(31_001) else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert not other_process_gets(file, 31_000)
    assert mine.claim(31_001)


def own_ports(count: int) -> range:
    """Ports in a row at which nobody else is going to listen."""
    found = free_ports(count, in_row=True)
    return range(found[0], found[-1] + 1)


def test_no_port_is_chosen_twice_and_none_that_is_listened_on(file: Path) -> None:
    claims, ports = PortClaims(file), own_ports(3)
    with socket.socket() as listening:
        listening.bind((HOST, ports[1]))
        listening.listen()
        first, second = claims.choose(HOST, 1, ports=ports), claims.choose(HOST, 1, ports=ports)
        assert first is not None and second is not None
        assert {*first, *second} == {ports[0], ports[2]}
        assert claims.choose(HOST, 1, ports=ports) is None


def test_when_there_are_not_enough_none_is_kept(file: Path) -> None:
    claims, ports = PortClaims(file), own_ports(3)
    assert claims.choose(HOST, 4, ports=ports) is None
    assert sorted(claims.choose(HOST, 3, ports=ports) or ()) == list(ports)


def test_ports_in_a_row(file: Path) -> None:
    claims, ports = PortClaims(file), own_ports(20)
    assert claims.claim(ports[9])
    row = claims.choose(HOST, 6, ports=ports, in_row=True)
    assert row is not None and row == list(range(row[0], row[0] + 6)) and ports[9] not in row
    assert claims.choose(HOST, 30, ports=ports, in_row=True) is None


def test_a_process_keeps_the_latest(file: Path) -> None:
    claims = PortClaims(file)
    assert all(claims.claim(port) for port in range(20_000, 20_001 + MOST))
    assert not claims.claim(20_001)
    assert claims.claim(20_000)


def test_without_a_file_ports_are_chosen_all_the_same(tmp_path: Path) -> None:
    claims = PortClaims(tmp_path / "missing" / "claims")
    assert claims.claim(31_000) and not claims.claim(31_000)


@pytest.mark.parametrize(
    ("outgoing", "expected"),
    [
        ("32768\t60999\n", range(15_000, 32_000)),
        ("15000\t65000\n", range(2_000, 15_000)),
        ("1024\t20000\n", range(20_001, 65_536)),
        ("1024\t65535\n", range(15_000, 32_000)),
        ("no numbers", range(15_000, 32_000)),
    ],
)
def test_ports_lie_beside_those_of_outgoing_connections(tmp_path: Path, outgoing: str, expected: range) -> None:
    told = tmp_path / "ip_local_port_range"
    told.write_text(outgoing)
    assert listening_ports(told) == expected
    assert listening_ports(tmp_path / "missing") == range(15_000, 32_000)


def test_what_is_impossible_is_said() -> None:
    with pytest.raises(FatalError, match="no 70000 free ports"):
        free_ports(70_000, in_row=True)
