"""The clock that nodes have in a test's own event loop."""

from __future__ import annotations

import threading
import time

import pytest
import trio

from tests.node.patient_clock import STEP_SECONDS, THREADS, WORK, PatientClock, run_patiently


def test_what_keeps_the_loop_from_its_turn_does_not_count() -> None:
    real = processor = 100.0
    threads = 0
    clock = PatientClock(lambda: real, lambda: processor, lambda: threads)
    clock.start_clock()
    began = clock.current_time()
    real, processor = real + 60, processor + 0.004  # work, and others have had the processor in between
    assert clock.current_time() - began == pytest.approx(0.004 * WORK)
    began = clock.current_time()
    assert clock.deadline_to_sleep_time(began + 0.015) == pytest.approx(0.015)
    assert clock.deadline_to_sleep_time(began + 60) == STEP_SECONDS
    clock.before_io_wait(0.015)
    real += 30
    clock.after_io_wait(0.015)
    assert clock.current_time() - began == pytest.approx(0.015)  # a wait, after which others had the processor
    began = clock.current_time()
    clock.before_io_wait(0.015)
    real += 0.005
    clock.after_io_wait(0.015)
    assert clock.current_time() - began == pytest.approx(0.005)  # one that ended early
    began, threads = clock.current_time(), 1
    clock.before_io_wait(0.1)
    real += 0.1
    clock.after_io_wait(0.1)
    assert clock.current_time() - began == pytest.approx(0.1 * THREADS)  # for a thread, which may get no turn


def test_deadlines_come_while_the_loop_waits_and_not_while_it_is_kept_from_it() -> None:
    async def main() -> None:
        began = time.perf_counter()
        with trio.fail_after(0.3):
            time.sleep(0.5)  # the machine is busy with something else
            await trio.lowlevel.checkpoint()
        with trio.move_on_after(0.1) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught and time.perf_counter() - began > 0.6

    run_patiently(main)


def test_a_thread_that_has_to_wait_for_its_disk_takes_little_of_anybodys_time() -> None:
    gate = threading.Event()

    async def main() -> None:
        with trio.fail_after(0.3):
            await trio.to_thread.run_sync(time.sleep, 0.6)
        with trio.move_on_after(0.02) as scope:  # though one hangs
            await trio.to_thread.run_sync(gate.wait, abandon_on_cancel=True)
        assert scope.cancelled_caught

    try:
        run_patiently(main)
    finally:
        gate.set()
