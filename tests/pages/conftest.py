"""Fixtures of the sidecar's tests; the ones of the whole session are in ``tests/conftest.py``."""

from tests.integration.sidecar_fixtures import pipeline, spark

__all__ = ["pipeline", "spark"]
