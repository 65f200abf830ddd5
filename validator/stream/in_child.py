"""A function's result from a forked child of this process, which may die of what it reads without ending this one.

`validator.stream.bounded` starts an interpreter of its own, for readers in the driver. A worker of Spark forks, as
PySpark's daemon does for each worker: it takes milliseconds, and the child has the worker's modules and limits.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
from collections.abc import Callable
from typing import Final, TypeVar

ENDED_BY_MEMORY: Final = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGKILL)
"""librdkafka aborts where it gets no memory, and the kernel kills where there is none."""

_Result = TypeVar("_Result")


def in_child(function: Callable[[], _Result], seconds: int) -> _Result:
    """What ``function`` returns in a forked child, which has at most ``seconds``.

    The caller has no thread that may hold a lock: a client of librdkafka is closed first. The result can be pickled.
    Raises what ``function`` raises (what cannot be pickled as a `RuntimeError`), `MemoryError` where the child had too
    little memory or died as one that had, and `ChildProcessError` where it ended in another way.
    """
    source, target = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of the parent's may run here: no handler at exit, no flush of its files.
        try:
            os.close(source)
            # How it dies is said by the parent.
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
    """The result and None, or None and the error."""
    try:
        return pickle.dumps((function(), None), pickle.HIGHEST_PROTOCOL)
    except BaseException as error:  # noqa: BLE001  # raised by the parent
        if _is_of_memory(error):
            return pickle.dumps((None, MemoryError(str(error))))
        try:
            pickled = pickle.dumps((None, error))
            pickle.loads(pickled)  # noqa: S301  # an error whose arguments differ from its constructor's fails here
        except Exception:  # noqa: BLE001  # its text remains
            return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
        return pickled


def _is_of_memory(error: BaseException | None) -> bool:
    """Whether a `MemoryError` is ``error`` or caused it: a C extension may hide it behind a `SystemError`."""
    while error is not None and not isinstance(error, MemoryError):
        error = error.__cause__ or error.__context__
    return error is not None
