"""The bytes of PGVal's click and update events, as Jackson writes them.

Source: PGVal's ``ClickEvent`` and ``UpdateEvent`` (fields in declaration order, dates as ``yyyy-MM-dd'T'HH:mm:ss.SSS``
in UTC without a zone) and its key serialiser (the JSON encoding of the page, with quotes). Two additions are not in
PGVal and are off by default: a second key field ``region`` for composite keys, and text ids.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from generator.workloads.seam import Columns, Wire

PGVAL_PAGES = ("/help", "/index", "/shop", "/jobs", "/about", "/news")


@lru_cache(maxsize=8192)
def _minute_text(minute: int) -> bytes:
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=minute)
    return moment.strftime("%Y-%m-%dT%H:%M:").encode()


def timestamp_text(ms: int) -> bytes:
    """``ms`` since the epoch as text, such as ``1970-01-01T00:00:00.001``."""
    minute, rest = divmod(ms, 60_000)
    return b"%b%02d.%03d" % (_minute_text(minute), rest // 1000, rest % 1000)


@dataclass(frozen=True)
class Key:
    """The key of events: the page, and the region if keys are composite."""

    page: str
    region: str | None = None

    @property
    def texts(self) -> list[str]:
        """Its fields."""
        return [self.page] if self.region is None else [self.page, self.region]

    def kafka_key(self) -> bytes:
        """The key of the record: the JSON of the page, or the JSON array of page and region."""
        return json_bytes(self.page if self.region is None else self.texts)


def keys(pages: int, regions: int) -> tuple[Key, ...]:
    """The first ``pages`` pages (six from PGVal, then ``/page-7`` ...), each with every region; 0: no regions."""
    names = [PGVAL_PAGES[i] if i < len(PGVAL_PAGES) else f"/page-{i + 1}" for i in range(pages)]
    if regions == 0:
        return tuple(Key(name) for name in names)
    return tuple(Key(name, f"region-{r + 1}") for name in names for r in range(regions))


class ClickWire(Wire):
    """Renders click events, and extracts the id from a rendered event.

    If ``id_prefix`` is None ids are integers; otherwise an id is the text ``<prefix><number>``.
    """

    def __init__(self, all_keys: tuple[Key, ...], id_prefix: str | None) -> None:
        id_text = b"%d" if id_prefix is None else _escape(json_bytes(id_prefix)[:-1]) + b'%d"'
        self._templates = [self._template(id_text, key) for key in all_keys]
        self._kafka_keys = [key.kafka_key() for key in all_keys]
        self.journaled = {"keys": [key.texts for key in all_keys], "id_prefix": id_prefix}
        self._digits_from = len(b'{"id":') + (0 if id_prefix is None else len(json_bytes(id_prefix)) - 1)
        self._digits_end = b"," if id_prefix is None else b'"'

    def render(self, numbers: list[int], key_indexes: list[int], times_ms: list[int], created_ms: int) -> list[bytes]:
        """The values of the events, in order. If ``created_ms`` is negative, the creation time is the event time."""
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
        """The id number in a value that ``render`` produced."""
        return int(value[self._digits_from : value.index(self._digits_end, self._digits_from)])

    def kafka_key(self, key: int) -> bytes:
        """The JSON of the page, or the JSON array of page and region."""
        return self._kafka_keys[key]

    def closing(self, first_number: int, partition_of: Callable[[bytes], int], partitions: int) -> Columns:  # noqa: ARG002 - each key, whatever its partition
        """One event of each key."""
        keys = list(range(len(self._kafka_keys)))
        return [first_number + key for key in keys], keys

    def _template(self, id_text: bytes, key: Key) -> bytes:
        return _head(id_text, key) + b',"creationTimestamp":"%b"}'


class UpdateWire(ClickWire):
    """Renders update events. They have no creation time and an empty ``updatedBy``, as in PGVal."""

    def render(self, numbers: list[int], key_indexes: list[int], times_ms: list[int], created_ms: int) -> list[bytes]:  # noqa: ARG002 - same signature as ClickWire
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
