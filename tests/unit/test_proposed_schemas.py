"""The schemas of a registry that `config init` asks for, and what it says of those that it does not get."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from testbed.registry_stub import RegistryStub
from tests.unit.pipeline_shapes import ORDER, SHAPES
from tests.unit.proposals import proposed
from validator.cli.proposal import command
from validator.cli.proposal.columns import TopicSample
from validator.cli.proposal.named_schemas import schemas_named
from validator.codecs.one_record import Record
from validator.model.schemas import RegisteredSchema
from validator.stream import registry

pytestmark = pytest.mark.unit
LONGS = TopicSample("times", tuple(Record(struct.pack(">q", n << 24)) for n in (0, *range(100, 300))), is_whole=True)
"""Numbers in eight bytes that all seem to name another schema, the first of them schema 0."""
FRAMED = TopicSample("orders", tuple(Record(b"\0\0\0\0\7x", struct.pack(">bi", 0, 9)) for _ in range(3)), is_whole=True)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryStub]:
    monkeypatch.setattr(registry, "_ABSENT_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(registry, "_RETRY_SECONDS", 0.05)
    stub = RegistryStub()
    stub.add(7, '"long"')
    stub.add(9, ORDER)
    yield stub
    stub.close()


def looked_up(stub: RegistryStub, *samples: TopicSample, assignments: tuple[str, ...] = ()) -> Any:
    settings = command._settings("127.0.0.1:9092", "out", stub.url, assignments)
    return settings, command._schemas(command._probing(settings, ["in"], ["out"]), samples)


def test_numbers_that_begin_like_a_prefix_are_not_all_asked_for(stub: RegistryStub) -> None:
    _, schemas = looked_up(stub, LONGS, FRAMED)
    assert {id_ for id_, found in schemas.items() if found is not None} == {7, 9}
    assert len(stub.asked) == 52
    assert 0 not in schemas
    mixed = replace(LONGS, records=(*LONGS.records, *FRAMED.records))
    assert schemas_named(mixed, "value")[0] == 7, "the ids of most records come first"


def test_a_password_of_the_registry_is_given_by_reference(stub: RegistryStub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.wanted = "Basic dXNlcjpzZWNyZXQ="
    monkeypatch.setenv("REGISTRY_PASSWORD", "secret")
    given = ("schema_registry.basic_auth.username=user", "schema_registry.basic_auth.password=${REGISTRY_PASSWORD}")
    settings, schemas = looked_up(stub, FRAMED, assignments=given)
    assert set(schemas) == {7, 9}
    basic = {"username": "user", "password": "${REGISTRY_PASSWORD}"}
    assert settings["schema_registry"] == {"url": stub.url, "basic_auth": basic}, "this is what the file has"
    with pytest.raises(command.SampleFailed, match=r"refuses the sidecar .*; check --registry, and --set schema_reg"):
        looked_up(stub, FRAMED)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({}, "name the registry with --registry"),
        ({7: None}, "the registry does not have schema 7, which they name"),
        ({7: RegisteredSchema("AVRO", '"long"')}, "they name schema 7 of the registry, and are no values of it"),
    ],
)
def test_values_without_their_schema_have_a_reason(named: Any, said: str) -> None:
    shape = SHAPES["avro-service"]()
    proposal = proposed(replace(shape, schemas={**shape.schemas, 7: None, **named} if named else {}))
    assert not proposal.is_proven
    assert f"No format reads the values of orders: {said}." in proposal.doubts
