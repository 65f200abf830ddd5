"""The end of a `--once` run: whether the pipeline is at rest, so that the absence of a result proves a loss
(SEMANTICS 3.27 to 3.31)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from validator.model.frontier import Frontier, Lookup, PartitionId, RunEnd
from validator.model.wording import plural

_NAMED = 3
"""Number of partitions that a sentence names."""
WHAT_TO_DO = (
    "stop the load and run again, add --leave-open, or run without --once; --at-rest skips this check, and every "
    "contribution without an answer then counts as missing"
)


@dataclass(frozen=True)
class EndOfRun:
    """The end of a `--once` run.

    ``if_at_rest``: what is concluded if the pipeline is at rest. ``begun``: the lookups at the start of the run.
    ``checked``: whether the topics must show that the pipeline is at rest (not with `--at-rest`). ``only_unconsumed``:
    only decide which contributions are unconsumed, and conclude nothing yet.
    """

    if_at_rest: RunEnd
    begun: Mapping[PartitionId, Lookup]
    checked: bool = True
    only_unconsumed: bool = False

    def why_not_at_rest(self, frontiers: Mapping[PartitionId, Frontier], appeared: Iterable[str]) -> str | None:
        """Why the pipeline is not at rest, as a clause; None if it is.

        ``frontiers``: those at the end of the run. ``appeared``: topics that were created during the run.
        """
        if not self.checked:
            return None
        found = [f"topic {topic} was created" for topic in sorted(appeared)]
        for partition, frontier in sorted(frontiers.items()):
            name, begun = str(partition), self.begun.get(partition)
            if begun is None:
                found.append(f"{name} was created")
            elif begun.topic_id != frontier.topic_id:
                found.append(f"topic {partition.topic} was deleted and created again")
            elif begun.high_watermark != frontier.high_watermark:
                found.append(f"the end of {name} moved from offset {begun.high_watermark} to {frontier.high_watermark}")
            elif frontier.held:
                found.append(f"an open transaction holds back {name} from offset {frontier.last_stable_offset} on")
            elif frontier.lag_events:
                lag = plural(frontier.lag_events, "offset that was", "offsets that were")
                found.append(f"{name} has {lag} not read")
        if not found:
            return None
        more = f", and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return f"{', '.join(found[:_NAMED])}{more}"
