"""The setting `outputs`, with the kinds of evidence that are built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import Field

from validator.reconcile.evidence.kinds import built
from validator.settings import topics

*_OTHERS, _LAST = (f"`{name}` ({one.names[name].said})" for name, one in built().items())

if TYPE_CHECKING:
    EvidenceName: TypeAlias = str
else:
    # The names of the evidence in the files of `validator.reconcile.evidence`, so a new file needs no change here.
    EvidenceName = Literal[tuple(built())]


class Output(topics.Output):
    """A topic that the pipeline writes results to. Several topics are shards of one output."""

    evidence: EvidenceName = Field(
        default="ids", description=f"How a result shows the events that it used: {', '.join(_OTHERS)}, or {_LAST}."
    )
