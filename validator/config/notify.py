"""Where changes of the verdict are sent."""

from __future__ import annotations

import re
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import SecretStr, field_validator

from validator.settings.errors import broken_rule
from validator.settings.fields import Frozen

PLACEHOLDERS: Final = ("pipeline", "guarantee", "verdict", "previous", "time", "reason", "text")
_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")


class Notification(Frozen):
    """An address that gets a POST at each change of the declared guarantee's verdict, and once a day while it is `fail`
    and not all violations are acknowledged. A change to or from `unknown` is sent once it has lasted a minute."""

    url: SecretStr
    """Address, through `${NAME}` or `${file:PATH}` if it has a secret. No redirect is followed."""
    form: Literal["json", "slack"] = "json"
    """A JSON object with the names that `template` may have, or the message of Slack and Mattermost."""
    template: str | None = None
    """Body to send instead. `{pipeline}`, `{guarantee}`, `{verdict}`, `{previous}`, `{time}`, `{reason}` and `{text}`
    (a whole sentence) are replaced; in a body that is JSON, the values are escaped."""

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: SecretStr) -> SecretStr:
        try:
            parts = urlsplit(url.get_secret_value())
            is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_whole = False
        if not is_whole or not url.get_secret_value().isprintable() or " " in url.get_secret_value():
            raise broken_rule("it is not an address", "write https://HOST/PATH")
        return url

    @field_validator("template")
    @classmethod
    def _has_known_placeholders(cls, template: str | None) -> str | None:
        for name in _PLACEHOLDER.findall(template or ""):
            if name not in PLACEHOLDERS:
                raise broken_rule(f"{{{name}}} is not replaced", f"use {{{'}, {'.join(PLACEHOLDERS)}}}")
        return template

    @property
    def host(self) -> str:
        """The host of the address, for messages: the rest may be a secret."""
        return urlsplit(self.url.get_secret_value()).hostname or ""

    def filled(self, template: str, values: dict[str, str]) -> str:
        """``template`` with its placeholders replaced by ``values``."""
        return _PLACEHOLDER.sub(lambda found: values[found[1]], template)
