"""Client of Grafana's HTTP API, based on the package `grafana-api`, with workarounds for that package's defects.

Workarounds: every error becomes one sentence; a response that is not JSON is reported as such; failed connections, 429
and 5xx are retried; a redirect (a login page, http instead of https) is an error, because the package would turn a POST
into a GET.

    GrafanaError(Exception)         the text is the sentence; ``exit_status`` 3: temporary failure
      GrafanaRefusal                Grafana refused, a retry cannot help; ``exit_status`` 2
        GrafanaNotFound             404
        GrafanaConflict             409 and 412
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import requests
from grafana_api.grafana_face import GrafanaFace

from dashboards.settings import ADDRESS_ALONE, has_secret_parts

ATTEMPTS: Final = 4
FIRST_WAIT_SECONDS: Final = 0.5
TIMEOUT_SECONDS: Final = 30.0
TRANSIENT_STATUSES: Final = frozenset({429, 500, 502, 503, 504})
"""Transient statuses; every request here can safely be sent twice."""

Json = dict[str, Any]
Credentials = str | tuple[str, str]
"""A service account's token, or user name and password."""


class GrafanaError(Exception):
    """The request to Grafana failed."""

    exit_status = 3


class GrafanaRefusal(GrafanaError):
    """Grafana refused the request."""

    exit_status = 2


class GrafanaNotFound(GrafanaRefusal):
    """The requested object does not exist."""


class GrafanaConflict(GrafanaRefusal):
    """An object of this name already exists, or differs from the expected version."""


class _TransientError(Exception):
    """A response for which a retry may help."""


