"""`streamproof status`: the verdict of a state folder or of a sidecar's port, for probes and scripts."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from validator.cli.exits import STATUS_OF_OUTCOME, UNKNOWN, UsageError
from validator.cli.reports import report_in
from validator.model.terminal import plain
from validator.publish.sentences import verdict_line
from validator.publish.stderr import to_stderr

_TIMEOUT_SECONDS: Final = 10.0
_ANSWER_BYTES_MAX: Final = 2**20


def run(target: str, ca_file: Path | None, token_file: Path | None) -> int:
    """Print the verdict of ``target`` in one line. Returns the exit status of `report`; that of an unknown verdict if a
    sidecar's port does not answer. Raises UsageError."""
    if "://" not in target:
        found = report_in(Path(target))
        print(plain(verdict_line(found)))
        return STATUS_OF_OUTCOME[found["outcome"]]
    try:
        answer = _asked(target, ca_file, token_file)
        status = STATUS_OF_OUTCOME[answer["verdict"]]
        print(plain(str(answer["text"])))
    except (OSError, HTTPException) as error:
        to_stderr(f"streamproof: {target} does not answer ({getattr(error, 'reason', error)}).")
        return UNKNOWN
    except (ValueError, KeyError, TypeError):
        to_stderr(f"streamproof: {target} has no verdict; give the address of a sidecar's port.")
        return UNKNOWN
    return status


def _asked(target: str, ca_file: Path | None, token_file: Path | None) -> dict[str, Any]:
    """The answer of `/verdict`. Raises OSError, HTTPException, ValueError, UsageError."""
    headers = {"Accept": "application/json"}
    if token_file is not None:
        try:
            headers["Authorization"] = f"Bearer {token_file.read_text(encoding='ascii').strip()}"
        except OSError as error:
            raise UsageError(f"--token-file: {token_file} cannot be read ({error.strerror}).") from None
    try:
        tls = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file))
    except OSError as error:
        raise UsageError(f"--ca-file: {ca_file} cannot be used ({error.strerror or error}).") from None
    if not target.startswith(("http://", "https://")):
        raise UsageError(f"{target}: give an address with http:// or https://, or a state folder.")
    request = urllib.request.Request(f"{target.rstrip('/')}/verdict", headers=headers)  # noqa: S310 - checked above
    try:
        with urllib.request.build_opener(tls).open(request, timeout=_TIMEOUT_SECONDS) as answer:
            raw = answer.read(_ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as refused:
        with refused:
            raw = refused.read(_ANSWER_BYTES_MAX)
        if refused.code != 503:  # that of a verdict other than pass
            fix = {401: "give its token with --token-file", 421: "add the name to metrics.allowed_hosts"}
            said = fix.get(refused.code, "give the address of a sidecar's port")
            raise UsageError(f"{target}: it answers with status {refused.code}; {said}.") from None
    found = json.loads(raw)
    if not isinstance(found, dict):
        raise TypeError
    return found
