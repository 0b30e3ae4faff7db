"""Recipes in Java: what they need on this machine, and the class path they are run with."""

from __future__ import annotations

import shutil

import pytest

from compat_tests.works_with.program import Program

NEEDS_JAVA = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("java", "javac", "mvn")), reason="needs a JDK and Maven"
)


def class_path(program: Program, *sources: str) -> str:
    """The value of CLASSPATH for a recipe: its sources, compiled anew, and its jars."""
    return ":".join(map(str, (program.classes(*sources), *program.jars())))
