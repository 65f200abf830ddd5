"""The guarantee that the engine really runs with, from a file that its operator writes; it is shown in the report.

The file is JSON: ``{"engine": "flink", "guarantee": "at_least_once", "evidence": ["checkpoint mode ...", ...]}``, and
those fields of `_Settings` that are known. Other keys are ignored. The operator may replace the whole file at any time
(by writing another file and renaming it). The file never changes a verdict: by chance, a run may keep a guarantee that
the engine does not give, and a defect may break one that it gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from validator.model.classes import Guarantee
from validator.publish.report_types import EffectiveGuarantee, EngineSettings, Report

BYTES_MAX: Final = 65_536
EFFECTIVE_TITLE: Final = "Effective guarantee of the engine"
SETTINGS_TITLE: Final = "Settings of the engine"
_NOT_STATED: Final = "not stated"
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Settings(BaseModel):
    """The engine's settings; None: not stated, or the engine has no such setting."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    commit_interval_seconds: _Seconds | None = None
    """Between commits, checkpoints or micro-batches."""
    transaction_timeout_seconds: _Seconds | None = None
    checkpoint_mode: str | None = None
    session_timeout_seconds: _Seconds | None = None
    """Silence after which a member of the group, or a process of the cluster, is taken for dead."""
    heartbeat_interval_seconds: _Seconds | None = None


class _EffectiveFile(_Settings):
    """The file's content."""

    engine: str = Field(default="the engine", min_length=1)
    guarantee: Guarantee
    evidence: tuple[str, ...] = ()


def effective_guarantee(path: Path | None, declared: Guarantee) -> EffectiveGuarantee | None:
    """Return the report's block of this name; None if the configuration names no file. Never raises.

    ``effective`` is null if it is not known; ``problem`` is then the reason. ``finding`` is a sentence if an engine
    with this guarantee may break the declared one.
    """
    if path is None:
        return None
    try:
        if not path.is_file():  # a pipe would block until it has a writer
            return _unknown(declared, f"{path} does not exist or is not a file; the engine's operator must write it")
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
        if len(content) > BYTES_MAX:
            return _unknown(
                declared, f"{path} has more than {BYTES_MAX} bytes; set engine.effective to the operator's file"
            )
        read = _EffectiveFile.model_validate_json(content)
    except OSError as error:
        return _unknown(declared, f"{path} cannot be read ({error.strerror or error}); make it readable")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        said = f"{where}: {first['msg']}" if where else first["msg"]
        return _unknown(declared, f"{path} is damaged ({said}); the engine's operator must write it again")
    finding = None
    if read.guarantee not in (declared, Guarantee.EXACTLY_ONCE):  # exactly once implies the other guarantees
        because = f": {'; '.join(read.evidence)}" if read.evidence else ""
        finding = f"{read.engine} is declared {_words(declared)} but runs {_words(read.guarantee)}{because}."
    return {
        "declared": declared.value,
        "effective": read.guarantee.value,
        "engine": read.engine,
        "evidence": list(read.evidence),
        **_settings(read),
        "finding": finding,
        "problem": None,
    }


def sentence(block: EffectiveGuarantee | None) -> str | None:
    """Return a report's block as one sentence; None if there is no block."""
    if block is None:
        return None
    if block["effective"] is None:
        return f"The engine's effective guarantee is not known: {block['problem']}."
    if block["finding"] is not None:
        return str(block["finding"])
    because = f": {'; '.join(block['evidence'])}" if block["evidence"] else ""
    return f"{block['engine']} runs {_words(Guarantee(block['effective']))}{because}."


def effective_lines(report: Report) -> list[str]:
    """Return the lines of a report's section on the block; none if there is no block."""
    block = report["effective_guarantee"]
    said = sentence(block)
    if block is None or said is None:
        return []
    return [f"FINDING: {said} This finding does not change the verdict."] if block["finding"] else [said]


def effective_settings(report: Report) -> list[tuple[str, str]]:
    """Return the engine's settings as (name, value); none if no setting is known."""
    block: Mapping[str, object] = report["effective_guarantee"] or {}
    known = {name: block.get(name) for name in _Settings.model_fields}
    if not any(value is not None for value in known.values()):
        return []
    return [(name.removesuffix("_seconds").replace("_", " "), _shown_setting(value)) for name, value in known.items()]


def _shown_setting(value: object) -> str:
    if value is None:
        return _NOT_STATED
    return f"{value:g} s" if isinstance(value, int | float) else str(value)


def _settings(read: _Settings) -> EngineSettings:
    return {
        "commit_interval_seconds": read.commit_interval_seconds,
        "transaction_timeout_seconds": read.transaction_timeout_seconds,
        "checkpoint_mode": read.checkpoint_mode,
        "session_timeout_seconds": read.session_timeout_seconds,
        "heartbeat_interval_seconds": read.heartbeat_interval_seconds,
    }


def _unknown(declared: Guarantee, problem: str) -> EffectiveGuarantee:
    return {
        "declared": declared.value,
        "effective": None,
        "engine": None,
        "evidence": [],
        **_settings(_Settings()),
        "finding": None,
        "problem": problem,
    }


def _words(guarantee: Guarantee) -> str:
    return guarantee.value.replace("_", "-")
