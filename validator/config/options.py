"""Options of Kafka's clients and of Spark, by name. Secrets among them are never shown."""

from __future__ import annotations

import shlex
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from validator.settings.errors import broken_rule

SECRET_WORDS: Final = ("password", "passwd", "pwd", "passphrase", "secret", "jaas", "key", "token", "credential")
HIDDEN: Final = "***"


def is_secret(name: str) -> bool:
    """Whether an option of this name may hold a secret. Some names that match hold none."""
    return any(word in name.lower() for word in SECRET_WORDS)


def secret_property(java_option: str) -> tuple[str, str] | None:
    """Name and value of the system property that ``-Dname=value`` sets, if it may be a secret; else None."""
    name, equals, value = java_option.removeprefix("-D").partition("=")
    return (name, value) if java_option.startswith("-D") and equals and is_secret(name) else None


def _shown(name: str, value: str) -> str:
    if is_secret(name):
        return HIDDEN
    if "JavaOptions" not in name:
        return value
    try:
        given = shlex.split(value)
    except ValueError:
        return HIDDEN
    found = [secret_property(option) for option in given]
    if not any(found):
        return value
    return " ".join(
        f"-D{hidden[0]}={HIDDEN}" if hidden else shlex.quote(option)
        for option, hidden in zip(given, found, strict=True)
    )


class Options(dict[str, str]):
    """Option name -> value. Its text form hides the secrets."""

    def shown(self) -> dict[str, str]:
        """The options for people: secrets replaced by ``***``, also those of a JVM's ``-Dname=value``."""
        return {name: _shown(name, value) for name, value in self.items()}

    def __repr__(self) -> str:
        return repr(self.shown())

    __str__ = __repr__


def _texts(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    texts = {}
    for name, item in value.items():
        if isinstance(item, bool):
            texts[name] = "true" if item else "false"
        elif isinstance(item, (int, float, str)):
            texts[name] = str(item)
        else:
            raise broken_rule(f"option {name!r} has no plain value", "write a text, number, true or false")
    return texts


ClientOptions = Annotated[
    dict[str, str],
    BeforeValidator(_texts),
    AfterValidator(Options),
    PlainSerializer(lambda options: Options(options).shown(), return_type=dict[str, str]),
]
"""Options of a client; numbers and true/false become text. A dump hides secrets, so it cannot be loaded again."""
