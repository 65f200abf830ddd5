"""The schema registry from which the sidecar reads the schemas that records name."""

from __future__ import annotations

from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from validator.settings.errors import broken_rule
from validator.settings.fields import Frozen
from validator.settings.local_paths import LocalPath


class BasicAuth(Frozen):
    """User and password."""

    username: str = Field(min_length=1)
    """The user, or the API key."""
    password: SecretStr | None = None
    """The password, through `${NAME}` or `${file:PATH}`."""
    password_file: LocalPath | None = None
    """File with the password. It is read at each request."""

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if (self.password is None) == (self.password_file is None):
            raise broken_rule("it needs one of password and password_file", "write one of them")
        return self


class BearerToken(Frozen):
    """A bearer token."""

    credentials: SecretStr | None = None
    """The token, through `${NAME}` or `${file:PATH}`."""
    credentials_file: LocalPath | None = None
    """File with the token. It is read at each request."""

    @model_validator(mode="after")
    def _one_token(self) -> Self:
        if (self.credentials is None) == (self.credentials_file is None):
            raise broken_rule("it needs one of credentials and credentials_file", "write one of them")
        return self


class RegistryTls(Frozen):
    """TLS to the registry."""

    ca_file: LocalPath | None = None
    """PEM file with the authorities that are trusted; none: those of the operating system."""
    cert_file: LocalPath | None = None
    """PEM file with the sidecar's certificate and its chain, if the registry asks for one."""
    key_file: LocalPath | None = None
    """PEM file with the key of that certificate, unencrypted."""

    @model_validator(mode="after")
    def _both_files(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise broken_rule("cert_file and key_file belong together", "write both, or neither")
        return self


class SchemaRegistry(Frozen):
    """A registry with the REST interface of Confluent's (docs/formats.md)."""

    url: tuple[str, ...] = Field(min_length=1)
    """Address, such as `https://registry:8081`, or several to try in turn."""
    basic_auth: BasicAuth | None = None
    """User and password."""
    authorization: BearerToken | None = None
    """A bearer token instead."""
    tls_config: RegistryTls = RegistryTls()
    """Certificates, for addresses with `https`."""

    @field_validator("url", mode="before")
    @classmethod
    def _addresses(cls, value: Any) -> Any:
        urls = [value] if isinstance(value, str) else value
        for url in urls if isinstance(urls, (list, tuple)) else ():
            parts = urlsplit(url) if isinstance(url, str) else None
            if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
                raise broken_rule("it is not an address", "write http://HOST:PORT or https://HOST:PORT")
            if "@" in parts.netloc:
                raise broken_rule("it has a user or password", "write them below basic_auth")
        return urls

    @model_validator(mode="after")
    def _one_authentication(self) -> Self:
        if self.basic_auth is not None and self.authorization is not None:
            raise broken_rule("basic_auth and authorization exclude each other", "leave one of them out")
        return self
