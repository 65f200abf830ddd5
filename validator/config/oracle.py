"""What the pipeline is declared to compute: the parameters of the oracle that predicts its answers, by its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias, Union

from pydantic import Field

from validator.oracles.kinds import built

if TYPE_CHECKING:
    from validator.oracles.seam import Oracle as AnyOracle

    Oracle: TypeAlias = AnyOracle
else:
    # Made of the files of `validator.oracles`, so that a new one is known here.
    Oracle = Annotated[Union[tuple(dict.fromkeys(built().values()))], Field(discriminator="kind")]  # noqa: UP007
