"""Controls a headless Chromium over its debugging pipe, without a driver or a port.

Protocol: https://chromedevtools.github.io/devtools-protocol/ ; messages are JSON, each terminated by a zero byte.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import pytest

# The network flags disable the browser's own requests (updates, sync).
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--disable-background-timer-throttling", "--disable-lcd-text", "--remote-debugging-pipe",
)  # fmt: skip
ANSWER_SECONDS: Final = 40.0


def find() -> str | None:
    """Return the path of this machine's browser; None if it has none."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


needs_chromium = pytest.mark.skipif(find() is None, reason="there is no chromium on the PATH")


class Browser:
    """One page in one browser. ``complaints`` are console errors and exceptions, ``requests`` the requested URLs."""

    def __init__(self, process: subprocess.Popen[bytes], to: IO[bytes], answers: IO[bytes]) -> None:
        self._process = process
        self._to = to
        self._answers = answers
        self._changed = threading.Condition()
        self._results: dict[int, dict[str, Any]] = {}
        self._calls = 0
        self._loaded = 0
        self._gone = False
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a protocol method. Raises RuntimeError if the browser refuses or does not answer."""
        with self._changed:
            self._calls += 1
            call = self._calls
        message: dict[str, Any] = {"id": call, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        with self._changed:
            if not self._changed.wait_for(lambda: call in self._results or self._gone, ANSWER_SECONDS):
                raise RuntimeError(f"the browser did not answer {method} within {ANSWER_SECONDS:.0f} s")
            answer = self._results.pop(call, {"error": "the browser ended"})
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def open(self, url: str) -> None:
        """Load ``url`` and wait until it has loaded."""
        with self._changed:
            before = self._loaded
        self.call("Page.navigate", url=url)
        with self._changed:
            assert self._changed.wait_for(lambda: self._loaded > before, ANSWER_SECONDS), f"{url} did not load"

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_until(self, condition: str, seconds: float = 10) -> None:
        """Wait until the JavaScript ``condition`` holds; fail if it does not within ``seconds``."""
        left = seconds
        while left > 0:
            # A longer wait in the page would exceed the time limit of a call.
            part = min(left, ANSWER_SECONDS / 2)
            left -= part
            watch = f"""new Promise((done) => {{
                const from = performance.now(); const look = () => {{
                if ({condition}) done(true); else if (performance.now() - from > {part * 1000}) done(false);
                else setTimeout(look, 20); }};
                look(); }})"""
            if self.value(watch):
                return
        raise AssertionError(f"not within {seconds} s: {condition}; the page says: {self.text()[:600]}")

    def text(self, selector: str = "body") -> str:
        """Return an element's visible text."""
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def window(self, width: int, height: int, scheme: str = "light") -> None:
        """Set the window's size in CSS pixels and its colour scheme, `light` or `dark`."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, key: str) -> None:
        """Press and release a key that writes no text, such as `Tab`, or a space outside a field."""
        codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowRight": 39, "End": 35}
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def picture(self, file: Path, height_max: int | None = None, top: int = 0) -> None:
        """Write the page from ``top`` on as PNG, to its end or for ``height_max`` CSS pixels."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        height = min(size["height"] - top, height_max or size["height"])
        clip = {"x": 0, "y": top, "width": size["width"], "height": height, "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """Stop the browser and all of its processes."""
        try:
            self._session = None
            self.call("Browser.close")
            self._process.wait(10)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._to.close()

    def _read(self) -> None:
        pending = b""
        while chunk := os.read(self._answers.fileno(), 1 << 16):
            *whole, pending = (pending + chunk).split(b"\0")
            for text in whole:
                self._take(json.loads(text))
        self._answers.close()
        with self._changed:
            self._gone = True
            self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        with self._changed:
            if "id" in message:
                self._results[message["id"]] = message
            elif message["method"] == "Page.loadEventFired":
                self._loaded += 1
            elif message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            elif message["method"] == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(message["params"]["exceptionDetails"]))
            elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] in ("error", "warning"):
                self.complaints.append(message["params"]["entry"]["text"])
            elif message["method"] == "Runtime.consoleAPICalled" and message["params"]["type"] in ("error", "warning"):
                self.complaints.append(json.dumps(message["params"]["args"]))
            self._changed.notify_all()


@contextmanager
def browser(command: str, profile: Path) -> Iterator[Browser]:
    """Run a browser with an empty ``profile``; it is stopped at the end."""
    read_end, to_write = os.pipe()
    to_read, write_end = os.pipe()
    # At 10 or above: dup2 to the browser's descriptors 3 and 4 must not overwrite these pipe ends.
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read_end, write_end)]
    os.close(read_end)
    os.close(write_end)

    def give() -> None:
        os.dup2(ends[0], 3)
        os.dup2(ends[1], 4)

    process = subprocess.Popen(
        [command, *FLAGS, f"--user-data-dir={profile}"],
        preexec_fn=give,  # noqa: PLW1509  (two system calls, and the browser knows no other way to its pipes)
        pass_fds=(3, 4),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    for end in ends:
        os.close(end)
    running = Browser(process, os.fdopen(to_write, "wb"), os.fdopen(to_read, "rb"))
    try:
        yield running
    finally:
        running.close()
