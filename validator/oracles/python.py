"""An oracle of the user: a class in a file beside the configuration, or in an installed module.

The class extends `Python` and, unless it has all methods of its own, another oracle of this package. It overrides what
differs: most often `key`. docs/oracles/python.md describes it.

The text of the class's module is read once, on the driver, and is part of the identity of the state. It travels with
the oracle to Spark's workers, so that these run the same text, and need no file.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, cast

from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, ValidationInfo, model_validator

from validator.oracles.seam import Declared, Oracle
from validator.settings.built import Combination
from validator.settings.errors import broken_rule_at

WORDS_OF_COMPUTED_KEYS: Final = Combination(
    ("inputs.explode",),
    "any, with a class of the oracle `python` that computes keys",
    "words are not counted where the class of the oracle computes keys",
)
_NAMED: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", re.ASCII)


class _Source(NamedTuple):
    """The text of a module. ``name``: its full name. ``file``: where errors find it."""

    name: str
    file: str
    text: str

    @property
    def digest(self) -> str:
        """The SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


_SOURCES: Final[dict[str, _Source]] = {}
"""Name in `sys.modules` -> the text of a module that `_module` made."""


class Python(Oracle):
    """A [class of your own](oracles/python.md). It has further parameters: its own, and those of the oracle that it
    extends."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": True})
    kind: Literal["python"]
    """A class of your own."""
    counts_rows: ClassVar[bool] = False
    class_name: str = Field(alias="class", examples=["rules:ByRegion"])
    """`MODULE:CLASS`, of `MODULE.py` beside the configuration or of an installed module."""

    refuses: ClassVar[tuple[Combination, ...]] = (WORDS_OF_COMPUTED_KEYS,)

    @model_validator(mode="wrap")
    @classmethod
    def _of_the_class(cls, given: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        """Return an instance of the class that the configuration names."""
        if cls is not Python or not isinstance(given, Mapping):
            return handler(given)
        found = _class_named(given.get("class"), (info.context or {}).get("folder"))
        known = {one.alias or name for name, one in found.model_fields.items()}
        for name in given:
            if name not in known:
                fix = f"use one of {', '.join(sorted(known - {'kind', 'class'}))}, or leave it out"
                raise broken_rule_at(str(name), f"the class {given['class']} has no such parameter", fix)
        return cast("Self", found.model_validate(dict(given), context=info.context))

    @property
    def state_depends_on(self) -> Mapping[str, str]:
        """Also the text of the class's module."""
        return {**super().state_depends_on, "class_text": _source_of(type(self)).digest}

    def check(self, declared: Declared) -> None:
        """Also refuse words of keys that the class computes."""
        super().check(declared)
        for i, one in enumerate(declared.inputs):
            if one.explode is not None and self.computes_key:
                raise broken_rule_at(f"inputs[{i}].explode", WORDS_OF_COMPUTED_KEYS.problem, "leave it out")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the text of the class's module: a worker cannot import it."""
        return _blank, (tuple(_source_of(type(self))), type(self).__name__), self.__getstate__()


def _class_named(name: object, folder: Path | str | None) -> type[Python]:
    """Return the class that ``name`` names. Raises PydanticCustomError."""
    fix = "write MODULE:CLASS, as in rules:ByRegion"
    if name is None:
        raise broken_rule_at("class", "oracle python needs it", fix)
    if not (named := _NAMED.fullmatch(str(name))):
        raise broken_rule_at("class", f"{str(name)!r} does not name a class", fix)
    module, of_module = named.groups()
    place = module
    try:
        source = _source_named(module, folder)
        if source is not None:
            place = source.file
            found = getattr(_module(source), of_module, None)
    except Exception as error:  # noqa: BLE001 - whatever the user's module raises has the same answer
        problem = f"{place} cannot be imported: {type(error).__name__}: {error}"
        raise broken_rule_at("class", problem, "correct the file") from None
    if source is None:
        where = "beside the configuration" if folder is None else f"in {folder}"
        problem = f"there is no file {module.replace('.', '/')}.py {where}, and no module {module} is installed"
        raise broken_rule_at("class", problem, "write the file there, or install the module")
    if not (inspect.isclass(found) and issubclass(found, Python)):
        what = f"{source.file} has no class {of_module}" if found is None else f"{of_module} does not extend it"
        fix = f"write class {of_module}(Python, TumblingWindow), or extend Python and another oracle"
        raise broken_rule_at("class", f"a class that extends validator.oracles.python.Python is needed; {what}", fix)
    if found.__module__ not in _SOURCES:
        problem = f"{of_module} is defined in {found.__module__}"
        raise broken_rule_at("class", problem, f"write {found.__module__}:{of_module}, or extend it in the file")
    if lacking := sorted(found.__abstractmethods__):
        fix = f"extend an oracle that has them, as in class {of_module}(Python, TumblingWindow)"
        raise broken_rule_at("class", f"{of_module} lacks {', '.join(lacking)}", fix)
    return found


def _source_named(module: str, folder: Path | str | None) -> _Source | None:
    """Return the text of a module, of the folder first; None if there is none."""
    file = Path(folder or ".", *module.split(".")).with_suffix(".py")
    if folder is not None and file.is_file():
        return _Source(module, str(file), file.read_text(encoding="utf-8"))
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        # A package that the name begins with does not exist.
        return None
    text = None if spec is None else getattr(spec.loader, "get_source", lambda _: None)(module)
    return None if spec is None or text is None else _Source(module, spec.origin or module, text)


@functools.cache
def _module(source: _Source) -> ModuleType:
    """Return the module with this text. Raises what it raises."""
    name = f"streamproof_class_{source.digest[:16]}"
    made = ModuleType(name)
    is_package = Path(source.file).stem == "__init__"
    made.__file__, made.__package__ = source.file, source.name if is_package else source.name.rpartition(".")[0]
    _SOURCES[name] = source
    # Pydantic finds the types of annotations here.
    sys.modules[name] = made
    exec(compile(source.text, source.file, "exec"), made.__dict__)  # noqa: S102 - the configuration names the file
    return made


def _source_of(of_class: type) -> _Source:
    return _SOURCES[of_class.__module__]


def _blank(source: tuple[str, str, str], name: str) -> Oracle:
    """Return an instance without values, which unpickling sets."""
    of_class: type[Oracle] = getattr(_module(_Source(*source)), name)
    return of_class.__new__(of_class)
