"""The command `streamproof` with further arguments from stdin, a JSON list of texts.

Every user of the host can read a command line, and none can read a pipe. The Python API passes settings in this way.
"""

from __future__ import annotations

import json
import sys

from validator.cli.main import main

if __name__ == "__main__":
    sys.exit(main([*sys.argv[1:], *json.load(sys.stdin)]))
