"""``python -m kbroker.tools.cli.kafka_tools NAME [OPTION...]``: run a tool.

The exit code is 0, or 1 as of Kafka's tools.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

from kbroker.errors import FatalError
from kbroker.tools.cli.kafka_tools.options import Options, UsageError

TOOLS: Final = {
    "kafka-broker-api-versions": "broker_api_versions",
    "kafka-cluster": "cluster",
    "kafka-console-consumer": "console_consumer",
    "kafka-console-producer": "console_producer",
    "kafka-consumer-groups": "consumer_groups",
    "kafka-topics": "topics",
}
"""Tool -> its module here: ``OPTIONS`` that it serves, ``run``, and perhaps ``COMMANDS``, one of which comes first."""


def main(words: list[str]) -> int:
    """Run the tool that the first word names, and say in one line why it could not do what it was asked."""
    name = words[0] if words else ""
    if name not in TOOLS:
        print(f"kbroker has these of Kafka's tools: {', '.join(TOOLS)}", file=sys.stderr)
        return 1
    module = importlib.import_module(f"kbroker.tools.cli.kafka_tools.{TOOLS[name]}")
    rest = words[1:]
    try:
        if rest in ([], ["--help"]):
            print(f"{name} of kbroker's image has these of Kafka's options:", *sorted(module.OPTIONS), sep="\n  --")
            return 0 if rest else 1
        commands: tuple[str, ...] = getattr(module, "COMMANDS", ())
        if commands and rest.pop(0) not in commands:
            raise UsageError(f"its first word is to be one of these: {', '.join(commands)}")
        code: int = module.run(Options(name, module.OPTIONS, rest))
        sys.stdout.flush()
        return code
    except FatalError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is written at exit
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
