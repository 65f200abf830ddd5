"""The oracle kinds that are built: the classes in the modules of this package whose `kind` has values."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from typing import Final, get_args

from validator import oracles
from validator.oracles.seam import Oracle
from validator.oracles.tumbling_window import TumblingWindow
from validator.settings.built import COMBINATIONS

PLANNED: Final = frozenset(
    {
        "passthrough",
        "enrichment",
        "filter",
        "map",
        "sample",
        "tumbling_window",
        "sliding_window",
        "session_window",
        "windowed_join",
        "interval_join",
        "running_aggregate",
        "distinct",
        "rule_match",
        "reachability",
        "python",
    }
)
"""Kinds that the contract promises. Those that are not supported are refused by name."""

_WITHOUT_KIND: Final = frozenset({"seam", "kinds", "ids", "alternatives", "guesses", "pairs", "counted_pairs"})
"""Modules that define no oracle. They are not imported in the search for kinds, since some of them load NumPy."""


@functools.cache
def built() -> dict[str, type[Oracle]]:
    """Kind -> its class, sorted by kind. A class may implement several kinds."""
    found: dict[str, type[Oracle]] = {}
    for name in {module.name for module in pkgutil.iter_modules(oracles.__path__)} - _WITHOUT_KIND:
        module = importlib.import_module(f"{oracles.__name__}.{name}")
        for _, one in inspect.getmembers(module, inspect.isclass):
            if issubclass(one, Oracle) and one.__module__ == module.__name__:
                # A class that only others extend has any text as its kind.
                found |= dict.fromkeys(get_args(one.model_fields["kind"].annotation), one)
    return dict(sorted(found.items()))


def canary_oracle(every_us: int) -> Oracle:
    """Return the oracle of the canary's rounds, of which one starts every ``every_us``."""
    return TumblingWindow.of(every_us)


def unbuilt() -> frozenset[str]:
    """Planned kinds without a class."""
    return PLANNED - built().keys()


def refusals() -> dict[str, str]:
    """Setting -> refused values, as Markdown: everything that the contract promises and this version does not do."""
    found = {"oracle.kind": ", ".join(f"`{name}`" for name in sorted(unbuilt()))}
    of_oracles = (entry for one in built().values() for entry in one.refuses)
    for entry in dict.fromkeys((*COMBINATIONS, *of_oracles)):
        for setting in entry.settings:
            found[setting] = "; ".join(filter(None, (found.get(setting), entry.refused)))
    return found
