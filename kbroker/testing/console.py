"""``kbroker faults --console``: a console beside nodes whose faults its page may switch.

The console is a process of its own, with one end of a socket. Over it come lines of JSON: ``{"run": LINE}`` does what
``kbroker faults`` does with the line, ``{"state": true}`` asks for what is on and what has been done. Each is answered
by one line, with the ``number`` of the question.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from kbroker.errors import FatalError
from kbroker.testing.script import WORDS, FaultScript
from kbroker.tools.cli.child import running_kbroker

SHOWN: Final = 200
"""Of all that was done, the latest."""

_STOP_SECONDS: Final = 3.0


@contextmanager
def console_for(
    script: FaultScript, bootstrap: str, listen: str, run: Callable[[str], tuple[bool, str]], *, writes: bool
) -> Iterator[str]:
    """A console until the block ends; the line that says where it is. ``run`` does a line: (whether it could, text).

    Without ``writes`` its page changes nothing: lines may delete topics, too.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = ["console", "-b", bootstrap, "--listen", listen, *(["--writes"] if writes else []), "--until-eof"]
        handed_on = theirs.fileno()
        with running_kbroker(
            *words, "--faults-fd", str(handed_on), stop_seconds=_STOP_SECONDS, pass_fds=[handed_on]
        ) as process:
            theirs.close()
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            if not line:
                raise FatalError(f"the console did not start (exit code {process.wait()}); what it told is above")
            threading.Thread(target=_answer_all, args=(ours, script, run), daemon=True).start()
            yield line


def _answer_all(end: socket.socket, script: FaultScript, run: Callable[[str], tuple[bool, str]]) -> None:
    """Answer what the console asks, until it is gone."""
    try:
        with end.makefile("rwb") as lines:
            for line in lines:
                asked = json.loads(line)
                answer = _state(script) if "run" not in asked else _done(*run(str(asked["run"])))
                lines.write(json.dumps({**answer, "number": asked.get("number")}).encode() + b"\n")
                lines.flush()
    except (OSError, ValueError):
        pass  # it has ended


def _done(could: bool, text: str) -> dict[str, Any]:
    return {"told": text} if could else {"error": text}


def _state(script: FaultScript) -> dict[str, Any]:
    record = script.faults.record
    return {
        "active": [{"number": fault.number, "text": str(fault), "hits": fault.hits} for fault in script.faults.active],
        "done": [str(each) for each in record[-SHOWN:]],
        "total": len(record),
        "words": [
            {"word": name, "subject": word.subject, "needs": list(word.needs), "takes": list(word.takes)}
            for name, word in WORDS.items()
            if name not in ("list", "undo", "clear") and not word.of_all
        ],
        "nodes": script.has_nodes,
    }
