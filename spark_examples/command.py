"""The command line of every script: arguments, a broker to work with, errors in one line."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException

from kbroker.testing.spark import SetupError
from spark_examples import ROOT
from spark_examples.processes import first_match, process

OUT = ROOT / "out"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


class _Help(argparse.HelpFormatter):
    """Help that ends with the default, where there is one that a person would write so."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        if isinstance(default, Path):
            default = os.path.relpath(default)
        if not isinstance(default, str | int | float) or isinstance(default, bool) or default == argparse.SUPPRESS:
            return text
        return text if text.endswith(")") else f"{text} ({default})".lstrip()


def bare_parser(description: str) -> argparse.ArgumentParser:
    """A parser that knows the script's name, and no option yet."""
    script = Path(sys.argv[0])
    name = f"python -m spark_examples.{script.stem}" if script.parent.name == "spark_examples" else None
    return argparse.ArgumentParser(prog=name, description=description, formatter_class=_Help)


def parser(description: str, *, own_broker: str | None = "over out/broker") -> argparse.ArgumentParser:
    """A parser with `--bootstrap`; `own_broker` tells of the kbroker that is started where it is not given."""
    made = bare_parser(description)
    address = "host:port of a running broker"
    if own_broker:
        without = f"; without it, a kbroker is started {own_broker}"
        made.add_argument("--bootstrap", metavar="ADDRESS", help=address + without)
    else:
        made.add_argument("--bootstrap", metavar="ADDRESS", default=DEFAULT_BOOTSTRAP, help=address)
    return made


def moment_ms(text: str) -> int:
    """ms since 1970 of an ISO date or time, UTC unless it says otherwise. Raises ValueError."""
    moment = datetime.datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp() * 1000)


class Main(Protocol):
    """A script's entry point; `argv` is the command line's by default."""

    def __call__(self, argv: list[str] | None = None) -> None: ...


def readable_errors(main: Main) -> Main:
    """A script's `main` whose expected errors are one line and exit code 1, and Ctrl-C is exit code 130."""

    @functools.wraps(main)
    def wrapped(argv: list[str] | None = None) -> None:
        try:
            main(argv)
        except SetupError as error:
            sys.exit(f"error: {error}")
        except KafkaException as error:
            sys.exit(f"error: {error.args[0].str()}")
        except KeyboardInterrupt:
            sys.exit(130)
        except Exception as error:
            # Spark's errors, known by their module: a script that only produces must not need Spark.
            if not type(error).__module__.startswith(("pyspark.errors", "py4j.protocol")):
                raise
            sys.exit(f"error: {_without_stack(str(error))}")

    return wrapped


def _without_stack(text: str) -> str:
    """Shorten an error of Spark or Java to one line without its stack."""
    lines = [line.strip() for line in re.split(r"\n\s+at |\n\nJVM stacktrace|\n== ", text)[0].splitlines()]
    if lines[0].startswith("An error occurred while calling"):  # py4j's own first line
        lines = lines[1:]
    return " ".join(line for line in lines if line).removeprefix(": ")[:600]


@contextlib.contextmanager
def broker(bootstrap: str | None) -> Iterator[str]:
    """The broker that was named, or else a kbroker that lives as long as the script, over `out/broker`.

    As the data outlive the script, so do topics, offsets and what a checkpoint says of them.
    """
    if bootstrap:
        yield bootstrap
        return
    started = time.monotonic()
    with kbroker_process(OUT / "broker") as own:
        print(f"kbroker ready on {own} after {time.monotonic() - started:.2f} s", file=sys.stderr)
        yield own


@contextlib.contextmanager
def kbroker_process(data: Path | None = None) -> Iterator[str]:
    """A kbroker in a process of its own, on a free port; yields its address. Raises SetupError.

    Its data are in the given folder, or else in a temporary one.
    """
    with tempfile.TemporaryDirectory(prefix="kbroker-example-") as scratch:
        folder = data if data is not None else Path(scratch) / "data"
        folder.parent.mkdir(parents=True, exist_ok=True)
        log = Path(scratch) / "broker.log"
        words = ["start", "--port", "0", "--data-dir", str(folder), "--until-eof"]
        with process(*words, log=log) as running:
            yield first_match(running, r"kbroker ready: (?:\w+://)?([^\s,]+:\d+)", log)
