"""Client options by name, whose secrets are never shown."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from validator.config.errors import broken_rule

SECRET_WORDS: Final = ("password", "secret", "jaas", "key", "token", "credential")
HIDDEN: Final = "***"


def is_secret(name: str) -> bool:
    """Whether an option of this name may hold a secret. Rather one too many than one too few."""
    return any(word in name.lower() for word in SECRET_WORDS)


class Options(dict[str, str]):
    """Option name -> value. A ``dict`` in all but its text, which hides the secrets."""

    def shown(self) -> dict[str, str]:
        """The options for people: secrets replaced by ``***``."""
        return {name: HIDDEN if is_secret(name) else value for name, value in self.items()}

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
"""Options of a client; numbers and true/false become text. Dumps hide secrets, so a dump is not a way to load them."""
