"""A call that may hang, made so that it holds up nothing but itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Asked:
    """A call in a thread of its own, which does not keep the process from ending either."""

    def __init__(self, call: Callable[[], bool | None]) -> None:
        self._call = call
        self._answer: bool | None = None
        self._error: BaseException | None = None
        self._is_back = threading.Event()
        self.began = time.monotonic()
        try:
            threading.Thread(target=self._run, name="asked", daemon=True).start()
        except RuntimeError:
            # No thread is to be had, which may be the fault's doing: better held up than not asked at all.
            self._run()

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self.began

    def is_back(self, within_seconds: float) -> bool:
        """Whether it came back, now or within the time."""
        # Of a thread that was joined, and the joining interrupted (Ctrl-C), Python 3.11 says that it has ended.
        return self._is_back.wait(within_seconds)

    def answer(self) -> bool | None:
        """What the call said; raises what it raised. Only when it is back."""
        if self._error is not None:
            raise self._error
        return self._answer

    def _run(self) -> None:
        try:
            self._answer = self._call()
        except BaseException as error:  # noqa: BLE001 - raised where the answer is asked for
            self._error = error
        finally:
            self._is_back.set()
