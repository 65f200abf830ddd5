"""The result, the exception or the cause of death of a forked child reaches its parent."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from validator.stream.in_child import in_child
from validator.stream.kafka_reading import ReadFailed

pytestmark = pytest.mark.unit


class _NeedsTwo(Exception):
    """An exception that pickle can write and not read."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def fails(error: BaseException, cause: BaseException | None = None) -> Callable[[], Any]:
    def function() -> None:
        raise error from cause

    return function


def test_a_result_of_any_size_returns_from_the_child() -> None:
    size, process = in_child(lambda: (b"x" * 5_000_000, os.getpid()), 60)
    assert len(size) == 5_000_000
    assert process != os.getpid()


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (fails(ReadFailed("t-0 has none")), ReadFailed, "t-0 has none"),
        (fails(MemoryError("small")), MemoryError, "small"),
        (fails(SystemError("with an exception set"), MemoryError()), MemoryError, "with an exception set"),
        (fails(_NeedsTwo("a", "b")), RuntimeError, "_NeedsTwo: ab"),
        (lambda: os.kill(os.getpid(), signal.SIGABRT), MemoryError, "signal 6"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), MemoryError, "signal 9"),
        (lambda: os._exit(3), ChildProcessError, "status 3"),
        (lambda: time.sleep(60), ChildProcessError, f"status -{signal.SIGALRM.value}"),
    ],
)
def test_the_error_of_a_child_is_raised(function: Callable[[], Any], kind: type[BaseException], text: str) -> None:
    with pytest.raises(kind, match=text):
        in_child(function, 1)


def test_no_child_and_no_pipe_is_left() -> None:
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    for function in (int, fails(ValueError("no"))):
        try:
            in_child(function, 60)
        except ValueError:
            continue
    assert len(list(descriptors.iterdir())) == before
    assert not Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
