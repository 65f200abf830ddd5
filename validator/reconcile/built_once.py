"""Columns that are the same in every batch are built once: each costs several calls into the JVM."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from pyspark import SparkContext

T = TypeVar("T")


def built_once(build: Callable[..., T]) -> Callable[..., T]:
    """``build`` with its value kept, per arguments (hashable ones), for as long as the JVM that holds the columns."""
    kept: dict[object, tuple[object, T]] = {}

    @functools.wraps(build)
    def remembered(*args: Any) -> T:
        gateway = SparkContext._gateway
        found = kept.get(args)
        if found is None or found[0] is not gateway:
            found = kept[args] = (gateway, build(*args))
        return found[1]

    return remembered
