"""Configurations of pipelines that engineers know, found by the name of their file (docs/pipelines.md)."""
