"""One-sentence explanations of the errors that end a batch or a run."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext

from validator.model.kafka_refusals import TRANSIENT, refusal
from validator.stream.jvm_output import OUTPUT

_CAUSES_MAX: Final = 10
_LETTERS_MAX: Final = 300
_ENDS_SECONDS: Final = 2.0
"""Wait for the end of the JVM: a killed JVM closes its connections before it has ended."""
_NO_ROOM: Final = "No space left on device"
_QUOTA: Final = "Disk quota exceeded"
_READ_ONLY: Final = "Read-only file system"
_ROOM_BYTES: Final = 64 * 2**20
"""A disk with less free space than this counts as full."""
_GOES_ON: Final = "start the sidecar again; it continues from here"
_ELSEWHERE: Final = "or, if Spark wrote there, set spark.local.dir in spark.options to another folder"
_SENTENCES: Final = {
    re.compile(pattern): sentence
    for pattern, sentence in {
        r"UnknownTopicOrPartition|UnknownTopicId|does not host this topic": (
            "the brokers did not know a topic or partition for a moment"
        ),
        r"KAFKA_DATA_LOSS|[Ss]ome data may have been lost|OffsetOutOfRangeException"
        r"|expired before they could be read": (
            "records expired before they could be read (retention, or a deleted or recreated topic)"
        ),
        r"Timed out waiting for a node|kafka.common.errors.TimeoutException|DisconnectException": (
            "the brokers did not answer Spark's client in time"
        ),
        r"(the brokers did not answer in time: .*)": "{0}",
        r"Too many open files": (
            "the limit of open files is reached: raise it (ulimit -n, or LimitNOFILE= in the systemd unit)"
        ),
        r"OutOfMemoryError|Java heap space": (
            "the memory of the Spark JVM is too small: raise spark.driver.memory in spark.options, or lower "
            "limits.records_per_batch"
        ),
        r"JAVA_GATEWAY_EXITED": "the Spark JVM did not start: the lines above say why",
    }.items()
}
"""Pattern in a text of Spark, Kafka, Delta or the kernel -> sentence that replaces it. The first match is used."""

NO_ANSWER: Final = re.compile(
    "Timed out waiting for a node|kafka.common.errors.TimeoutException|DisconnectException|the brokers did not answer"
)
"""Matches the text of an error if the brokers did not answer one of the clients."""


class CannotVerify(Exception):
    """The sidecar cannot verify the pipeline; the verdict is unknown."""

    exit_status = 3


def text_of(error: BaseException) -> str:
    """The whole text of an error, or its type if the text cannot be read because the JVM has ended."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - py4j raises various exceptions, none with more information
        return type(error).__name__


