"""Used by `chaos discover streamproof`: the Chaos Toolkit imports the first package, by name, of a distribution.

Experiments name `faults.chaostoolkit`, which contains the probes, the actions and the control.
"""

from __future__ import annotations

from faults.chaostoolkit import discover

__all__ = ["discover"]
