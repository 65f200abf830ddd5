"""The errors of a configuration.

    ConfigError                 any of the errors below; ``problems`` has one sentence for each problem
    ├── ConfigFileError         the file cannot be read, or is not YAML with unique keys
    ├── OverrideError           an environment variable or ``--set`` names no place in the document
    ├── ExpansionError          ``${NAME}`` or ``${file:PATH}`` cannot be resolved
    └── InvalidConfigError      the document was read and breaks a rule, or has a setting that is not supported yet

A sentence names the file, the field and the fix. It never quotes a value below ``options`` or ``authorization``.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic_core import PydanticCustomError


class ConfigError(Exception):
    """A configuration cannot be used. ``problems`` has one sentence for each problem."""

    exit_status = 2

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__("\n".join(self.problems))


class ConfigFileError(ConfigError):
    """The file is absent, unreadable, or not YAML with unique keys."""


class OverrideError(ConfigError):
    """An override (environment variable or ``--set``) names no place in the document."""


class ExpansionError(ConfigError):
    """A ``${...}`` cannot be resolved."""


class InvalidConfigError(ConfigError):
    """The document breaks a rule of the configuration, or has a setting that is not supported yet."""


def broken_rule(problem: str, fix: str) -> PydanticCustomError:
    """The error that a validator of the model raises: ``problem`` and ``fix`` become "FIELD: problem; fix."."""
    return PydanticCustomError("broken_rule", "{problem}; {fix}", {"problem": problem, "fix": fix})


def broken_rule_at(place: str, problem: str, fix: str) -> PydanticCustomError:
    """As :func:`broken_rule`, for a rule over several fields.

    ``place`` is the field to change, relative to the model that checks the rule, such as ``fields.window_start``.
    """
    context = {"problem": problem, "fix": fix, "place": place}
    return PydanticCustomError("broken_rule", "{problem}; {fix}", context)
