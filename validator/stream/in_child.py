"""Runs a function in a forked child process, so that a record that does not fit into memory ends only the child.

`validator.stream.bounded` starts a new interpreter, for readers in the driver. A Spark worker forks instead, as
PySpark's daemon does for each worker: this takes milliseconds, and the child has the worker's modules and limits.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
from collections.abc import Callable
from typing import Final, TypeVar

ENDED_BY_MEMORY: Final = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGKILL)
"""Signals that show lack of memory: librdkafka aborts if an allocation fails, and the kernel kills the process."""

_Result = TypeVar("_Result")


def in_child(function: Callable[[], _Result], seconds: int) -> _Result:
    """The result of ``function`` in a forked child process, which may take at most ``seconds``.

    No thread of the caller may hold a lock, so librdkafka clients must be closed before. The result must be picklable.
    Raises what ``function`` raises (as `RuntimeError` if it cannot be pickled), `MemoryError` if the child had too
    little memory or was ended by one of `ENDED_BY_MEMORY`, and `ChildProcessError` if it ended in another way.
    """
    source, target = os.pipe()
    child = os.fork()
    if child == 0:
        # os._exit: no exit handler of the parent may run here, and none of its files may be flushed.
        try:
            os.close(source)
            # The parent reports how the child ends.
            faulthandler.disable()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            with os.fdopen(target, "wb") as out:
                out.write(_outcome(function))
            os._exit(0)
        finally:
            os._exit(1)
    os.close(target)
    try:
        with os.fdopen(source, "rb") as pipe:
            outcome = pipe.read()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        result, error = pickle.loads(outcome)  # noqa: S301  # our own child wrote it
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]
    if -code in ENDED_BY_MEMORY:
        raise MemoryError(f"a child process was ended by signal {-code}")
    raise ChildProcessError(f"a child process ended with status {code}")


def _outcome(function: Callable[[], object]) -> bytes:
    """Pickled (result, None), or (None, error)."""
    try:
        return pickle.dumps((function(), None), pickle.HIGHEST_PROTOCOL)
    except BaseException as error:  # noqa: BLE001  # raised by the parent
        if _is_memory_error(error):
            return pickle.dumps((None, MemoryError(str(error))))
        try:
            pickled = pickle.dumps((None, error))
            pickle.loads(pickled)  # noqa: S301  # an error whose arguments differ from its constructor's fails here
        except Exception:  # noqa: BLE001  # its text remains
            return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
        return pickled


def _is_memory_error(error: BaseException | None) -> bool:
    """Whether ``error`` is or was caused by a `MemoryError`: a C extension may replace it by a `SystemError`."""
    while error is not None and not isinstance(error, MemoryError):
        error = error.__cause__ or error.__context__
    return error is not None
