"""Fixtures of the sidecar's tests. The session-wide fixtures are in ``tests/conftest.py``."""

from tests.integration.sidecar_fixtures import pipeline, spark

__all__ = ["pipeline", "spark"]
