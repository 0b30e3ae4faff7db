"""Runs every example as its README says and writes what they print into docs/spark_examples.md.

    python -m spark_examples.page

For a clone in which none has run: a second run would find nothing new. Takes five to eight minutes on two cores.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys

from kbroker.testing.spark import SetupError
from spark_examples import ROOT
from spark_examples.command import OUT, readable_errors

PAGE = ROOT / "docs" / "spark_examples.md"

COMMANDS = (
    "demo",
    "batch_report --from 2013-06-01 --to 2013-07-01 --plot out/june.png",
    "delays",
    "weather_join",
    "planes_join",
    "stream_available_now",
    "upserts",
    "dead_letters --spoil 100",
    "secure",
    "table_report",
)

HEAD = """# What the Spark examples print

<!-- Made by `python -m spark_examples.page` from their runs. -->

Each command as `spark_examples/README.md` has it, in a new clone, on kbroker. Counts and means are those of the data
set, whichever broker it is; `compat_tests/spark/test_examples.py` compares them with pandas on slices of it, and the
demo on all of it.
"""

PLOTS = {
    "demo": """The first plot, `out/mean_delay_by_carrier.png`, has a bar for each carrier from Spark's batch, a dot
from its stream and a cross from pandas, one upon the other: from 3.8 minutes (US) to 20.2 (F9). The second,
`out/delay_by_day_and_origin.png`, has a line for each of New York's airports from the result topic, through pandas'
dots: the storms of February 8th to 11th, and of the 27th, stand out.""",
    "batch_report": "`out/june.png` has the same means as bars, the late carriers to the right.",
}

OF_THE_MACHINE = ("seconds ", "plot ", "replayed ")
"""The beginnings of lines that differ from machine to machine, or with another folder."""


def printed(command: str) -> str:
    """Run a command and return its output, less the lines that differ in each run. Raises SetupError if it fails."""
    script, *arguments = shlex.split(command)
    done = subprocess.run(
        [sys.executable, "-m", f"spark_examples.{script}", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SetupError(f"{command} ended with exit code {done.returncode}")
    lines = [line.rstrip() for line in done.stdout.splitlines() if not line.startswith(OF_THE_MACHINE)]
    return "\n".join(lines).strip()


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for command in COMMANDS:
        print(f"--- {command}", file=sys.stderr)
        script = command.split()[0]
        parts += [f"## {script}\n", f"    python -m spark_examples.{command}\n", f"```text\n{printed(command)}\n```\n"]
        if script in PLOTS:
            parts.append(f"{PLOTS[script]}\n")
    return "\n".join(parts)


@readable_errors
def main(argv: list[str] | None = None) -> None:
    argparse.ArgumentParser("python -m spark_examples.page", description=__doc__).parse_args(argv)
    if (OUT / "broker").exists():
        raise SetupError(f"{OUT} has what earlier runs left: remove it, or use a new clone")
    PAGE.write_text(page())
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
