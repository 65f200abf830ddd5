"""Sentences on records whose content is not known or not used: where they are, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from validator.config.model import Config
from validator.core.doubts import topics_in_doubt
from validator.core.suspicion import without_results
from validator.core.unread import Unexamined
from validator.model.frontier import PartitionId
from validator.model.progress import IngestProgress
from validator.model.terminal import shell_word
from validator.model.wording import plural
from validator.state.positions import Positions
from validator.stream.doubt_sentences import Example
from validator.stream.refused_fields import next_step, said

_TOPICS_SHOWN: Final = 3
_UNEXAMINED_SHOWN: Final = 3


def hidden_examples(
    config: Config,
    progress: IngestProgress,
    positions: Positions | None,
    examples: Mapping[str, Example],
    side: str,
) -> str:
    """Return where the undecodable records of a side that are not settled are, as the end of a sentence: for each of
    some topics an example, the next step, and the command that settles them. It is empty if they are not known.

    ``examples``: topic -> a record that does not decode.
    """
    if positions is None:
        return ""
    sides = {partition: frontier.side for partition, frontier in progress.frontiers.items()}
    first: dict[str, PartitionId] = {}
    for partition in sorted(positions.first_hidden()):
        if sides.get(partition) == side:
            first.setdefault(partition.topic, partition)
    # The reason of a topic in doubt has its example.
    for one in topics_in_doubt(progress):
        first.pop(one.topic, None)
    shown = list(first.values())[:_TOPICS_SHOWN]
    return "".join(_of_topic(config, positions, partition, examples.get(partition.topic)) for partition in shown)


def _of_topic(config: Config, positions: Positions, partition: PartitionId, example: Example | None) -> str:
    place = config.entry_of(partition.topic)
    offsets = positions.hidden(partition)
    at, last = offsets[0].first, offsets[-1].last
    is_same = example is not None and (example.partition, example.offset) == (partition.partition, at)
    why = example.why if example is not None and is_same else ()
    where = f"; for example {partition} offset {at}" + (f", where {said(why, config.publish)}" if why else "")
    position = f"{partition.topic}/{partition.partition}/{at}" + (f"-{last}" if last > at else "")
    records = sum(one.records for one in offsets)
    them, need = ("it", "it needs") if records == 1 else ("them", f"the {records:,} records of this partition need")
    state = shell_word(str(config.state.path))
    command = f'streamproof ack {state} --position {shell_word(position)} --reason "WHY"'
    return f"{where}: {next_step(place, why)}; if {need} no result, accept {them} with `{command}`"


def not_examined(found: Mapping[PartitionId, Unexamined], side_of: Mapping[PartitionId, str], side: str) -> str:
    """The positions and reasons of some unexamined records of a ``side``, as the end of a sentence; may be empty."""
    chosen = {partition: what for partition, what in sorted(found.items()) if side_of.get(partition) == side}
    if not chosen:
        return ""
    shown = list(chosen.items())[:_UNEXAMINED_SHOWN]
    positions = [f"{partition} at offset {what.offset} ({what.reason})" for partition, what in shown]
    more = sum(what.records for what in chosen.values()) - len(shown)
    return f"; not examined: {', '.join(positions)}" + (f" and {more} more" if more > 0 else "")


def topics_without_use(config: Config, progress: IngestProgress) -> Iterator[str]:
    """Yield a sentence for each input whose events without a key are skipped, and of which no event has one; and for
    each output of which no record is a result."""
    for topic in without_results(progress, config.shared_outputs):
        place = config.entry_of(topic)
        yield f"none of the records of topic {topic} is a result of the pipeline: check {place}.where"
    for number, entry in enumerate(config.inputs):
        frontiers = [it for partition, it in progress.frontiers.items() if partition.topic == entry.topic]
        unowed = sum(it.unowed for it in frontiers)
        owed = sum(it.records - it.undecodable - it.tombstones - it.unowed for it in frontiers)
        computes = config.oracle.computes_key
        if (entry.missing_key == "skip" or computes) and unowed and not owed:
            # SEMANTICS 2.24: a wrong path of the key looks like events without one.
            yield (
                f"no event of topic {entry.topic} owes a result, since {plural(unowed, 'event is', 'events are')} "
                f"skipped: check inputs[{number}].fields.key{' and oracle.class' if computes else ''}"
            )
