"""A correct pipeline under load: clicks and their correct results until the context manager ends."""

from __future__ import annotations

import itertools
import threading

from tests.integration.sidecar_fixtures import WINDOW_SECONDS, Pipeline, answer, click

PAGES = "abcdef"
CLICKS_PER_PAGE = 40
_PACE_SECONDS = 0.3


class SteadyLoad:
    """Window after window of event time; the first id of page a in window 0 is `0-a-0`."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def _run(self) -> None:
        for window in itertools.count():
            if self._stop.wait(_PACE_SECONDS):
                return
            ids = {page: [f"{window}-{page}-{n}" for n in range(CLICKS_PER_PAGE)] for page in PAGES}
            second = window * WINDOW_SECONDS + 1
            self._pipeline.clicks(*(click(i, second, page) for page in PAGES for i in ids[page]))
            # The result is sent before a click of the next window closes this one, so it is never overdue.
            self._pipeline.answers(*(answer(ids[page], window, page) for page in PAGES))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
