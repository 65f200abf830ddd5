"""Fixtures of the crash tests."""

from tests.integration.sidecar_fixtures import spark

__all__ = ["spark"]
