"""Faults as annotations in Grafana: one region per fault, identified by its tags."""

from __future__ import annotations

import hashlib
import json
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import requests

from dashboards.grafana import Grafana, GrafanaError, GrafanaRefusal, reason
from dashboards.push import Change, PushedItem, is_within
from dashboards.queries import FAULT_TAG, TAG_MOST
from validator.publish.report import REPORT_FILE, report_of
from validator.publish.report_types import FaultOfReport, Report
from validator.publish.sentences import clock, fault_sentences
from validator.publish.times import parse_rfc3339

TIMEOUT_SECONDS: Final = 15.0
Json = dict[str, Any]


@dataclass(frozen=True)
class PortAccess:
    """Files for access to sidecars' ports. ``ca_file``: certificates to trust in place of the public authorities.
    ``token_file``: the bearer token.
    """

    ca_file: Path | None = None
    token_file: Path | None = None


class _Bearer(requests.auth.AuthBase):
    """Sets the header `Authorization`. If the header is passed in `headers`, the library `requests` replaces it with an
    entry of `~/.netrc`."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def push_faults(grafana: Grafana, source: str, *, dry: bool, access: PortAccess | None = None) -> Iterator[PushedItem]:
    """Write each fault that ``source`` (a state folder, or the address of a sidecar) reports.

    A fault that was written before is updated only if it differs. A dry run sends only GET requests.
    Raises GrafanaError, also if the source cannot be read.
    """
    report = _report(source, access or PortAccess())
    try:
        # A fault that was planned but not reported as injected has no start.
        annotated = [(fault, annotation(report["pipeline"], fault)) for fault in report["faults"] if fault["start"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _another_form(source, "different content") from error
    for fault, body in annotated:
        there = sorted(grafana.annotations(body["tags"]), key=lambda kept: int(kept["id"]))
        change = _change(body, there[0] if there else None)
        if not dry and change == "created":
            grafana.create_annotation(body)
        elif not dry and change == "updated":
            grafana.update_annotation(int(there[0]["id"]), body)
        yield PushedItem(
            f"annotation {fault['name'] or fault['kind']} of {report['pipeline']} at {clock(fault['start'])}", change
        )


def annotation(pipeline: str, fault: FaultOfReport) -> Json:
    """The request body for Grafana, times in milliseconds since the epoch; no `timeEnd` while ``fault`` is active."""
    times = {"time": fault["start"], "timeEnd": fault["healed"]}
    return {
        **{name: parse_rfc3339(time) // 1000 for name, time in times.items() if time is not None},
        "tags": [FAULT_TAG, *_pipeline_tags(pipeline), _tag("fault", fault["id"])],
        # Grafana renders the text as HTML, and names of targets come from users.
        "text": escape(fault_sentences([fault])[0]),
    }


def _pipeline_tags(pipeline: str) -> list[str]:
    """The tags of a pipeline's name. A dashboard can truncate a long name but cannot hash it, so the first tag is
    truncated; a second tag with a hash distinguishes names with the same beginning.
    """
    # Browsers truncate by UTF-16 units.
    units = pipeline.encode("utf-16-le")
    shown = f"pipeline:{units[: 2 * TAG_MOST].decode('utf-16-le', 'ignore')}"
    return [shown] if len(units) <= 2 * TAG_MOST else [shown, _tag("whole-pipeline", pipeline)]


def _tag(name: str, value: str) -> str:
    short = value if len(value) <= TAG_MOST else hashlib.sha256(value.encode()).hexdigest()
    return f"{name}:{short}"


def _change(ours: Json, theirs: Json | None) -> Change:
    if theirs is None:
        return "created"
    ordered = {**theirs, "tags": sorted(theirs.get("tags") or ())}
    return "unchanged" if is_within({**ours, "tags": sorted(ours["tags"])}, ordered) else "updated"


def _report(source: str, access: PortAccess) -> Report:
    try:
        text = _get(source, access) if "://" in source else (Path(source) / REPORT_FILE).read_text(encoding="utf-8")
        answered = json.loads(text)
    except requests.exceptions.SSLError as error:
        fix = "give its CA's certificate with --ca-file, and use a host name that the sidecar's certificate contains"
        raise GrafanaRefusal(
            f"--faults: the certificate of {source} is not trusted ({reason(error)}); {fix}."
        ) from error
    except requests.RequestException as error:
        raise GrafanaError(
            f"--faults: no sidecar answers at {source}; check that it is running, or give its state folder."
        ) from error
    except OSError as error:
        fix = "give a state folder, or the address of a sidecar"
        raise GrafanaRefusal(f"--faults: {source} has no {REPORT_FILE} ({error.strerror}); {fix}.") from error
    except ValueError as error:
        raise GrafanaRefusal(
            f"--faults: the response of {source} is not JSON; give a state folder, or the address of a sidecar."
        ) from error
    report = report_of(answered) if isinstance(answered, dict) else None
    if report is None:
        said = answered.get("error") if isinstance(answered, dict) else None
        raise _another_form(source, said or "different version")
    return report


def _another_form(source: str, said: object) -> GrafanaRefusal:
    return GrafanaRefusal(f"--faults: {source} has no report in the format of this version ({said}).")


def _get(source: str, access: PortAccess) -> str:
    auth = None if access.token_file is None else _Bearer(_token(access.token_file))
    if access.ca_file is not None:
        try:  # if the file is unusable, requests reports a failed connection
            ssl.create_default_context(cafile=access.ca_file)
        except OSError as error:  # SSLError is an OSError
            said = error.strerror or type(error).__name__
            raise GrafanaRefusal(
                f"--ca-file: {access.ca_file} cannot be used ({said}); give PEM certificates."
            ) from error
    verify = True if access.ca_file is None else str(access.ca_file)
    answer = requests.get(f"{source.rstrip('/')}/{REPORT_FILE}", timeout=TIMEOUT_SECONDS, auth=auth, verify=verify)
    if answer.status_code == 401:
        fix = "give a file that contains the token with --token-file" if auth is None else "check --token-file"
        raise GrafanaRefusal(f"--faults: {source} answers no request without its token; {fix}.")
    if answer.status_code == 421:
        fix = "give its IP address, or add the name to metrics.allowed_hosts"
        raise GrafanaRefusal(f"--faults: {source} does not accept this host name; {fix}.")
    return answer.text


def _token(file: Path) -> str:
    try:
        token = file.read_bytes().strip()
    except OSError as error:
        raise GrafanaRefusal(f"--token-file: {file} cannot be read ({error.strerror}).") from error
    if not re.fullmatch(rb"[!-~]+", token):
        raise GrafanaRefusal(
            f"--token-file: {file} does not contain a token; write one word of ASCII characters to it."
        )
    return token.decode("ascii")
