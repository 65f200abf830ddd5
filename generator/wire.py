"""The bytes of PGVal's click and update events, as Jackson writes them.

Source: PGVal's ``ClickEvent`` and ``UpdateEvent`` (fields in declaration order, dates as
``yyyy-MM-dd'T'HH:mm:ss.SSS`` in UTC without a zone) and its key serialiser (the JSON encoding of the page, quotes
included). A second key field, ``region``, and text ids are ours, to exercise composite keys and ids that are no
integers; both are off by default.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from functools import lru_cache

PGVAL_PAGES = ("/help", "/index", "/shop", "/jobs", "/about", "/news")


@lru_cache(maxsize=8192)
def _minute_text(minute: int) -> bytes:
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=minute)
    return moment.strftime("%Y-%m-%dT%H:%M:").encode()


def timestamp_text(ms: int) -> bytes:
    """Milliseconds since the epoch as ``1970-01-01T00:00:00.001``."""
    minute, rest = divmod(ms, 60_000)
    return b"%b%02d.%03d" % (_minute_text(minute), rest // 1000, rest % 1000)


@dataclass(frozen=True)
class Key:
    """What events are grouped by: the page, and the region where keys are composite."""

    page: str
    region: str | None = None

    def kafka_key(self) -> bytes:
        """The record's key: the JSON of the page, or the JSON array of page and region."""
        return json_bytes(self.page if self.region is None else [self.page, self.region])


def keys(pages: int, regions: int) -> tuple[Key, ...]:
    """The first ``pages`` pages (six of PGVal's, then ``/page-7`` ...), each with every region (0: no regions)."""
    names = [PGVAL_PAGES[i] if i < len(PGVAL_PAGES) else f"/page-{i + 1}" for i in range(pages)]
    if regions == 0:
        return tuple(Key(name) for name in names)
    return tuple(Key(name, f"region-{r + 1}") for name in names for r in range(regions))


class ClickWire:
    """Renders click events, and finds the id in a rendered one again.

    ``id_prefix`` None means integer ids; otherwise the id is the text ``<prefix><number>``.
    """

    def __init__(self, all_keys: tuple[Key, ...], id_prefix: str | None) -> None:
        id_text = b"%d" if id_prefix is None else _escape(json_bytes(id_prefix)[:-1]) + b'%d"'
        self._templates = [self._template(id_text, key) for key in all_keys]
        self._digits_from = len(b'{"id":') + (0 if id_prefix is None else len(json_bytes(id_prefix)) - 1)
        self._digits_end = b"," if id_prefix is None else b'"'

    def render(self, numbers: list[int], key_indexes: list[int], times_ms: list[int], created_ms: int) -> list[bytes]:
        """The values of the events, in order. ``created_ms`` below 0: the creation time is the event's own time."""
        templates = self._templates
        texts = {ms: timestamp_text(ms) for ms in set(times_ms)}
        if created_ms < 0:
            return [
                templates[k] % (n, texts[ms], texts[ms])
                for n, k, ms in zip(numbers, key_indexes, times_ms, strict=True)
            ]
        created = timestamp_text(created_ms)
        return [templates[k] % (n, texts[ms], created) for n, k, ms in zip(numbers, key_indexes, times_ms, strict=True)]

    def number_in(self, value: bytes) -> int:
        """The number of the event whose value ``render`` made."""
        return int(value[self._digits_from : value.index(self._digits_end, self._digits_from)])

    def _template(self, id_text: bytes, key: Key) -> bytes:
        return _head(id_text, key) + b',"creationTimestamp":"%b"}'


class UpdateWire(ClickWire):
    """Renders update events, which have no creation time; nobody made them (``updatedBy`` is empty, as PGVal's)."""

    def render(self, numbers: list[int], key_indexes: list[int], times_ms: list[int], created_ms: int) -> list[bytes]:  # noqa: ARG002 - one signature for both
        """The values of the events, in order."""
        texts = {ms: timestamp_text(ms) for ms in set(times_ms)}
        return [self._templates[k] % (n, texts[ms]) for n, k, ms in zip(numbers, key_indexes, times_ms, strict=True)]

    def _template(self, id_text: bytes, key: Key) -> bytes:
        return _head(id_text, key) + b',"updatedBy":""}'


def json_bytes(value: object) -> bytes:
    """Compact JSON in UTF-8, as Jackson writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _escape(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


def _head(id_text: bytes, key: Key) -> bytes:
    region = b"" if key.region is None else b',"region":' + _escape(json_bytes(key.region))
    return b'{"id":' + id_text + b',"timestamp":"%b","page":' + _escape(json_bytes(key.page)) + region
