"""The values that a reader chooses for a dashboard variable, as Grafana writes them into a query."""

from __future__ import annotations

import re


def in_grafana(expression: str, *names: str) -> str:
    """``expression`` with ``names`` as the chosen pipelines, in the formats `raw` and `regex` of Grafana's registry."""
    escaped = [re.sub(r"[\\^$*+?.()|[\]{}/]", r"\\\g<0>", name) for name in names]
    chosen = escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"
    return expression.replace("${pipeline:raw}", ",".join(names)).replace("${pipeline:regex}", chosen)
