"""This machine is looked at: limits of the process, and the kernel's word about the clock."""

from __future__ import annotations

import ctypes
import struct
import sys
from typing import Final

from kbroker.tools.doctor.facts import MachineFacts

_TIMEX_BYTES: Final = 256
"""At least the size of ``struct timex`` on any Linux."""

_TIMEX: Final = struct.Struct("=I4xqqqqi")
"""Its beginning on 64 bits: modes, offset, freq, maxerror, esterror, status."""

_UNSYNCHRONISED: Final = 0x40
_ERROR: Final = 5


def machine_facts() -> MachineFacts:
    """The facts of the machine and this user's limits."""
    soft, hard = _open_files()
    synchronised, error_ms = _clock()
    return MachineFacts(soft, hard, synchronised, error_ms)


def _open_files() -> tuple[int | None, int | None]:
    try:
        import resource
    except ImportError:
        return None, None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return tuple(None if each == resource.RLIM_INFINITY else each for each in (soft, hard))  # type: ignore[return-value]


def _clock() -> tuple[bool | None, float | None]:
    """Whether the clock is kept right, and by how many ms it may be off (``adjtimex``, which changes nothing here)."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None, None
    try:
        call = ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):
        return None, None
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
    state = call(buffer)
    if state < 0:
        return None, None
    _, _, _, most, _, status = _TIMEX.unpack_from(buffer)
    is_right = state != _ERROR and not status & _UNSYNCHRONISED
    return is_right, most / 1000 if is_right else None
