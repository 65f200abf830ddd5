"""The entries of a schedule: a fault, or a group of faults, before their targets are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from faults.catalogue import KINDS, UNSUPPORTED
from faults.parameters import AnyParameters, NoParameters
from faults.section import Seconds, Section, first_problem, how_many
from validator.model.classes import EXPECTABLE

Pick = Annotated[str | int, BeforeValidator(lambda pick: how_many(pick, "one", "all", "leader"))]


def expected_classes(names: tuple[str, ...]) -> tuple[str, ...]:
    """``names``, if each is a violation class that a fault can be expected to cause. Raises ValueError."""
    for name in names:
        if name not in EXPECTABLE:
            known = ", ".join(EXPECTABLE)
            raise ValueError(f"{name} cannot be expected from a fault; use {known}")
    return names


Expects = Annotated[tuple[str, ...], AfterValidator(expected_classes)]


class Selector(Section):
    """The targets of a fault: one by ``name``, or ``pick`` of the targets with all ``labels`` and this ``input``."""

    name: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    input: bool | None = None
    """True: only targets that consume the pipeline's input. False: only the others. None: both."""
    pick: Pick = "one"
    """How many of the matching targets are hit: ``one``, a number, a share (``50%``, rounded up) or ``all``. The seed
    draws them. ``leader`` selects the target that the file marks as leader."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, data: object) -> object:
        if isinstance(data, str):
            return {"name": data}
        if not isinstance(data, Mapping | Selector):
            raise ValueError("write a name, or a mapping with labels, input and pick")
        return data

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.name is not None and (self.labels or self.input is not None or self.pick != "one"):
            raise ValueError("a target by name cannot have labels, input or pick; leave these out")
        return self


class Range(Section):
    """A duration that is drawn uniformly from the seed."""

    at_least: Seconds
    at_most: Seconds

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.at_least > self.at_most:
            raise ValueError("at_least is above at_most")
        return self


def _has(data: object, key: str) -> bool:
    return isinstance(data, Mapping) and key in data


Lasts = Annotated[
    Annotated[Seconds, Tag("duration")] | Annotated[Range, Tag("range")],
    Discriminator(lambda data: "range" if isinstance(data, Range | Mapping) else "duration"),
]
"""The form is determined before validation, so that an error explains the form that was intended."""


class FaultSpec(Section):
    """One fault of a schedule, before its targets are drawn."""

    kind: str
    target: Selector = Selector()
    lasts: Annotated[Lasts, Field(alias="for")] = 0.0
    """Time from the verification of the fault to the start of its healing; 0: healing starts at once."""
    name: str | None = None
    parameters: AnyParameters = NoParameters()
    expects: Expects = ()
    """Classes of violations that the fault is expected to cause. Alerts ignore such violations (docs/faults.md)."""

    @model_validator(mode="before")
    @classmethod
    def _by_kind(cls, data: object) -> object:
        if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
            return data
        for absent in UNSUPPORTED:
            if data["kind"] == absent.name:
                raise ValueError(f"{absent.name} is not supported: {absent.reason}")
        kind = KINDS.get(data["kind"])
        if kind is None:
            raise ValueError(f"{data['kind']!r} is not a kind of fault; `streamproof faults list` shows them")
        target, parameters = data.get("target"), data.get("parameters", {})
        if isinstance(parameters, Mapping):
            try:
                parameters = kind.parameters.model_validate(parameters)
            except ValidationError as error:
                raise ValueError(f"parameters of {kind.name}: {first_problem(error)}") from error
        return {
            **data,
            "target": {} if target is None else target,
            "parameters": parameters,
        }

    @property
    def parts(self) -> tuple[FaultSpec, ...]:
        """The fault itself, as the only part."""
        return (self,)

    @property
    def after_seconds(self) -> float:
        """Seconds from the start of its group."""
        return 0.0

    @property
    def own_seconds(self) -> float | None:
        """Its duration in seconds; None if it ends with its group."""
        return None


class TogetherSpec(FaultSpec):
    """One fault of a group. It ends with the group, or after its own ``for``."""

    after: Seconds = 0.0
    """Time from the start of the group to the injection of this fault."""

    @property
    def after_seconds(self) -> float:
        """Seconds from the start of the group: ``after``."""
        return self.after

    @property
    def own_seconds(self) -> float | None:
        """Its own ``for`` in seconds; None if it ends with the group."""
        assert isinstance(self.lasts, float)
        return self.lasts if "lasts" in self.model_fields_set else None

    @model_validator(mode="after")
    def _is_one_duration(self) -> Self:
        if isinstance(self.lasts, Range):
            raise ValueError("a fault in a group has one duration; a range is possible only in for: of the group")
        return self


class GroupSpec(Section):
    """Overlapping faults. All are injected and verified, then healed in reverse order or after their own ``for``."""

    together: Annotated[tuple[TogetherSpec, ...], Field(min_length=2)]
    lasts: Annotated[Lasts, Field(alias="for")] = 0.0
    """Time from the last verification to the start of healing."""

    @property
    def parts(self) -> tuple[FaultSpec, ...]:
        """The faults in the order of their start."""
        return tuple(sorted(self.together, key=lambda spec: spec.after))

    @model_validator(mode="after")
    def _starts(self) -> Self:
        if all(spec.after > 0 for spec in self.together):
            raise ValueError("the first fault of a group starts at once; leave out after: of this fault")
        if "lasts" in self.model_fields_set and all(spec.own_seconds is not None for spec in self.together):
            raise ValueError("for: of the group has no effect, since each of its faults sets its own; leave it out")
        return self


Spec = Annotated[
    Annotated[FaultSpec, Tag("fault")] | Annotated[GroupSpec, Tag("group")],
    Discriminator(lambda data: "group" if isinstance(data, GroupSpec) or _has(data, "together") else "fault"),
]
"""An entry of a schedule."""
