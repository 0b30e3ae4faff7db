"""Damages files of one node or three and has them start again: what is lost, what cannot be read, what needs a person?

    python -m compat_tests.damage --tries 200                 kbroker, seeds 1 to 200 (make damage)
    python -m compat_tests.damage --seed 17                   one try again
    python -m compat_tests.damage --against kafka --tries 40  the same on Apache Kafka 4.4.0

A try takes the directories of nodes that stock clients have filled, and that were killed or stopped in good order. It
damages a file of one node (of three also files of two nodes), starts all, and reads everything with stock clients.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any

from compat_tests.damage.content import produce_content
from compat_tests.damage.damaging import KINDS, METADATA, OF_PARTITIONS, WAYS, Damage, choose_kind, damage, files_of
from compat_tests.damage.nodes import Nodes, Reader
from compat_tests.damage.oracle import Content, Losses, judge, losses
from tests.patience import FACTOR, LONG

CASES = ("lost", "wrong", "unread", "late", "not in sync", "person", "traceback", "client")
"""What is wrong with a try; these words in the table."""
START_SECONDS = 20 * FACTOR


@dataclass(frozen=True)
class Setup:
    """A configuration of the nodes before the damage."""

    nodes: int
    stop: str

    def __str__(self) -> str:
        return f"{self.nodes} node{'s' if self.nodes > 1 else ''}, {self.stop}"


@dataclass(frozen=True)
class Choice:
    """The choices that a seed makes. What the command line says takes their place, and changes none of the others."""

    setup: Setup
    kind: str
    way: str
    second: bool
    client: str
    again: bool


@dataclass
class Result:
    """What came of a try: nothing `found` is as it should be."""

    seed: int
    choice: Choice
    damages: list[Damage]
    found: dict[str, list[str]]
    refused: str = ""
    seconds: float = 0.0

    def row(self) -> dict[str, Any]:
        """Returns the result as a line of JSON has it."""
        return {
            "seed": self.seed,
            "nodes": self.choice.setup.nodes,
            "stop": self.choice.setup.stop,
            "damage": [str(each) for each in self.damages],
            "kind": self.choice.kind,
            "way": self.choice.way,
            "found": self.found,
            "refused": self.refused,
            "seconds": round(self.seconds, 1),
        }


def choose(rng: Random, arguments: argparse.Namespace) -> Choice:
    """Choose what a try does."""
    nodes = 3 if rng.random() < 0.4 else 1
    stop = rng.choice(("kill", "stop"))
    setup = Setup(arguments.nodes or nodes, arguments.stop or stop)
    kinds = [kind for kind in KINDS if setup.stop == "stop" or kind != "clean-shutdown file"]
    two = rng.random() < 0.25
    second = setup.nodes > 1 and (two if arguments.second is None else arguments.second)
    kind = choose_kind(rng, OF_PARTITIONS if second else kinds)
    way = rng.choice(WAYS)
    client = "kafka-python" if rng.random() < 0.25 else "confluent-kafka"
    return Choice(setup, arguments.kind or kind, arguments.way or way, second, client, rng.random() < 0.15)


class Worker:
    """A directory of its own with the nodes of each setup: made once, copied for each try."""

    def __init__(self, arguments: argparse.Namespace, directory: Path) -> None:
        self._arguments = arguments
        self._directory = directory
        directory.mkdir(parents=True)
        self._reader = Reader(directory)
        self._setups: dict[Setup, tuple[Nodes, Path, Content]] = {}

    def close(self) -> None:
        """End all processes."""
        self._reader.close()
        for nodes, _, _ in self._setups.values():
            nodes.kill()

    def _prepared(self, setup: Setup) -> tuple[Nodes, Path, Content]:
        if setup not in self._setups:
            place = self._directory / str(setup).replace(", ", "-").replace(" ", "-")
            (place / "run").mkdir(parents=True)
            nodes = Nodes(self._arguments.against, setup.nodes, place / "run")
            nodes.launch()
            try:
                nodes.await_ready(LONG)
                content = produce_content(nodes.bootstrap, setup.nodes)
                # Who reads all until all replicas are in sync knows that nothing is under way.
                seen = self._read(nodes, content, Losses(), "confluent-kafka", LONG, write=False)
                problems = (
                    judge(content, seen, losses((), content, 1)) if isinstance(seen, dict) else {"client": [seen]}
                )
                if problems:
                    raise SystemExit(f"{setup}, nothing damaged yet: {problems}")
                time.sleep(1)  # the metadata of the last voter, and the high watermarks of followers
            except BaseException:
                nodes.kill()
                raise
            nodes.stop() if setup.stop == "stop" else nodes.kill()
            nodes.save(place / "saved")
            self._setups[setup] = nodes, place / "saved", content
        return self._setups[setup]

    def _read(
        self,
        nodes: Nodes,
        content: Content,
        may: Losses,
        client: str,
        limit: float,
        *,
        write: bool = True,
        in_sync: bool = True,
    ) -> dict[str, Any] | str:
        lost = may.offsets
        return self._reader.read_all(
            bootstrap=nodes.bootstrap,
            wanted={
                name: max(each.keys() - lost.get(name, set()), default=-1) for name, each in content.records.items()
            },
            groups={group: sorted(partitions) for group, partitions in content.offsets.items()},
            client=client,
            limit=limit,
            in_sync=in_sync,
            write=write,
        )

    def try_once(self, seed: int) -> Result:
        """Damage what the seed chooses, start the nodes, and judge what clients see."""
        begin = time.monotonic()
        rng = Random(seed)
        choice = choose(rng, self._arguments)
        nodes, saved, content = self._prepared(choice.setup)
        nodes.restore(saved)
        damages = self._damage(rng, choice, nodes)
        may = losses(damages, content, choice.setup.nodes)
        result = Result(seed, choice, damages, {})
        try:
            self._check(result, nodes, content, may)
            if choice.again and not result.found and not result.refused:
                nodes.kill() if rng.random() < 0.5 else nodes.stop()
                self._check(result, nodes, content, may)
        finally:
            nodes.kill()
        if result.found and self._arguments.keep:
            nodes.save(Path(self._arguments.keep) / str(seed))
        result.seconds = time.monotonic() - begin
        return result

    def _damage(self, rng: Random, choice: Choice, nodes: Nodes) -> list[Damage]:
        first = rng.randrange(nodes.count)
        directory = nodes.nodes[first].data_dir
        files = files_of(directory)
        paths = files.get(choice.kind) or files["log"]
        damages = [self._damage_of(rng, choice.way, first, rng.choice(paths), directory)]
        if choice.second:
            second = (first + 1 + rng.randrange(nodes.count - 1)) % nodes.count
            directory = nodes.nodes[second].data_dir
            partition = damages[0].path.split("/")[0]
            assert partition != METADATA
            paths = [
                path
                for kind, each in files_of(directory).items()
                for path in each
                if path.startswith(f"{partition}/") and (kind.startswith("log") or rng.random() < 0.3)
            ]
            damages.append(self._damage_of(rng, rng.choice(WAYS), second, rng.choice(paths), directory))
        for each in damages:
            each.apply(nodes.nodes[each.node - 1].data_dir)
        return damages

    def _damage_of(self, rng: Random, way: str, index: int, path: str, directory: Path) -> Damage:
        return damage(rng, way, index + 1, path, (directory / path).read_bytes())

    def _check(self, result: Result, nodes: Nodes, content: Content, may: Losses) -> None:
        """Start the nodes and read all; whatever is wrong goes into the result."""
        nodes.launch()
        nodes.await_ready(START_SECONDS)
        damaged = {each.node for each in result.damages}
        if all(node.code is None for node in nodes.nodes) or nodes.count > 1:
            seen = self._read(
                nodes,
                content,
                may,
                result.choice.client,
                self._arguments.limit,
                in_sync=nodes.count > 1 and all(node.code is None for node in nodes.nodes),
            )
            found = judge(content, seen, may) if isinstance(seen, dict) else {"client": [seen]}
            result.found.update(found)
        for number, node in enumerate(nodes.nodes, 1):
            log = node.log
            if self._arguments.against == "kbroker" and "Traceback" in log:
                result.found.setdefault("traceback", []).append(
                    f"node {number}: ...{log[log.index('Traceback') :][-600:]}"
                )
            if node.code is not None:
                end = f"node {number} ended with code {node.code}: {log.strip()[-500:]}"
                told = may.refusal is not None and may.refusal.rpartition("/")[2] in log
                if told and number in damaged and node.code:
                    result.refused = end
                else:
                    result.found.setdefault("person", []).append(end)


def table(results: Sequence[Result]) -> str:
    """Returns what came of all tries, by the kind of file and the number of nodes."""
    rows = [["file", "nodes", "tries", "whole", "refused", *CASES]]
    groups: dict[tuple[int, str], list[Result]] = {}
    for each in results:
        kind = f"{each.choice.kind}, of two" if each.choice.second else each.choice.kind
        groups.setdefault((each.choice.setup.nodes, kind), []).append(each)
    for (nodes, kind), tries in [*sorted(groups.items()), ((0, "all"), list(results))]:
        counts = Counter(case for each in tries for case in each.found)
        whole = sum(not each.found and not each.refused for each in tries)
        numbers = [len(tries), whole, sum(bool(each.refused) for each in tries), *(counts[case] for case in CASES)]
        rows.append([kind, str(nodes or ""), *(str(number or "") for number in numbers)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(
        "python -m compat_tests.damage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, help="of the first try (1); without --tries, of the only one")
    parser.add_argument("--tries", type=int, help="how many (40)")
    parser.add_argument("--against", choices=("kbroker", "kafka"), default="kbroker")
    parser.add_argument("--jobs", type=int, default=1, help="how many tries at a time")
    parser.add_argument(
        "--limit", type=float, default=10 * FACTOR, help="seconds in which all must be read and in sync"
    )
    parser.add_argument("--nodes", type=int, choices=(1, 3), help="so many in every try")
    parser.add_argument("--stop", choices=("kill", "stop"), help="what ended the nodes before every try")
    parser.add_argument("--kind", choices=KINDS, help="the file of every try")
    parser.add_argument("--way", choices=WAYS, help="the damage of every try")
    second = parser.add_mutually_exclusive_group()
    second.add_argument("--two", dest="second", action="store_true", default=None, help="files of two nodes of three")
    second.add_argument("--one", dest="second", action="store_false", help="a file of one node of three")
    parser.add_argument("--keep", metavar="DIRECTORY", help="where the directories of failed tries are kept")
    parser.add_argument("--json", metavar="FILE", help="add a line of JSON for each try")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run the tries that the command line asks for; returns 1 if something is not as it should be."""
    arguments = parse(words)
    first = arguments.seed or 1
    count = arguments.tries or (1 if arguments.seed else 40)
    given = [
        f"--{name} '{value}'"
        for name in ("against", "nodes", "stop", "kind", "way")
        if (value := vars(arguments)[name])
    ]
    given += [] if arguments.second is None else ["--two" if arguments.second else "--one"]
    results: list[Result] = []
    idle: SimpleQueue[Worker] = SimpleQueue()

    def run(seed: int) -> Result:
        worker = idle.get()
        try:
            return worker.try_once(seed)
        finally:
            idle.put(worker)

    with tempfile.TemporaryDirectory(prefix="damage-") as directory:
        workers = [Worker(arguments, Path(directory, str(number))) for number in range(arguments.jobs)]
        try:
            for worker in workers:
                idle.put(worker)
            with ThreadPoolExecutor(arguments.jobs) as pool:
                try:
                    for future in as_completed([pool.submit(run, seed) for seed in range(first, first + count)]):
                        result = future.result()
                        results.append(result)
                        _tell(result, len(results), count, " ".join(given), arguments)
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        finally:
            for worker in workers:
                worker.close()
    print(table(results))
    failed = sorted(result.seed for result in results if result.found)
    print(f"{len(failed)} of {count} tries are not as they should be{': seeds ' if failed else ''}{failed or ''}")
    return bool(failed)


def _tell(result: Result, done: int, count: int, given: str, arguments: argparse.Namespace) -> None:
    outcome = ", ".join(result.found) or ("refused" if result.refused else "whole")
    choice = result.choice
    print(f"{done}/{count} seed {result.seed} [{choice.setup}] {result.seconds:.1f} s: {outcome}", flush=True)
    if result.found:
        print(f"    {'; '.join(map(str, result.damages))} (read by {choice.client})")
        for case, told in result.found.items():
            print(*(f"    {case}: {each}" for each in told[:4]), sep="\n")
        print(f"    again: python -m compat_tests.damage --seed {result.seed} {given}", flush=True)
    if arguments.json:
        with open(arguments.json, "a") as file:
            file.write(json.dumps(result.row()) + "\n")


if __name__ == "__main__":
    sys.exit(main())
