"""Parameters of tests that only `scripts/test all` runs: the first tier has another one of their kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def full(*values: Any) -> Any:
    """A parameter that is not in the first tier."""
    return pytest.param(*values, marks=pytest.mark.full)


def first_of(values: Iterable[Any]) -> list[Any]:
    """The parameters, of which only the first one is in the first tier."""
    first, *others = values
    return [first, *map(full, others)]
