"""Runs a generator in a separate process with limited memory: nothing else limits the decompressed size of a record.

librdkafka limits only the compressed bytes that it fetches. The driver fetches records only in such a process: a
record that does not fit into memory ends this process, not the driver.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from validator.stream.in_child import ENDED_BY_MEMORY

MEMORY_BYTES: Final = 768 * 2**20
"""Limit of the process's heap, data and stacks. librdkafka has a thread per broker, with a stack of 8 MiB."""
START_SECONDS_MAX: Final = 60
"""Limit of the start of Python and the imports in the process, which take long on a busy host."""
_OUT_OF_MEMORY: Final = 52
_ENDED_BY_MEMORY: Final = (_OUT_OF_MEMORY, *(-number for number in ENDED_BY_MEMORY))
"""Exit statuses of a process that had too little memory."""

_Given = ParamSpec("_Given")
_Item = TypeVar("_Item")


class Ended(Exception):
    """The process ended before its generator did, or the generator raised an error. The message is a clause."""

    def __init__(self, status: int, reason: str = "") -> None:
        self.by_memory = status in _ENDED_BY_MEMORY
        """Whether the process ended for lack of memory, by its exit status."""
        if self.by_memory:
            reason = f"cannot be decompressed and decoded within {MEMORY_BYTES // 2**20} MiB of memory"
        elif status == -signal.SIGALRM:
            reason = "could not be read in time"
        super().__init__(reason or f"could not be read (the process that read it ended with status {status})")


def bounded(
    seconds: float, generator: Callable[_Given, Iterator[_Item]], *given: _Given.args, **named: _Given.kwargs
) -> Iterator[_Item]:
    """The items of a generator, which runs in a separate process for at most ``seconds``.

    These seconds begin when the process has imported the generator, which takes at most `START_SECONDS_MAX`. The
    generator must be a module-level function. Its arguments and items must be picklable, and each item small. Raises
    `Ended`.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(max(1, round(seconds))), str(MEMORY_BYTES)],
        # Not the user's working directory: a module there could shadow one of this package.
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Signals to the process group (Ctrl-C, systemd) end the caller, and the caller ends this process.
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(BrokenPipeError), process.stdin:
            # Not on the command line: the configuration may contain secrets.
            pickle.dump((generator, given, named), process.stdin)
        while True:
            try:
                items, error = pickle.load(process.stdout)  # noqa: S301  # our own process wrote it
            except (EOFError, pickle.UnpicklingError):
                raise Ended(process.wait()) from None
            if error is not None:
                raise Ended(0, f"cannot be read ({error})")
            if not items:
                return
            yield from items
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def _bound(memory_bytes: int) -> None:
    for limit, wanted in ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(limit)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (most, most))
    # If the host runs out of memory, the kernel ends this process first.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _main() -> None:
    seconds, memory_bytes = map(int, sys.argv[1:])
    _bound(memory_bytes)
    signal.alarm(START_SECONDS_MAX)
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:

        def put(items: list[object], error: str | None = None) -> None:
            pickle.dump((items, error), out)
            out.flush()

        try:
            generator, given, named = pickle.load(sys.stdin.buffer)  # noqa: S301  # from the process that started this
            signal.alarm(seconds)
            for item in generator(*given, **named):
                put([item])
            put([])
        except MemoryError:
            os._exit(_OUT_OF_MEMORY)
        except Exception as error:  # noqa: BLE001  # the caller reports it
            put([], f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    _main()
