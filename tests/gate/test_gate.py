"""The gate runs again what failed, alone, and the mark `flaky` has an end: judged by real runs of make and pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.gate.__main__ import Run, run, run_again
from tests.gate.changed import dependents
from tests.gate.steady import changed_tests, run_thrice
from tests.gate.steps import FIRST, REST, ROOT, Step, part_of

STEP = Step("some tests", ("test",), minutes=1)

TESTS = """
from pathlib import Path

def fails_once(name):
    seen = Path(__file__).with_name(name)
    if not seen.exists():
        seen.touch()
        raise AssertionError("not yet")

def test_that_fails_once():
    fails_once("once")

def test_that_passes():
    pass
"""


@pytest.fixture
def judged(tmp_path: Path) -> Callable[[str], Run]:
    """Judges a file of tests as a step of the gate is judged."""

    def judge(tests: str) -> Run:
        (tmp_path / "test_some.py").write_text(tests)
        quick = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"
        (tmp_path / "Makefile").write_text(f"test:\n\t{quick} {sys.executable} -m pytest test_some.py\n")
        done = run(STEP, tmp_path, root=tmp_path)
        run_again([done], tmp_path, root=tmp_path)
        return done

    return judge


def test_what_passes_alone_does_not_refuse(judged: Callable[[str], Run]) -> None:
    done = judged(TESTS)
    assert not done.refuses
    assert [case.name for case in done.unsteady] == ["test_some::test_that_fails_once"]
    assert "not yet" in done.unsteady[0].text
    assert "unsteady" in done.row()


def test_what_fails_twice_refuses(judged: Callable[[str], Run]) -> None:
    done = judged(TESTS + "\n\ndef test_that_fails():\n    assert 1 == 2\n")
    assert done.refuses
    assert [case.name for case in done.unsteady] == ["test_some::test_that_fails_once"]


def test_more_than_ten_failures_are_no_accident(judged: Callable[[str], Run]) -> None:
    many = "".join(f"\n\ndef test_number_{number}():\n    fails_once('{number}')\n" for number in range(10))
    assert judged(TESTS + many).refuses
    assert not judged(TESTS.replace('"once"', '"first"') + many.replace("number_9", "no_number")).refuses


@pytest.mark.parametrize(
    "end", ["import os, signal; os.kill(os.getpid(), signal.SIGINT)", "import os; os._exit(1)", "raise SystemExit(1)"]
)
def test_a_run_that_came_to_no_end_refuses(judged: Callable[[str], Run], end: str) -> None:
    done = judged(TESTS + f"\n\ndef test_the_end():\n    {end}\n\n\ndef test_after_it():\n    pass\n")
    assert done.refuses


def test_a_file_that_cannot_be_read_refuses(judged: Callable[[str], Run]) -> None:
    assert judged("import no_such_module\n").refuses


def test_a_flaky_test_is_excused_for_two_weeks(tmp_path: Path) -> None:
    ages = {"new": (0, ""), "old": (14, ""), "too_old": (15, "over 14 days"), "not_yet": (-2, "a day to come")}
    days = {name: date.today() - timedelta(days=age) for name, (age, _) in ages.items()}
    mark = "@pytest.mark.flaky(since='{}', why='a port is taken')\ndef test_{}_{}():\n    assert {}\n"
    ends = {"passes": "True", "fails": "1 == 2"}
    made = [mark.format(day, name, how, end) for name, day in days.items() for how, end in ends.items()]
    (tmp_path / "test_some.py").write_text("import pytest\n" + "".join(made))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.flaky", "-ra", "--strict-markers", tmp_path],
        cwd=ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    for name, (_, refused_by) in ages.items():
        for how in ends:
            told = re.search(rf"ERROR at setup of test_{name}_{how} _+\n(.*)", done.stdout)
            assert (refused_by in told[1]) if told else not refused_by, done.stdout
        if not refused_by:
            assert f"flaky since {days[name]}, a port is taken: assert 1 == 2" in done.stdout
    assert "2 passed, 2 xfailed, 4 errors" in done.stdout


def test_all_tests_know_the_mark() -> None:
    assert all("tests.flaky" in (ROOT / folder / "conftest.py").read_text() for folder in ("tests", "compat_tests"))


def test_no_folder_falls_between_the_steps() -> None:
    """The step for all others leaves out just those folders that other steps name."""
    words = [word for step in [*FIRST, *REST] for argument in step.arguments for word in argument.split()]
    named = {word.removeprefix("ONLY=") for word in words if word.removeprefix("ONLY=").startswith("compat_tests/")}
    left_out = {word.partition("--ignore=")[2] for word in words if "--ignore=compat_tests/" in word}
    assert left_out and left_out <= named
    assert all((ROOT / path).is_dir() for path in left_out)
    assert named - left_out == {"compat_tests/spark/test_sink.py::test_from_topic_to_topic_and_again"}


def test_no_mark_falls_between_the_steps() -> None:
    """A step of its own runs what `make test` leaves out because it is long, or needs more than Python."""
    [left_out] = re.findall(r"pytest tests -m '(.*)' ", (ROOT / "Makefile").read_text())
    marks = " or ".join(left_out.removeprefix("not ").split(" and not "))
    steps = [step.arguments for step in REST if "ONLY=tests" in step.arguments]
    assert steps == [("test", "ONLY=tests", f"ARGS=-m '{marks}'")]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_are_the_whole(count: int) -> None:
    steps = [*FIRST, *REST]
    parts = [step.name for number in range(1, count + 1) for step in part_of(steps, number, count)]
    assert sorted(parts) == sorted(step.name for step in steps)


def test_a_change_has_the_tests_run_that_depend_on_it() -> None:
    of_doctor = dependents(["kbroker/tools/doctor/checks/groups.py"])
    assert "tests/doctor/test_checks.py" in of_doctor
    assert "tests/log/test_recovery.py" not in of_doctor
    assert {"tests/log/test_recovery.py", "tests/node/test_kill_9.py"} <= set(dependents(["kbroker/log/recovery.py"]))
    assert "tests/log/test_crash_points.py" in dependents(["tests/log/log_helpers.py"])
    of_a_page = dependents(["docs/testing.md"])
    assert "tests/test_testing_page.py" in of_a_page
    assert "tests/log/test_recovery.py" not in of_a_page
    for of_all in ("tests/conftest.py", "tests/coroutines.py"):
        assert "tests/log/test_recovery.py" in dependents([of_all])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Returns the root of a repository whose tests have changed in a branch."""

    def git(*words: str) -> None:
        names = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
        subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--initial-branch", "main")
    files = {name: tmp_path / "tests" / f"test_{name}.py" for name in ("same", "one", "helped", "new")}
    files["same"].parent.mkdir()
    for file in list(files.values())[:3]:
        file.write_text("SIZE = 1\n\n\ndef test_first():\n    pass\n\n\ndef test_second():\n    pass\n")
    git("add", ".")
    git("commit", "-m", "tests")
    git("checkout", "-b", "branch")
    files["same"].write_text("# A comment.\n" + files["same"].read_text())
    files["one"].write_text(files["one"].read_text() + "    assert SIZE\n")
    files["helped"].write_text(files["helped"].read_text().replace("SIZE = 1", "SIZE = 2"))
    files["new"].write_text("def test_third():\n    with open('rounds', 'a') as file:\n        file.write('.')\n")
    return tmp_path


def test_new_and_changed_tests_are_run_three_times(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    tests = changed_tests(repository)
    assert tests == ["tests/test_helped.py", "tests/test_new.py::test_third", "tests/test_one.py::test_second"]
    assert run_thrice(tests, ["-q"], repository, load_processes=1) == 0
    assert (repository / "rounds").read_text() == "..."
    (repository / "tests" / "test_new.py").write_text("def test_third():\n    assert not 1\n")
    assert run_thrice(tests, ["-q"], repository, load_processes=1) == 1
