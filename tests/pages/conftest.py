"""Fixtures of the sidecar's tests and of the served page. The session-wide fixtures are in ``tests/conftest.py``."""

from tests.integration.sidecar_fixtures import pipeline, spark
from tests.pages.served_page import page, running, served, snapshots

__all__ = ["page", "pipeline", "running", "served", "snapshots", "spark"]