class Grafana:
    """Client of the Grafana at ``url``. ``wait`` sleeps for a number of seconds between attempts.

    Every method raises GrafanaError; the constructor raises GrafanaRefusal for an invalid address.
    """

    def __init__(self, url: str, credentials: Credentials, wait: Callable[[float], None] = time.sleep) -> None:
        parts, port = _address(url)
        prefix = parts.path.strip("/")
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        self.url = url
        self._wait = wait
        face = GrafanaFace(
            auth=credentials,
            host=host,
            port=port,
            url_path_prefix=f"{prefix}/" if prefix else "",
            protocol=parts.scheme,
            timeout=TIMEOUT_SECONDS,
        )
        self._face = face
        # The package only raises an error text without the status, so the response is checked before the package sees
        # it.
        face.api.s.hooks["response"].append(self._raise_for_status)

    def organization(self) -> int:
        """Number of the organization that the credentials belong to."""
        answered = self._request(self._face.organization.get_current_organization)
        if not isinstance(answered, dict) or not isinstance(answered.get("id"), int):
            raise self._no_grafana()
        return int(answered["id"])

    def prometheus_uids(self) -> list[str]:
        """Uids of the Prometheus data sources."""
        found = self._list(self._face.datasource.list_datasources)
        return [str(source["uid"]) for source in found if source.get("type") == "prometheus"]

    def folder(self, uid: str) -> Json | None:
        """The folder, or None if it does not exist."""
        return self._find(lambda: self._face.folder.get_folder(uid), {})

    def create_folder(self, uid: str, title: str) -> None:
        """Create the folder."""
        try:
            self._request(lambda: self._face.folder.create_folder(title, uid))
        except GrafanaConflict as error:
            # The response to the first attempt may be lost; Grafana then refuses the retry as a duplicate.
            if self.folder(uid) is not None:
                return
            for other in self._list(self._face.folder.get_all_folders):
                if str(other.get("title")).casefold() == title.casefold():
                    raise GrafanaRefusal(
                        f"{self.url}: the folder with uid {other.get('uid')} already has the title {title}; rename "
                        "it, or delete it if it is empty, and push again."
                    ) from error
            raise

    def dashboard(self, uid: str) -> Json | None:
        """The dashboard with its `meta`, or None."""
        return self._find(lambda: self._face.dashboard.get_dashboard(uid), {"dashboard": dict, "meta": dict})

    def save_dashboard(self, model: Json, folder_uid: str, message: str) -> None:
        """Create the dashboard, or replace the dashboard of the same uid."""
        body = {"dashboard": model, "folderUid": folder_uid, "message": message, "overwrite": True}
        self._request(lambda: self._face.dashboard.update_dashboard(body))

    def rule_group(self, folder_uid: str, name: str) -> Json | None:
        """The alert rule group, or None."""
        return self._find(lambda: self._face.api.GET(_group_path(folder_uid, name)), {"rules": list})

    def save_rule_group(self, folder_uid: str, name: str, body: Json) -> Json | None:
        """Create or replace the alert rule group, which stays editable in Grafana. Returns the group as Grafana stores
        it.
        """
        headers = {"X-Disable-Provenance": "true"}
        answered = self._request(lambda: self._face.api.PUT(_group_path(folder_uid, name), json=body, headers=headers))
        return answered if isinstance(answered, dict) else None

    def annotations(self, tags: Sequence[str]) -> list[Json]:
        """The annotations of all times that have all of ``tags``."""
        return self._list(lambda: self._tagged(tags) or [])

    def create_annotation(self, body: Json) -> None:
        """Create the annotation, unless one with all of its `tags` exists."""
        # Grafana creates a second annotation on a retry. Every attempt therefore looks first, because the response to
        # the previous attempt may be lost.
        self._request(lambda: self._tagged(body["tags"]) or self._face.api.POST("/annotations", json=body))

    def update_annotation(self, number: int, body: Json) -> None:
        """Update annotation ``number`` to ``body``."""
        self._request(lambda: self._face.api.PATCH(f"/annotations/{number}", json=body))

    def _tagged(self, tags: Sequence[str]) -> Any:
        # The package's own method fails with a type error, and does not escape tags.
        query = urlencode([("type", "annotation"), *(("tags", tag) for tag in tags)])
        return self._face.api.GET(f"/annotations?{query}")

    def _find(self, request: Callable[[], Any], holds: Mapping[str, type]) -> Json | None:
        """The object that ``request`` returns, or None if it does not exist. Its fields must have the types in
        ``holds``.
        """
        try:
            found = self._request(request)
        except GrafanaNotFound:
            return None
        if not isinstance(found, dict) or not all(isinstance(found.get(name), kind) for name, kind in holds.items()):
            raise self._no_grafana()
        return found

    def _list(self, request: Callable[[], Any]) -> list[Json]:
        found = self._request(request)
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise self._no_grafana()
        return found

    def _no_grafana(self) -> GrafanaRefusal:
        return GrafanaRefusal(f"{self.url}: the response is not from a Grafana; check the address.")

    def _request(self, request: Callable[[], Any]) -> Any:
        said = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._wait(FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
            try:
                return request()
            except requests.Timeout:
                said = f"no response within {TIMEOUT_SECONDS:g} s"
            except requests.exceptions.SSLError as error:
                raise GrafanaRefusal(f"{self.url}: the certificate is not trusted ({reason(error)}).") from error
            except requests.exceptions.JSONDecodeError as error:
                if not error.doc:  # an empty 204: success without content
                    return None
                raise self._no_grafana() from error
            except requests.ConnectionError as error:
                said = f"no connection ({reason(error)})"
            except _TransientError as error:
                said = str(error)
        raise GrafanaError(f"{self.url}: {said}, {ATTEMPTS} times; check that Grafana is running there and try again.")

    def _raise_for_status(self, answer: requests.Response, **_: object) -> None:
        """Raise an error for every response that is not a success."""
        if answer.is_redirect:
            place = answer.headers.get("Location", "elsewhere")
            raise GrafanaRefusal(f"{self.url}: it redirects to {place}; give the final address.")
        status = answer.status_code
        if status < 400:
            return
        said = _message(answer)
        if status in TRANSIENT_STATUSES:
            raise _TransientError(f"Grafana responded with {status} ({said})")
        if status == 404:
            raise GrafanaNotFound(f"{self.url}: {said}; check the address.")
        if status == 401:
            raise GrafanaRefusal(
                f"{self.url}: the credentials are not accepted; check GRAFANA_TOKEN, or GRAFANA_USER and "
                "GRAFANA_PASSWORD."
            )
        if status == 403:
            what = f"{answer.request.method} {urlsplit(answer.url).path}"
            raise GrafanaRefusal(f"{self.url}: the account lacks permission for {what}; grant it, or the role Admin.")
        kind = GrafanaConflict if status in {409, 412} else GrafanaRefusal
        raise kind(f"{self.url}: Grafana refused with {status} ({said}); this Grafana version may be incompatible.")


def _address(url: str) -> tuple[SplitResult, int | None]:
    if has_secret_parts(url):
        raise GrafanaRefusal(ADDRESS_ALONE)
    with contextlib.suppress(ValueError):  # an invalid port
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
        if parts.scheme in {"http", "https"} and parts.hostname:
            return parts, port
    raise GrafanaRefusal(f"{url}: not an address of a Grafana; give one such as http://localhost:3000.")


def _group_path(folder_uid: str, name: str) -> str:
    return f"/v1/provisioning/folder/{quote(folder_uid, safe='')}/rule-groups/{quote(name, safe='')}"


def _message(answer: requests.Response) -> str:
    try:
        answered = answer.json()
    except ValueError:
        return answer.reason or "no reason given"
    return str(answered.get("message", answered)) if isinstance(answered, dict) else str(answered)


def reason(error: Exception) -> str:
    """The innermost reason, because the texts that urllib3 adds contain memory addresses."""
    inner: BaseException = error
    while inner.__cause__ is not None or inner.__context__ is not None:
        inner = inner.__cause__ or inner.__context__ or inner
    return str(getattr(inner, "strerror", None) or inner)
