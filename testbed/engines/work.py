"""What the generic Java jobs compute, as their options ``job.*``. ``java/Work.java`` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from generator.workloads.kinds import named
from generator.workloads.seam import Stream
from testbed.engines.real import RealEngineSettings, operator_of

_EPOCH: Final = "1970-01-01T00:00:00.000"
_NAMES: Final = {"id": "id", "key": "key", "event_time": "time"}
_TIMES: Final = ("slide", "gap", "before", "after")


def work_options(settings: RealEngineSettings) -> dict[str, str]:
    """Topics, operator, and the fields of events and results."""
    of = named(settings.workload)
    operator = of.operator(settings.window_ms)
    filters = (operator.get("where", {}), operator.get("where_right", {}))
    return {
        "job.inputs": ",".join(settings.inputs),
        "job.output": settings.output,
        "job.late": ",".join(settings.late_topics),
        "job.operator": operator_of(of),
        "job.join": settings.join,
        "job.window.ms": str(settings.window_ms),
        **{f"job.{name}.ms": str(operator.get(f"{name}_ms", 0)) for name in _TIMES},
        "job.behind.ms": str(settings.max_disorder_ms + settings.allowed_lateness_ms),
        "job.idle.ms": str(round((settings.idle_after_seconds or 0) * 1000)),
        "job.key": of.key,
        "job.id.lists": ",".join(of.id_lists),
        "job.aggregates": ",".join(f"{name}={what}" for name, what in of.aggregates.items()),
        "job.kept": ",".join(of.kept),
        **{f"job.factor.{name}": factor for name, factor in of.factors.items()},
        **{
            f"job.{place}.{name}": value
            for place, stream in enumerate(of.streams)
            for name, value in (_fields(stream) | _filter(filters[place])).items()
        },
    }


def _fields(stream: Stream) -> dict[str, str]:
    late = stream.late_fields or stream.fields
    # PGVal's late events name both of its streams. The absent one has id 0, and the epoch as its time.
    absent = [one.late_fields for one in named("mst").streams if stream.late_fields and one.name != stream.name]
    return {
        **{_NAMES[name]: path for name, path in stream.fields.items()},
        **{f"late.{_NAMES[name]}": path for name, path in late.items()},
        "late.rest": "".join(f',"{one["id"]}":0,"{one["event_time"]}":"{_EPOCH}"' for one in absent),
        "unit": stream.time_unit or "",
        "columns": ",".join(stream.columns),
    }


def _filter(where: Mapping[str, Any]) -> dict[str, str]:
    texts = {
        name: ",".join(map(str, given)) if isinstance(given, list) else str(given) for name, given in where.items()
    }
    return {f"where.{name}": text for name, text in texts.items()}
