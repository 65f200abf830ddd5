"""The kinds of evidence: the concrete classes in the modules of this package."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil

from validator.oracles.seam import Oracle
from validator.reconcile import evidence
from validator.reconcile.evidence.seam import Evidence


@functools.cache
def built() -> dict[str, type[Evidence]]:
    """Value of `outputs[].evidence` -> its class."""
    found: dict[str, type[Evidence]] = {}
    for module in pkgutil.iter_modules(evidence.__path__):
        if module.name == "kinds":
            continue
        loaded = importlib.import_module(f"{evidence.__name__}.{module.name}")
        for _, one in inspect.getmembers(loaded, inspect.isclass):
            if issubclass(one, Evidence) and not inspect.isabstract(one):
                found |= dict.fromkeys(one.names, one)
    return found


def evidence_of(oracle: Oracle) -> Evidence:
    """Return the evidence of an oracle's pipeline."""
    return built()[oracle.reads.evidence](oracle)
