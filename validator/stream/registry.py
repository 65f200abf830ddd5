"""The schema registry: the driver reads schemas by their ids, keeps them in the state, and ships them to the workers.

A worker never asks the registry. If a record names a schema that is not known, its task reports that, the driver reads
the schema, and the batch is read again. A schema of an id never changes, so it is read once.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pydantic import SecretStr

from validator.config.registry import SchemaRegistry
from validator.model.schemas import RegisteredSchema, Schemas
from validator.state.folder import write_whole

FILE: Final = "schemas.json"
_TIMEOUT_SECONDS: Final = 10.0
_ANSWER_BYTES_MAX: Final = 16 * 2**20
_REFERENCES_MAX: Final = 1_000
_RETRY_SECONDS: Final = 1.0
_ABSENT_AFTER_SECONDS: Final = 5.0
"""A schema is absent if the registry does not have it for this time: a replica may lag behind the producer's."""
_ABSENT_FOR_SECONDS: Final = 300.0
"""After this time the registry is asked again for a schema that it did not have."""
_NAMED_MAX: Final = 5
"""Schemas that a message names."""
_NOT_FOUND: Final = "404"
"""The error codes of the registry for what it does not have begin with these digits (40403: schema)."""


class RegistrySilent(Exception):
    """The registry did not answer, or not as a registry does: whether it has a schema is not known."""


class RegistryStopped(Exception):
    """The run was stopped while the registry did not answer. Nothing of the batch was committed."""


class _Absent(Exception):
    """The registry answered that it does not have something."""


