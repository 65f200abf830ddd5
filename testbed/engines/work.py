"""What the generic Java jobs compute, as their options ``job.*``. ``java/Work.java`` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from generator.workloads.kinds import named
from generator.workloads.seam import Stream, Workload
from generator.workloads.shufflebench import ShuffleBench
from testbed.engines.real import RealEngineSettings, operator_of

_EPOCH: Final = "1970-01-01T00:00:00.000"
_NAMES: Final = {"id": "id", "key": "key", "event_time": "time"}
_TIMES: Final = ("slide", "gap", "before", "after")


def work_options(settings: RealEngineSettings) -> dict[str, str]:
    """Topics, operator, and the fields of events and results."""
    of = settings.configured
    operator = of.operator(settings.window_ms)
    filters = (operator.get("where", {}), operator.get("where_right", {}))
    return {
        "job.inputs": ",".join(settings.inputs),
        "job.output": settings.output,
        "job.late": ",".join(settings.late_topics),
        "job.operator": operator_of(of),
        "job.join": settings.join,
        "job.poison": settings.poison,
        "job.window.ms": str(operator.get("window_ms", settings.window_ms)),
        **{f"job.{name}.ms": str(operator.get(f"{name}_ms", 0)) for name in _TIMES},
        "job.behind.ms": str(
            max(settings.max_disorder_ms, operator.get("max_disorder_ms", 0)) + settings.allowed_lateness_ms
        ),
        "job.until": operator.get("until", ""),
        "job.idle.ms": str(round((settings.idle_after_seconds or 0) * 1000)),
        "job.every": str(operator.get("every", 1)),
        "job.key": of.key,
        "job.id.lists": ",".join(of.id_lists if of.has_ids else ()),
        "job.aggregates": ",".join(f"{name}={what}" for name, what in of.aggregates.items()),
        "job.kept": ",".join(of.kept),
        "job.carried": ",".join(of.carried),
        "job.changes": ",".join(of.changes),
        "job.partitioned.by": of.partitioned_by or "",
        "job.splits": str(any(stream.is_split for stream in of.streams)).lower(),
        "job.matcher": ",".join(matcher_arguments(of)),
        "job.state.bytes": str(of.state) if isinstance(of, ShuffleBench) else "0",
        **{f"job.factor.{name}": factor for name, factor in of.factors.items()},
        **{
            f"job.{place}.{name}": value
            for place, stream in enumerate(of.streams)
            for name, value in (_fields(stream) | _filter(filters[place])).items()
        },
    }


def _fields(stream: Stream) -> dict[str, str]:
    late = {"id": "id", **(stream.late_fields or stream.fields)}
    # PGVal's late events name both of its streams. The absent one has id 0, and the epoch as its time.
    absent = [one.late_fields for one in named("mst").streams if stream.late_fields and one.name != stream.name]
    return {
        **{_NAMES[name]: path for name, path in stream.fields.items()},
        **{f"late.{_NAMES[name]}": path for name, path in late.items()},
        "late.rest": "".join(f',"{one["id"]}":0,"{one["event_time"]}":"{_EPOCH}"' for one in absent),
        "unit": stream.time_unit or "",
        "columns": ",".join(stream.columns),
        "id.paths": ",".join(stream.id_paths),
        "layout": ",".join(f"{name}@{at['offset']}" for name, at in stream.layout.items() if at["type"] == "int64"),
    }


def matcher_arguments(of: Workload) -> list[str]:
    """The rules of ShuffleBench, as ``java/Matcher.java`` reads them; empty for other workloads."""
    if not isinstance(of, ShuffleBench):
        return []
    alike = [str(of.rules), str(of.selectivity), str(of.zipf)]
    return [of.matching, *(alike if of.selectivities is None else of.selectivities.split(" "))]


def _filter(where: Mapping[str, Any]) -> dict[str, str]:
    texts = {
        name: ",".join(map(str, given)) if isinstance(given, list) else str(given) for name, given in where.items()
    }
    return {f"where.{name}": text for name, text in texts.items()}
