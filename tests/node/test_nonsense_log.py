"""A client that speaks another protocol does not fill the log, however often it comes."""

from __future__ import annotations

from kbroker.env import RealEnv
from kbroker.node.nonsense_log import SILENT_SECONDS, NonsenseLog


class Clock(RealEnv):
    at = 100.0

    def now(self) -> float:
        return self.at


def test_one_line_in_a_while_with_the_number_of_the_others() -> None:
    env = Clock()
    log = NonsenseLog(env)
    assert [log.line("a TLS hello") for _ in range(5)] == ["a TLS hello", None, None, None, None]
    env.at += SILENT_SECONDS
    assert log.line("HTTP") == "HTTP (and 4 more since the last such line)"
    env.at += SILENT_SECONDS
    assert log.line("HTTP") == "HTTP"
