"""The matching of the Java jobs: komihash's published vectors, and ShuffleBench's rules against a loop over them."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from generator.workloads.kinds import named
from testbed.engines.java_build import find_javac
from testbed.engines.jvm import SOURCES
from testbed.engines.work import matcher_arguments
from tests.unit.rule_loop import hash_matches, range_matches
from tests.unit.test_shufflebench import PUBLISHED, SELECTIVITIES, SHARES, matches

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

MAIN: Final = """
import java.util.HexFormat;
import java.util.List;

public final class Ask {
  public static void main(String[] arguments) throws Exception {
    Matcher matcher = Matcher.of(List.of(arguments));
    for (String line : new String(System.in.readAllBytes()).split("\\n")) {
      String[] parts = line.split(" ", -1);
      System.out.println(parts[0].equals("hash")
          ? Long.toHexString(Matcher.komihash(
              HexFormat.of().parseHex(parts[3]), Long.parseUnsignedLong(parts[2], 16), parts[1].equals("4.3")))
          : List.of(matcher.rules(Long.parseUnsignedLong(parts[1], 16), Long.parseUnsignedLong(parts[2], 16))
              .boxed().toArray()));
    }
  }
}
"""
"""Answers a line of the standard input with a line: of `hash VERSION SEED MESSAGE` or `rules FIRST SECOND`, in hex."""


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("java")
    (folder / "Ask.java").write_text(MAIN, encoding="utf-8")
    sources = [folder / "Ask.java", SOURCES / "Matcher.java"]
    subprocess.run([find_javac(), "-d", folder, *sources], check=True)
    return folder


def answers(classes: Path, given: Sequence[str], lines: Sequence[str]) -> list[str]:
    """What the program answers with the arguments ``given``."""
    java = find_javac().with_name("java")
    command = [str(java), "-cp", str(classes), "Ask", *given]
    done = subprocess.run(command, check=True, input="\n".join(lines), text=True, capture_output=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("version", ["4.3", "5.0"])
def test_hashes_are_the_published_ones(classes: Path, version: str) -> None:
    messages = [one.encode() if isinstance(one, str) else one for _, one, _ in PUBLISHED]
    lines = [f"hash {version} {seed:x} {of.hex()}" for (seed, *_), of in zip(PUBLISHED, messages, strict=True)]
    assert answers(classes, [], lines) == [f"{expected:x}" for *_, expected in PUBLISHED]


@pytest.mark.parametrize(
    ("rules", "selectivity", "zipf"), [(1, 1.0, 0.0), (40, 1.0, 0.0), (300, 1.0, 1.2), (2_000, 0.5, 0.0)]
)
def test_the_rules_are_those_that_a_loop_over_all_rules_finds(
    classes: Path, rules: int, selectivity: float, zipf: float
) -> None:
    heads = [struct.pack(">qQ", number, number * 0x9E3779B97F4A7C15 % (1 << 64)) for number in range(200)]
    lines = [f"rules {head[:8].hex()} {head[8:].hex()}" for head in heads]
    of = named(f"shufflebench:rules={rules},selectivity={selectivity},zipf={zipf}")
    found = answers(classes, matcher_arguments(of), lines)
    expected = [matches(head, rules, selectivity, zipf) for head in heads]
    assert sum(map(len, expected)) > 50
    assert found == [str(one) for one in expected]


@pytest.mark.parametrize(("matching", "loop"), [("ranges", range_matches), ("hashes", hash_matches)])
def test_selectivities_and_hashes_match_as_a_loop_over_the_rules(
    classes: Path, matching: str, loop: Callable[[bytes, list[float]], list[int]]
) -> None:
    heads = [struct.pack(">qQ", number, number * 0x9E3779B97F4A7C15 % (1 << 64)) for number in range(400)]
    lines = [f"rules {head[:8].hex()} {head[8:].hex()}" for head in heads]
    of = named(f"shufflebench:selectivities={SELECTIVITIES},matching={matching}")
    found = answers(classes, matcher_arguments(of), lines)
    assert found == [str(loop(head, SHARES)) for head in heads]
