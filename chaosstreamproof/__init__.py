"""The extension of the Chaos Toolkit, under the names that experiments use, in a checkout and in an installed package.

The toolkit's `chaos discover streamproof` imports the first package, by name, of the distribution: this one. It can be
imported without the toolkit.
"""

from __future__ import annotations

import importlib
from typing import Any

from validator import __version__

__all__ = ["discover"]


def discover(discover_system: bool = True) -> dict[str, Any]:  # noqa: ARG001, FBT001, FBT002 - the toolkit's
    """The probes and actions, in the format of the toolkit's ``chaoslib.discovery``. Inspects no system.

    Raises ModuleNotFoundError without the toolkit.
    """
    library = importlib.import_module("chaoslib.discovery")
    found: dict[str, Any] = library.initialize_discovery_result("streamproof", __version__, "streamproof")
    found["activities"] += library.discover_actions(f"{__name__}.actions")
    found["activities"] += library.discover_probes(f"{__name__}.probes")
    return found