class Registry:
    """The schemas of one registry.

    ``state``: folder in which they are kept; None: nowhere. ``say`` gets a message when the registry stops answering,
    and when it answers again. ``stop``: ends the waiting. ``note_silence`` is called while the registry does not
    answer. ``wait_seconds``: limit of the waiting; None: it has none.
    """

    def __init__(
        self,
        settings: SchemaRegistry,
        state: Path | None,
        say: Callable[[str], None],
        stop: threading.Event,
        note_silence: Callable[[], None] = lambda: None,
        *,
        wait_seconds: float | None = None,
    ) -> None:
        self._settings = settings
        self._file = None if state is None else state / FILE
        self._say = say
        self._stop = stop
        self._note_silence = note_silence
        self._wait_seconds = wait_seconds
        self._known: dict[int | str, RegisteredSchema] = self._kept()
        self._absent: dict[int | str, float] = {}
        self.problem: str | None = None
        """Why the sidecar waits for the registry, as a clause; None if it does not."""

    @property
    def schemas(self) -> Schemas:
        """The schemas that are known, and those that the registry does not have."""
        now = time.monotonic()
        absent = {schema: None for schema, until in self._absent.items() if until > now}
        return {**self._known, **absent}

    def look_up(self, wanted: Iterable[int | str]) -> None:
        """Read schemas. Waits until the registry answers.

        Raises `RegistryStopped`, and `RegistrySilent` after ``wait_seconds``.
        """
        left = sorted(set(wanted) - self._known.keys(), key=str)
        began = time.monotonic()
        while left:
            try:
                left = self._look_up_once(left)
            except RegistrySilent as silent:
                # SEMANTICS 3.15: an engine cannot read such records either.
                self._note_silence()
                if self._wait_seconds is not None and time.monotonic() - began >= self._wait_seconds:
                    raise
                if self.problem != str(silent):
                    self.problem = str(silent)
                    self._say(f"{silent}; records of {_named(left)} are not verified until it answers")
            else:
                if left and time.monotonic() - began >= _ABSENT_AFTER_SECONDS:
                    self._absent |= dict.fromkeys(left, time.monotonic() + _ABSENT_FOR_SECONDS)
                    self._say(f"the schema registry does not have {_named(left)}: such records are undecodable")
                    break
            if left and self._stop.wait(_RETRY_SECONDS):
                raise RegistryStopped(f"stopped while waiting for {_named(left)}")
        self._keep()

    def _look_up_once(self, wanted: Sequence[int | str]) -> list[int | str]:
        """Ask for schemas. Returns those that the registry does not have. Raises `RegistrySilent`."""
        absent = []
        for schema in wanted:
            if schema not in self._known:
                try:
                    self._known[schema] = self._fetched(schema)
                except _Absent:
                    absent.append(schema)
                self._answered()
        return absent

    def _answered(self) -> None:
        if self.problem is not None:
            self.problem = None
            self._say("the schema registry answers again")

    def _fetched(self, schema: int | str) -> RegisteredSchema:
        path = f"schemas/ids/{schema}" if isinstance(schema, int) else f"schemas/guids/{quote(schema, safe='')}"
        found = self._schema_at(path)
        references: dict[str, str] = {}
        self._add_references(found, references)
        return RegisteredSchema(_kind(found), _text(found), tuple(references.items()))

    def _add_references(self, found: Mapping[str, Any], references: dict[str, str]) -> None:
        """Add the schemas that a schema refers to, each after those that it refers to itself."""
        for reference in found.get("references") or ():
            name = str(reference["name"])
            if name in references:
                continue
            if len(references) >= _REFERENCES_MAX:
                raise RegistrySilent(f"a schema of {self._urls} has more than {_REFERENCES_MAX:,} references")
            subject, version = quote(str(reference["subject"]), safe=""), int(reference["version"])
            inner = self._schema_at(f"subjects/{subject}/versions/{version}")
            self._add_references(inner, references)
            references[name] = _text(inner)

    def _schema_at(self, path: str) -> dict[str, Any]:
        """The schema at a path; of Protobuf as a descriptor, if the registry can return it so."""
        found = self._get(path)
        return found if _kind(found) != "PROTOBUF" else {**found, **self._get(f"{path}?format=serialized")}

    @property
    def _urls(self) -> str:
        return ", ".join(self._settings.url)

    def _get(self, path: str) -> dict[str, Any]:
        """The answer to a request, from the first address that answers. Raises `RegistrySilent` and `_Absent`."""
        said = ""
        for url in self._settings.url:
            try:
                return self._get_from(url, path)
            except RegistrySilent as silent:
                said = str(silent)
        raise RegistrySilent(said)

    def _get_from(self, url: str, path: str) -> dict[str, Any]:
        request = urllib.request.Request(f"{url.rstrip('/')}/{path}", headers=self._headers())  # noqa: S310 - checked
        try:
            with _opener(self._tls() if url.startswith("https:") else None).open(
                request, timeout=_TIMEOUT_SECONDS
            ) as answer:
                raw = answer.read(_ANSWER_BYTES_MAX)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(url, error.code, error.read(_ANSWER_BYTES_MAX)) from None
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise RegistrySilent(f"the schema registry at {url} does not answer ({reason})") from None
        try:
            found = json.loads(raw)
            _text(found)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RegistrySilent(f"what answers at {url} is not a schema registry") from None
        checked: dict[str, Any] = found
        return checked

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        basic, bearer = self._settings.basic_auth, self._settings.authorization
        if basic is not None:
            secret = _secret(basic.password, basic.password_file)
            pair = base64.b64encode(f"{basic.username}:{secret}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        if bearer is not None:
            token = _secret(bearer.credentials, bearer.credentials_file)
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _tls(self) -> ssl.SSLContext:
        tls = self._settings.tls_config
        try:
            context = ssl.create_default_context(cafile=None if tls.ca_file is None else str(tls.ca_file))
            if tls.cert_file is not None and tls.key_file is not None:
                context.load_cert_chain(tls.cert_file, tls.key_file)
        except OSError as error:
            raise RegistrySilent(f"a file of schema_registry.tls_config cannot be used ({error})") from None
        return context

    def _kept(self) -> dict[int | str, RegisteredSchema]:
        """The schemas in the state that this registry returned earlier."""
        try:
            found = json.loads(self._file.read_text()) if self._file is not None else {}
            if found.get("url") != list(self._settings.url):
                return {}
            return {
                schema: RegisteredSchema(kind, text, tuple((name, inner) for name, inner in references))
                for schema, kind, text, references in found["schemas"]
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            # A file that was damaged is written again.
            return {}

    def _keep(self) -> None:
        if self._file is not None:
            schemas = [[schema, *found] for schema, found in self._known.items()]
            write_whole(self._file, json.dumps({"url": list(self._settings.url), "schemas": schemas}))


def _opener(tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """Requests that follow no redirect: a redirect would send the password to another address."""
    return urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=tls))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _refusal(url: str, status: int, raw: bytes) -> Exception:
    """What an answer with an error status means."""
    try:
        found = json.loads(raw)
        code = str(found.get("error_code", "")) if isinstance(found, dict) else ""
    except ValueError:
        code = ""
    if status == 404 and code.startswith(_NOT_FOUND):
        return _Absent()
    if status in (401, 403):
        return RegistrySilent(f"the schema registry at {url} refuses the sidecar (status {status})")
    what = "" if code else ": the address may need a path"
    return RegistrySilent(f"the schema registry at {url} answers with status {status}{what}")


def _kind(found: Mapping[str, Any]) -> str:
    """The type of a schema. An answer without a type is of Avro."""
    return str(found.get("schemaType") or "AVRO")


def _text(found: Mapping[str, Any]) -> str:
    text = found["schema"]
    if not isinstance(text, str):
        raise TypeError
    return text


def _named(schemas: Sequence[int | str]) -> str:
    some = ", ".join(map(str, schemas[:_NAMED_MAX]))
    more = f" and {len(schemas) - _NAMED_MAX:,} more" if len(schemas) > _NAMED_MAX else ""
    return f"schema {some}" if len(schemas) == 1 else f"schemas {some}{more}"


def _secret(value: SecretStr | None, file: Path | None) -> str:
    if file is None:
        return "" if value is None else value.get_secret_value()
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RegistrySilent(f"{file}, a file of schema_registry, cannot be read ({error})") from None
