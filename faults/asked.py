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
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="asked", daemon=True)
        self._thread.start()

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._began

    def is_back(self, within_seconds: float) -> bool:
        """Whether it came back, now or within the time."""
        self._thread.join(within_seconds)
        return not self._thread.is_alive()

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
