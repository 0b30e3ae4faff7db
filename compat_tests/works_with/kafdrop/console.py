"""Kafdrop as its user meets it: its pages, and their answers in JSON."""

from __future__ import annotations

import json
import os
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compat_tests.works_with.kafdrop.build import built_jar
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running, wait_until
from kbroker.tools.cli.cluster_plan import free_ports


class Console:
    """The console at an address."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, path: str, form: Mapping[str, str] | None = None, accept: str = "text/html") -> str:
        """The page of a path, with a form that is posted where one is given. `OSError` for an error."""
        data = None if form is None else urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(self.address + path, data, {"Accept": accept})
        with urllib.request.urlopen(request, timeout=90) as answer:
            return str(answer.read().decode())

    def json(self, path: str) -> Any:
        """The answer of a path in JSON. `OSError` for an error."""
        return json.loads(self.ask(path, accept="application/json"))

    def await_json(self, path: str, is_right: Callable[[Any], bool], what: str) -> Any:
        """The answer of a path once it is right. While a node goes or comes, it may be an error or older before.

        Records may be missing at first: Kafdrop gives up after some polls without any.
        """
        found: Any = None

        def is_so() -> bool:
            nonlocal found
            try:
                found = self.json(path)
            except OSError:
                return False
            return is_right(found)

        wait_until(is_so, what, 120)
        return found

    def await_page(self, path: str, text: str) -> None:
        """Return once the page of a path has a text; records may be missing at first."""
        wait_until(lambda: text in self.ask(path), f"{text} in {path}", 120)


@contextmanager
def running_console(
    program: Program, bootstrap: str, directory: Path, properties: Mapping[str, str] | None = None
) -> Iterator[Console]:
    """The console of a cluster, started by the recipe; ``properties`` are a client's, where it needs some."""
    jar = Path(os.environ.get("KAFDROP_JAR") or built_jar(program))
    if not jar.exists():
        pytest.skip(f"{jar.name} is not there: build it (compat_tests/works_with/kafdrop/build.py) or set KAFDROP_JAR")
    (port,) = free_ports(1)
    console = Console(f"http://127.0.0.1:{port}")
    environment = {"KAFKA": bootstrap, "PORT": str(port), "KAFDROP_JAR": str(jar)}
    if properties is not None:
        file = directory / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), "utf-8")
        environment["KAFKA_PROPERTIES_FILE"] = str(file)

    def answers() -> bool:
        try:
            return bool(console.json("/"))
        except OSError:
            return False

    with Running(["sh", program.file("kafdrop.sh")], directory, "kafdrop", environment) as running:
        running.until(answers, "to answer", 240)
        yield console
