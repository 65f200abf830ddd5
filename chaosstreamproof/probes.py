"""Probes for experiments: the findings of a sidecar."""

from faults.chaostoolkit.probes import reliability, verdict, violations_since

__all__ = ["reliability", "verdict", "violations_since"]