def why_ended(error: BaseException, options: Mapping[str, str]) -> str:
    """Why the brokers refuse the Java client, if they do, else `first_line`. ``options``: `kafka.options`.

    Spark passes an exception of the client on as text, or in a chain of causes.
    """
    texts = [text_of(error)]
    cause = getattr(error, "java_exception", None) or getattr(error, "_cause", None)
    # The causes cannot be read if the JVM has ended.
    with suppress(Py4JError, OSError):
        while cause is not None and len(texts) < _CAUSES_MAX:
            texts.append(str(cause.toString() if isinstance(cause, JavaObject) else cause))
            cause = cause.getCause() if isinstance(cause, JavaObject) else getattr(cause, "cause", None)
    found = refusal(texts, options)
    return str(found) if found is not None and found.kind not in TRANSIENT else first_line(error)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, at most `_LETTERS_MAX` characters; its type if the text is empty."""
    text = text_of(error).strip() or type(error).__name__
    return text.splitlines()[0][:_LETTERS_MAX]


def known_sentence(error: BaseException, state: Path) -> str | None:
    """The cause of ``error`` as a sentence; None if it is not known.

    It is derived from the current condition of the ``state`` folder and the JVM, then from the texts of the error and
    its causes.
    """
    if (lost := why_state_lost(state)) is not None:
        return lost
    causes = list(causes_of(error))
    texts = [text_of(cause) for cause in causes]
    if _says(causes, (errno.ENOSPC,), _NO_ROOM):
        return _full(_path_in(causes, _NO_ROOM), state)
    if _says(causes, (errno.EDQUOT,), _QUOTA):
        # Free space on the disk does not show a quota.
        return _full(_path_in(causes, _QUOTA) or state, state)
    if _says(causes, (errno.EROFS,), _READ_ONLY):
        return _read_only(_path_in(causes, _READ_ONLY), state)
    # A BrokenPipeError concerns the sidecar's own output: if a connection to the JVM breaks, py4j raises another error.
    is_cut_off = any(
        isinstance(cause, (Py4JNetworkError, ConnectionError)) and not isinstance(cause, BrokenPipeError)
        for cause in causes
    )
    if (ended := why_jvm_ended(_ENDS_SECONDS if is_cut_off else 0.0)) is not None:
        return ended
    if is_cut_off:
        return f"the Spark JVM ended ({first_line(error)}): {_GOES_ON}"
    for pattern, sentence in _SENTENCES.items():
        for text in texts:
            if (found := pattern.search(text)) is not None:
                return sentence.format(*found.groups())
    return None


def why_state_lost(state: Path) -> str | None:
    """Why the state folder is lost; None while its lock file exists."""
    if (state / "lock").exists():
        return None
    what = "the lock file of the state folder" if state.is_dir() else "the state folder"
    return (
        f"{what} {state} was deleted or renamed while the sidecar ran: unless it is restored, all that the sidecar had "
        "verified is lost, and the next start begins with an empty state"
    )


def while_it_retries(sentence: str) -> str:
    """``sentence`` without the advice to start the sidecar again, for a sidecar that continues by itself."""
    return sentence.removesuffix(f" and {_GOES_ON}").removesuffix(",")


def why_unwritable(error: OSError, state: Path) -> str:
    """The sentence for one of the errors `validator.state.folder.PASSING` while the state is opened."""
    return _read_only(state, state) if error.errno == errno.EROFS else no_room(state)


def no_room(state: Path) -> str:
    """The sentence for a full disk, with the free bytes and the size of the state."""
    try:
        free = f"{shutil.disk_usage(_existing(state)).free:,} bytes are free there"
        held = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
    except OSError:
        return f"no space is left for the state {state}: free some space and {_GOES_ON}"
    sizes = f"{free}, and the state has {held:,} bytes"
    return f"no space is left for the state {state} ({sizes}): free some space and {_GOES_ON}"


def _says(causes: Iterable[BaseException], numbers: Container[int | None], phrase: str) -> bool:
    rule = re.compile(phrase, re.IGNORECASE)
    return any((isinstance(c, OSError) and c.errno in numbers) or rule.search(text_of(c)) for c in causes)


def _path_in(causes: Iterable[BaseException], phrase: str) -> Path | None:
    """The file of a kernel error: from the attributes of an OSError, or next to ``phrase`` in a text."""
    before = rf"(?<![\w.])(?P<before>/[^\s:'\"()]+)['\"]?(?:: | \()(?:{phrase})"
    rule = re.compile(rf"{before}|(?:{phrase}): '?(?P<after>/[^\s:'\"]+)", re.IGNORECASE)
    for cause in causes:
        named = cause.filename if isinstance(cause, OSError) else None
        if isinstance(named, (str, bytes)):
            return Path(os.fsdecode(named))
        if (found := rule.search(text_of(cause))) is not None:
            return Path(found["before"] or found["after"])
    return None


def _is_in_folder(path: Path, state: Path) -> bool:
    return path.absolute().is_relative_to(state.absolute()) or path.resolve().is_relative_to(state.resolve())


def _full(path: Path | None, state: Path) -> str:
    """The sentence for a full disk or quota. ``path``: the file that could not be written, if known."""
    if path is not None and not _is_in_folder(path, state):
        return f"no space is left on the disk of {path}{_free(path)}: free some space, {_ELSEWHERE}, and {_GOES_ON}"
    if path is None and _has_room(state):
        return (
            f"no space was left on a disk, but the disk of the state {state} has room{_free(state)}: free "
            f"some space on the disk of spark.local.dir (/tmp if it is not set) and {_GOES_ON}"
        )
    return no_room(state)


def _read_only(path: Path | None, state: Path) -> str:
    if path is not None and not _is_in_folder(path, state):
        return f"the file system of {path} is read-only: mount it for writing, {_ELSEWHERE}"
    if path is None and os.access(state, os.W_OK):
        return (
            f"a file system is read-only, but not that of the state {state}: check the file system of spark.local.dir"
        )
    return f"the file system of the state {state} is read-only: mount it for writing"


def _existing(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    return next((folder for folder in (path, *path.parents) if folder.exists()), path)


def _free(path: Path) -> str:
    try:
        return f" ({shutil.disk_usage(_existing(path)).free:,} bytes are free there)"
    except OSError:
        return ""


def _has_room(state: Path) -> bool:
    """Whether the disk has free bytes and inodes. A quota is not visible here."""
    try:
        disk = os.statvfs(state)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize >= _ROOM_BYTES and (disk.f_files == 0 or disk.f_favail > 0)


def why_jvm_ended(within_seconds: float = 0.0) -> str | None:
    """Why Spark's JVM ended; None if it still runs after ``within_seconds``, or if this process did not start it."""
    gateway = SparkContext._gateway  # the only access to the JVM's process
    process = getattr(gateway, "proc", None)
    if process is None:
        return None
    try:
        status: int = process.wait(within_seconds)
    except subprocess.TimeoutExpired:
        return None
    how = f"it ended with status {status}"
    if status < 0:
        how = f"{signal.Signals(-status).name} ended it"
    if status == -signal.SIGKILL:
        how += "; the kernel sends this signal when memory runs out"
    OUTPUT.drain()
    if words := OUTPUT.last_lines():
        how += f"; its last lines: {words[:_LETTERS_MAX]}"
    return f"the Spark JVM ended ({how}): {_GOES_ON}"


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An error and the chain of its causes."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
