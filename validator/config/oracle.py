"""The declared computation of the pipeline: the parameters of an oracle, which predicts the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias, Union

from pydantic import Field, SerializeAsAny

from validator.oracles.kinds import built

if TYPE_CHECKING:
    from validator.oracles.seam import Oracle as AnyOracle

    Oracle: TypeAlias = AnyOracle
else:
    # The union consists of the oracles in the files of `validator.oracles`, so a new file needs no change here.
    # A class of the user has parameters that its base in the union lacks.
    Oracle = Annotated[
        Union[tuple(dict.fromkeys(built().values()))],  # noqa: UP007
        Field(discriminator="kind"),
        SerializeAsAny(),
    ]
