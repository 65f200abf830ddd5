"""Columns that are the same in every batch are built once: each costs several calls into the JVM."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from pyspark import SparkContext

T = TypeVar("T")


def built_once(build: Callable[[], T]) -> Callable[[], T]:
    """``build`` with its value kept for as long as the JVM that holds the columns."""
    kept: tuple[object, T] | None = None

    @functools.wraps(build)
    def remembered() -> T:
        nonlocal kept
        gateway = SparkContext._gateway
        if kept is None or kept[0] is not gateway:
            kept = (gateway, build())
        return kept[1]

    return remembered
