"""Damages files of one node or three and has them start again: what is lost, what cannot be read, what needs a person?

    python -m compat_tests.damage --tries 200                 kbroker, seeds 1 to 200 (make damage)
    python -m compat_tests.damage --seed 17                   one try again
    python -m compat_tests.damage --against kafka --tries 40  the same on Apache Kafka 4.4.0

A try takes the directories of nodes that stock clients have filled, and that were killed or stopped in good order. It
damages a file of one node (of three also files of two nodes), starts all, and reads everything with stock clients.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from random import Random

from compat_tests.damage.content import produce_content
from compat_tests.damage.damaging import KINDS, OF_PARTITIONS, WAYS, Damage, choose_kind, damage, files_of, snapshot_end
from compat_tests.damage.nodes import Nodes, Reader
from compat_tests.damage.oracle import Content, Losses, judge, losses
from tests.patience import FACTOR, LONG

CASES = ("lost", "wrong", "unread", "late", "not in sync", "person", "traceback", "client")
"""Faults of a try; these words in the table."""
START_SECONDS = 20 * FACTOR


@dataclass(frozen=True)
class Choice:
    """The choices that a seed makes. What the command line says takes their place, and changes none of the others."""

    nodes: int
    stop: str
    kind: str
    way: str
    second: bool
    client: str
    again: bool

    def __str__(self) -> str:
        return f"{self.nodes} node{'s' if self.nodes > 1 else ''}, {self.stop}"


@dataclass
class Result:
    """The outcome of a try: nothing `found` is as it should be."""

    seed: int
    choice: Choice
    damages: list[Damage]
    found: dict[str, list[str]] = field(default_factory=dict)
    refused: str = ""
    seconds: float = 0.0

    def note(self, case: str, what: str) -> None:
        """Note what is wrong."""
        self.found.setdefault(case, []).append(what)

    def tell(self, options: str) -> None:
        """Print what came of it, and how it is tried again."""
        outcome = ", ".join(self.found) or ("refused" if self.refused else "whole")
        print(f"seed {self.seed} [{self.choice}] {self.seconds:.1f} s: {outcome}", flush=True)
        if self.found or self.refused:
            print(f"    {'; '.join(map(str, self.damages))} (read by {self.choice.client})")
            for case, told in {**self.found, "refused": [self.refused] if self.refused else []}.items():
                print(*(f"    {case}: {each}\n" for each in told[:4]), sep="", end="")
        if self.found:
            print(f"    again: python -m compat_tests.damage --seed {self.seed} {options}", flush=True)


def choose(rng: Random, arguments: argparse.Namespace) -> Choice:
    """Choose what a try does."""
    nodes = 3 if rng.random() < 0.4 else 1
    stop = rng.choice(("kill", "stop"))
    second = rng.random() < 0.25
    if arguments.second is not None:
        second = arguments.second
    nodes, stop = arguments.nodes or nodes, arguments.stop or stop
    second = second and nodes > 1 and (arguments.kind is None or arguments.kind in OF_PARTITIONS)
    kind = choose_kind(rng, OF_PARTITIONS if second else [*KINDS])
    way = rng.choice(WAYS)
    client = "kafka-python" if rng.random() < 0.25 else "confluent-kafka"
    return Choice(nodes, stop, arguments.kind or kind, arguments.way or way, second, client, rng.random() < 0.15)


class Worker:
    """A directory of its own with nodes of each number and end: made once, copied for each try."""

    def __init__(self, arguments: argparse.Namespace, directory: Path) -> None:
        self._arguments = arguments
        self._directory = directory
        directory.mkdir(parents=True)
        self._reader = Reader(directory)
        self._made: dict[str, tuple[Nodes, Path, Content]] = {}

    def close(self) -> None:
        """End all processes."""
        self._reader.close()
        for nodes, _, _ in self._made.values():
            nodes.kill()

    def _prepared(self, choice: Choice) -> tuple[Nodes, Path, Content]:
        name = f"{choice.nodes}-{choice.stop}"
        if name not in self._made:
            (self._directory / name).mkdir()
            nodes = Nodes(self._arguments.against, choice.nodes, self._directory / name)
            nodes.launch()
            try:
                nodes.await_ready(LONG)
                content = produce_content(nodes.bootstrap, choice.nodes)
                # Who reads all until all replicas are in sync knows that nothing is under way.
                if problems := self._read(nodes, content, Losses(), "confluent-kafka", LONG, write=False):
                    raise SystemExit(f"{choice}, nothing damaged yet: {problems}")
                time.sleep(1)  # the metadata of the last voter, and the high watermarks of followers
                if choice.stop == "stop":
                    nodes.stop()
            finally:
                nodes.kill()
            saved = self._directory / f"{name}-saved"
            nodes.save(saved)
            self._made[name] = nodes, saved, content
        return self._made[name]

    def _read(
        self, nodes: Nodes, content: Content, may: Losses, client: str, limit: float, write: bool = True
    ) -> dict[str, list[str]]:
        """Returns what is wrong with what a client has seen."""
        needed = {name: each.keys() - may.offsets.get(name, set()) for name, each in content.records.items()}
        seen = self._reader.read_all(
            bootstrap=nodes.bootstrap,
            wanted={name: max(offsets, default=-1) for name, offsets in needed.items()},
            groups={group: sorted(partitions) for group, partitions in content.offsets.items()},
            client=client,
            limit=limit,
            in_sync=nodes.count > 1 and all(node.code is None for node in nodes.nodes),
            write=write,
        )
        return {"client": [seen]} if isinstance(seen, str) else judge(content, seen, may)

    def try_once(self, seed: int) -> Result:
        """Damage what the seed chooses, start the nodes, and judge what clients see."""
        begin = time.monotonic()
        rng = Random(seed)
        choice = choose(rng, self._arguments)
        nodes, saved, content = self._prepared(choice)
        nodes.restore(saved)
        result = Result(seed, choice, self._damage(rng, choice, nodes))
        try:
            self._check(result, nodes, content)
            if choice.again and not result.found and not result.refused:
                nodes.kill() if rng.random() < 0.5 else nodes.stop()
                self._check(result, nodes, content)
        finally:
            nodes.kill()
        if result.found and self._arguments.keep:
            nodes.save(Path(self._arguments.keep, str(seed)))
        result.seconds = time.monotonic() - begin
        return result

    def _damage(self, rng: Random, choice: Choice, nodes: Nodes) -> list[Damage]:
        """Damage a file; of two nodes, files of one partition, mostly of its log."""
        first = rng.randrange(nodes.count)
        files = files_of(nodes.nodes[first].data_dir)
        path = rng.choice(files.get(choice.kind) or files["log"])
        chosen = [(first, path, choice.way)]
        if choice.second:
            second = (first + 1 + rng.randrange(nodes.count - 1)) % nodes.count
            partition = path.split("/")[0] + "/"
            files = files_of(nodes.nodes[second].data_dir)
            own = [path for paths in files.values() for path in paths if path.startswith(partition)]
            logs = [path for path in own if path.endswith(".log")]
            chosen.append((second, rng.choice([*own, *(3 * logs)]), rng.choice(WAYS)))
        damages = []
        for index, path, way in chosen:
            directory = nodes.nodes[index].data_dir
            damages.append(damage(rng, way, index + 1, path, (directory / path).read_bytes()))
            damages[-1].apply(directory)
        return damages

    def _check(self, result: Result, nodes: Nodes, content: Content) -> None:
        """Start the nodes and read all; whatever is wrong goes into the result."""
        directory = nodes.nodes[result.damages[0].node - 1].data_dir
        may = losses(result.damages, content, nodes.count, snapshot_end(directory))
        nodes.launch()
        nodes.await_ready(START_SECONDS)
        if any(node.code is None for node in nodes.nodes):
            result.found = self._read(nodes, content, may, result.choice.client, self._arguments.limit)
        damaged = {each.node for each in result.damages}
        for number, node in enumerate(nodes.nodes, 1):
            log = node.log
            if self._arguments.against == "kbroker" and "Traceback" in log:
                result.note("traceback", f"node {number}: ...{log[log.index('Traceback') :][-600:]}")
            if node.code is not None:
                end = f"node {number} ended with code {node.code}: {log.strip()[-500:]}"
                if node.code and number in damaged and may.refusal and may.refusal.split("/")[0] in log:
                    result.refused = end
                else:
                    result.note("person", end)


def table(results: Sequence[Result]) -> str:
    """Returns what came of all tries, by the kind of file and the number of nodes."""
    rows = [["file", "nodes", "tries", "whole", "refused", *CASES]]
    groups: dict[tuple[int, str], list[Result]] = {}
    for each in results:
        kind = f"{each.damages[0].kind}{', of two' if each.choice.second else ''}"
        groups.setdefault((each.choice.nodes, kind), []).append(each)
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
    parser.add_argument("--limit", type=float, default=10 * FACTOR, help="seconds until all is read and in sync (10)")
    parser.add_argument("--nodes", type=int, choices=(1, 3), help="so many in every try")
    parser.add_argument("--stop", choices=("kill", "stop"), help="what ended the nodes before every try")
    parser.add_argument("--kind", choices=KINDS, help="the file of every try")
    parser.add_argument("--way", choices=WAYS, help="the damage of every try")
    second = parser.add_mutually_exclusive_group()
    second.add_argument("--two", dest="second", action="store_true", default=None, help="files of two nodes of three")
    second.add_argument("--one", dest="second", action="store_false", help="a file of one node of three")
    parser.add_argument("--keep", metavar="DIRECTORY", help="where the directories of failed tries are kept")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run the tries that the command line asks for; returns 1 if something is not as it should be."""
    arguments = parse(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nodes end with this process
    first = arguments.seed or 1
    count = arguments.tries or (1 if arguments.seed else 40)
    given = {name: vars(arguments)[name] for name in ("against", "nodes", "stop", "kind", "way")}
    options = " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in given.items() if value)
    if arguments.second is not None:
        options += " --two" if arguments.second else " --one"
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
                        print(f"{len(results)}/{count}", end=" ")
                        result.tell(options)
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


if __name__ == "__main__":
    sys.exit(main())
