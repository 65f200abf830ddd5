"""The text of a `.proto` file to its descriptor, as far as records need it: packages, imports, messages, enums, fields.

Registries return Protobuf as such texts. Options, services and extensions do not change how a record is read, except
`packed`, which readers ignore, and proto2's defaults, which have presence here. Source: the language specifications of
proto2 and proto3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from google.protobuf import descriptor_pb2

_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<word>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[A-Za-z0-9_.]+|[-+{}()<>\[\];=,:/])""",
    re.DOTALL,
)
_F = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    name: getattr(_F, f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
        "sfixed32", "sfixed64", "sint32", "sint64",
    )
}  # fmt: skip
_LABELS: Final = {"optional": _F.LABEL_OPTIONAL, "required": _F.LABEL_REQUIRED, "repeated": _F.LABEL_REPEATED}
_CLOSING: Final = {"{": "}", "[": "]", "(": ")"}


class ProtoInvalid(ValueError):
    """A text is not a `.proto` file; the message is a clause."""


def descriptor_of(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    """The descriptor of a text, as the file ``name``. Raises `ProtoInvalid`."""
    try:
        return _Parser(_tokens(text), name).file()
    except StopIteration:
        raise ProtoInvalid("is a .proto text that ends too early") from None


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ProtoInvalid(f"is not a .proto text, at character {at}")
        at = found.end()
        if (word := found["word"]) is not None:
            yield word


class _Parser:
    def __init__(self, tokens: Iterator[str], name: str) -> None:
        self._tokens = tokens
        self._file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto2")

    def file(self) -> descriptor_pb2.FileDescriptorProto:
        """The whole file."""
        for word in self._tokens:
            match word:
                case "syntax":
                    self._expect("=")
                    self._file.syntax = _unquoted(self._next())
                    self._expect(";")
                case "edition":
                    raise ProtoInvalid("is a .proto text of an edition, which is not supported")
                case "package":
                    self._file.package = self._next()
                    self._expect(";")
                case "import":
                    name = self._next()
                    if name in ("public", "weak"):
                        name = self._next()
                    self._file.dependency.append(_unquoted(name))
                    self._expect(";")
                case "message":
                    self._message(self._file.message_type.add())
                case "enum":
                    self._enum(self._file.enum_type.add())
                case ";":
                    pass
                case _:
                    self._skip_statement()
        return self._file

    def _next(self) -> str:
        return next(self._tokens)

    def _expect(self, wanted: str) -> None:
        found = self._next()
        if found != wanted:
            raise ProtoInvalid(f"is not a .proto text: it has {found} in place of {wanted}")

    def _skip_statement(self) -> None:
        """Skip up to a semicolon, or over a block."""
        while (word := self._next()) != ";":
            if word == "{":
                self._skip_block(word)
                return

    def _skip_block(self, opening: str) -> None:
        while (word := self._next()) != _CLOSING[opening]:
            if word in _CLOSING:
                self._skip_block(word)

    def _message(self, to: descriptor_pb2.DescriptorProto) -> None:
        to.name = self._next()
        self._expect("{")
        self._body(to)

    def _body(self, to: descriptor_pb2.DescriptorProto) -> None:
        while (word := self._next()) != "}":
            match word:
                case "message":
                    self._message(to.nested_type.add())
                case "enum":
                    self._enum(to.enum_type.add())
                case "oneof":
                    self._oneof(to)
                case "option" | "reserved" | "extensions" | "extend":
                    self._skip_statement()
                case ";":
                    pass
                case _:
                    self._field(to, word)

    def _oneof(self, to: descriptor_pb2.DescriptorProto) -> None:
        index = len(to.oneof_decl)
        to.oneof_decl.add(name=self._next())
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._skip_statement()
            elif word != ";":
                self._field(to, word).oneof_index = index

    def _field(self, to: descriptor_pb2.DescriptorProto, first: str) -> descriptor_pb2.FieldDescriptorProto:
        field = to.field.add(label=_LABELS.get(first, _F.LABEL_OPTIONAL))
        kind = self._next() if first in _LABELS else first
        if kind == "group":
            raise ProtoInvalid("has a group, which is not supported")
        entry = self._map_entry(to) if kind == "map" else None
        field.name = self._next()
        self._expect("=")
        field.number = self._number()
        if (word := self._next()) == "[":
            self._skip_block(word)
            word = self._next()
        if word != ";":
            raise ProtoInvalid(f"is not a .proto text: it has {word} after the field {field.name}")
        if entry is not None:
            entry.name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
            field.label, kind = _F.LABEL_REPEATED, entry.name
        _set_type(field, kind)
        if first == "optional" and self._file.syntax == "proto3":
            field.proto3_optional = True
            field.oneof_index = len(to.oneof_decl)
            to.oneof_decl.add(name=f"_{field.name}")
        return field

    def _map_entry(self, to: descriptor_pb2.DescriptorProto) -> descriptor_pb2.DescriptorProto:
        """The type of the entries of a map, whose key and value types follow."""
        entry = to.nested_type.add()
        entry.options.map_entry = True
        self._expect("<")
        for number, name in enumerate(("key", "value"), 1):
            field = entry.field.add(name=name, number=number, label=_F.LABEL_OPTIONAL)
            _set_type(field, self._next())
            self._expect("," if number == 1 else ">")
        return entry

    def _number(self) -> int:
        word = self._next()
        sign = -1 if word == "-" else 1
        word = self._next() if word in ("-", "+") else word
        try:
            return sign * int(word, 8 if re.fullmatch("0[0-7]+", word) else 0)
        except ValueError:
            raise ProtoInvalid(f"is not a .proto text: it has {word} in place of a number") from None

    def _enum(self, to: descriptor_pb2.EnumDescriptorProto) -> None:
        to.name = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._expect_option(to)
            elif word == "reserved":
                self._skip_statement()
            elif word != ";":
                self._expect("=")
                to.value.add(name=word, number=self._number())
                if (after := self._next()) == "[":
                    self._skip_block(after)
                    self._expect(";")

    def _expect_option(self, to: descriptor_pb2.EnumDescriptorProto) -> None:
        """An option of an enum. Two names of one number need `allow_alias`."""
        name = self._next()
        if name == "allow_alias":
            self._expect("=")
            to.options.allow_alias = self._next() == "true"
        self._skip_statement()


def _set_type(field: descriptor_pb2.FieldDescriptorProto, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        # Whether it is a message or an enum, and in which scope, the pool finds out.
        field.type_name = kind


def _unquoted(word: str) -> str:
    if len(word) < 2 or word[0] not in "\"'":
        raise ProtoInvalid(f"is not a .proto text: it has {word} in place of a text in quotes")
    return word[1:-1]
