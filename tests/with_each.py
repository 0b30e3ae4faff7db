"""One test of many values, and how many: ten thousand tests take longer to be listed and reported than to be run."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any


def examples(count: int) -> int:
    """Returns how many of `count` examples a property has: a quarter, or as many percent as the environment says."""
    return max(1, count * int(os.environ.get("KBROKER_EXAMPLES", "25")) // 100)


def with_each(values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs a test with each of the values, whichever fail; a failure names its value.

    The first parameters of the test get the value: several, if that is a tuple. The others are fixtures, which all
    values share.
    """
    given = [value if isinstance(value, tuple) else (value,) for value in values]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def with_all(**fixtures: Any) -> None:
            failures: list[Exception] = []
            for value in given:
                try:
                    test(*value, **fixtures)
                except Exception as failure:
                    failure.add_note(f"for {', '.join(str(getattr(part, '__name__', part)) for part in value)}")
                    failures.append(failure)
            if failures:
                raise failures[0] if len(failures) == 1 else ExceptionGroup(f"{len(failures)} failures", failures[:10])

        signature = inspect.signature(test)
        fixtures = list(signature.parameters.values())[len(given[0]) :]
        with_all.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]  # pytest reads it
        return with_all

    return decorate
