"""Topic settings that limit what the sidecar can verify, and the warnings about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import ConfigEntry

from validator.config.model import Config
from validator.model.frontier import may_compact
from validator.settings.durations import format_duration


@dataclass(frozen=True)
class TopicSettings:
    """Settings of one topic. ``retention_us``, ``retention_bytes``: None if there is no such limit.
    ``deletions_kept_us``: how long compaction keeps a null value."""

    cleanup_policy: str
    has_append_time: bool
    retention_us: int | None
    retention_bytes: int | None
    deletions_kept_us: int = 0

    @classmethod
    def of(cls, entries: Mapping[str, ConfigEntry]) -> TopicSettings:
        """The settings in a result of `AdminClient.describe_configs`."""
        policy = entries["cleanup.policy"].value or ""
        milliseconds, size = (int(entries[name].value or -1) for name in ("retention.ms", "retention.bytes"))
        expires = "delete" in policy
        return cls(
            cleanup_policy=",".join(sorted(name.strip() for name in policy.split(","))),
            has_append_time=entries["message.timestamp.type"].value == "LogAppendTime",
            retention_us=milliseconds * 1000 if expires and milliseconds >= 0 else None,
            retention_bytes=size if expires and size >= 0 else None,
            deletions_kept_us=int(entries["delete.retention.ms"].value or 0) * 1000,
        )


def warnings(config: Config, topics: Iterable[str], settings: Mapping[str, TopicSettings]) -> Iterator[tuple[str, str]]:
    """(topic, warning) for each of ``topics`` whose records may expire or be compacted before they are read.

    ``settings``: those that the sidecar may read, by topic.
    """
    timing = config.timing
    proven_after_us = timing.missing_after_us + timing.max_disorder_us + timing.allowed_lateness_us
    for topic in sorted(set(topics)):
        found = settings.get(topic)
        compaction = _compaction_of_rows if topic in config.oracle.reads.upserts else _compaction
        sentences = [_UNREADABLE] if found is None else [*compaction(found), *_of(found, proven_after_us)]
        yield from ((topic, sentence) for sentence in sentences)


def ids_that_repeat(config: Config, partitions: Mapping[str, int]) -> Iterator[tuple[str, str, str]]:
    """(topic, problem, fix) for each input whose ids are offsets, which its partitions repeat.

    ``partitions``: existing topic -> number of its partitions.
    """
    for i, entry in enumerate(config.inputs):
        at = entry.fields
        ids = [path.path for path in at.id or ()]
        is_offset = "$offset" in ids and "$partition" not in [*ids, *(path.path for path in at.key)]
        if is_offset and partitions.get(entry.topic, 1) > 1:
            fix = (
                f"add $partition to inputs[{i}].fields.key, and to the keys of outputs a field into which the pipeline "
                "copies it, or name a field that identifies the event"
            )
            count = partitions[entry.topic]
            problem = f"inputs[{i}].fields.id is $offset, and the {count} partitions of {entry.topic} repeat offsets"
            yield entry.topic, problem, fix


_UNREADABLE: Final = (
    "its settings cannot be read (grant DescribeConfigs on the topic): it may be compacted, so "
    "offsets without a visible record make the verdict unknown"
)


def _compaction(settings: TopicSettings) -> Iterator[str]:
    if may_compact(settings.cleanup_policy):
        yield (
            f"it is compacted (cleanup.policy={settings.cleanup_policy}): records that compaction removes before they "
            "are read, and transaction markers, make the verdict unknown"
        )


def _compaction_of_rows(settings: TopicSettings) -> Iterator[str]:
    """Of a table whose records replace the rows of their keys."""
    if may_compact(settings.cleanup_policy):
        yield (
            "it is compacted: if it is not read to its end within "
            f"{format_duration(settings.deletions_kept_us // 2)} (half of delete.retention.ms), offsets without a "
            "visible record make the verdict unknown, since they may be deletions of rows"
        )


def _of(settings: TopicSettings, proven_after_us: int) -> Iterator[str]:
    consequence = "records that expire before they are read make the verdict unknown"
    if settings.retention_us is not None and settings.retention_us < proven_after_us:
        yield (
            f"its records expire after {format_duration(settings.retention_us)} (retention.ms), but a loss is "
            f"proven only after {format_duration(proven_after_us)} (timing.missing_after + max_disorder + "
            f"allowed_lateness): {consequence}"
        )
    if settings.retention_bytes is not None:
        yield f"a partition keeps {settings.retention_bytes} bytes (retention.bytes): {consequence}"
