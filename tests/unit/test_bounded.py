"""A generator in another process: its results, and the ways in which it can end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from validator.stream.bounded import MEMORY_BYTES, Ended, bounded


def numbers(most: int, *, step: int = 1) -> Iterator[int]:
    yield from range(0, most, step)


def huge(after: int) -> Iterator[int]:
    yield from range(after)
    yield len(b"x" * (MEMORY_BYTES + 1))


def killed(number: int) -> Iterator[int]:
    yield os.getpid()
    os.kill(os.getpid(), number)


def failing() -> Iterator[int]:
    yield 1
    raise ValueError("no such thing")


def slow() -> Iterator[int]:
    yield os.getpid()
    threading.Event().wait(60)


def late(number: int) -> int:
    threading.Event().wait(4)
    return number


class Late(int):
    """A number whose unpickling takes seconds, as do the imports on a busy host."""

    def __reduce__(self) -> tuple[Callable[[int], int], tuple[int]]:
        return late, (int(self),)


def test_yielded_items_are_returned() -> None:
    assert list(bounded(20, numbers, 7, step=3)) == [0, 3, 6]
    assert list(bounded(20, numbers, 0)) == []


def test_memory_is_bounded_and_earlier_items_are_kept() -> None:
    found = []
    with pytest.raises(Ended, match="768 MiB of memory") as ended:
        found.extend(bounded(60, huge, 2))
    assert ended.value.by_memory
    items = bounded(60, huge, 2)
    assert [next(items), next(items)] == [0, 1]


@pytest.mark.parametrize(("number", "by_memory"), [(signal.SIGABRT, True), (signal.SIGTERM, False)])
def test_a_library_that_aborts_ends_no_other_process(number: int, by_memory: bool) -> None:
    items = bounded(20, killed, number)
    assert next(items) != os.getpid()
    with pytest.raises(Ended) as ended:
        next(items)
    assert ended.value.by_memory == by_memory


def test_the_error_of_the_child_is_reported() -> None:
    items = bounded(20, failing)
    assert next(items) == 1
    with pytest.raises(Ended, match=r"\(ValueError: no such thing\)$"):
        next(items)


def test_the_child_ends_in_time_and_with_its_reader() -> None:
    began = time.monotonic()
    items = bounded(3, slow)
    next(items)
    with pytest.raises(Ended, match=r"^could not be read in time$"):
        next(items)
    assert time.monotonic() - began < 30
    items = bounded(60, slow)
    process = next(items)
    items.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_slow_start_of_the_child_does_not_count() -> None:
    assert list(bounded(2, numbers, Late(2))) == [0, 1]
