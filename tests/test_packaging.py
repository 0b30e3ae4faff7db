"""The metadata of the package say what the files of the repository say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import kbroker

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_licence_is_apaches_and_the_package_has_it() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text
    assert (PROJECT["license"], PROJECT["license-files"]) == ("Apache-2.0", ["LICENSE"])


def test_an_image_copies_what_the_build_reads() -> None:
    copied = re.search(r"^COPY (.*) \./$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert copied is not None
    needed = {"pyproject.toml", PROJECT["readme"], *PROJECT["license-files"]}
    assert needed <= set(copied[1].split())
    assert {f"!{name}" for name in needed} <= set((ROOT / ".dockerignore").read_text("utf-8").split())


def test_the_changelog_has_the_version_of_the_package() -> None:
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert versions[1] == kbroker.__version__


def test_every_dependency_and_extra_has_its_reason() -> None:
    rows = re.findall(r"^\| (`.+?) \|", (ROOT / "docs" / "dependencies.md").read_text("utf-8"), re.MULTILINE)
    named = re.findall(r"`([\w.-]+)`", " ".join(rows))
    packages = [re.split(r"[\[<>=~! ]", requirement)[0] for requirement in PROJECT["dependencies"]]
    assert sorted(named) == sorted([*packages, *PROJECT["optional-dependencies"]])


def test_every_extra_is_pinned() -> None:
    """`make` installs the versions that are developed with, whichever extra a target asks for."""
    pinned = {
        re.sub(r"[-_.]+", "-", line.split("==")[0]).lower()
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
        if "==" in line
    }
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(each for extra in extras.values() for each in extra)]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~! ]", requirement)[0]).lower() for requirement in wanted}
    assert names - pinned == {"kbroker"}
