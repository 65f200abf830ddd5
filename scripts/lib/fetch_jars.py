"""Fetches the jars of both lock files into the cache, and archives the sidecar's classes; an error is one sentence on
stderr.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from validator.stream import class_archive  # noqa: E402  (the path comes first)
from validator.stream.jars import SIDECAR_LOCK, PrerequisiteError, resolve  # noqa: E402

try:
    jars = resolve(SIDECAR_LOCK)
    resolve(ROOT / "testbed" / "jars.lock")
    class_archive.make(jars)
except PrerequisiteError as error:
    sys.exit(str(error))
