"""Fetches the jars of both lock files into the cache; an error is one sentence on stderr."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from validator.stream.jars import SIDECAR_LOCK, PrerequisiteError, resolve  # noqa: E402  (the path comes first)

try:
    for lock in (SIDECAR_LOCK, ROOT / "testbed" / "jars.lock"):
        resolve(lock)
except PrerequisiteError as error:
    sys.exit(str(error))
