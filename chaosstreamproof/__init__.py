"""Where `chaos discover streamproof` looks: the toolkit asks the first, by name, of a distribution's packages.

Experiments name `faults.chaostoolkit`, whose probes, actions and control these are.
"""

from __future__ import annotations

from faults.chaostoolkit import discover

__all__ = ["discover"]
