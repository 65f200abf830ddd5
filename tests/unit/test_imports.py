"""Imports go in one direction, and the deciding code cannot reach a clock, a network or a process."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from validator.config.examples import EXAMPLES as CONFIGURATIONS
from validator.model.stated_values import OF_FIELDS
from validator.oracles.kinds import PLANNED, built
from validator.oracles.seam import Oracle
from validator.settings.formats import kinds as formats

ROOT = Path(__file__).parents[2]
# Product packages, what runs them on one machine, and what measures and checks both.
FLOOR = {
    "validator": 0,
    **dict.fromkeys(("generator", "faults", "dashboards"), 1),
    "chaosstreamproof": 2,
    "testbed": 3,
    "bench": 4,
    "tests": 5,
}
OURS = set(FLOOR)
# Within testbed: brokers, processes and engines <- demo <- campaign.
TESTBED_LEVEL = {"demo": 1, "campaign": 2}

# Within validator: model <- settings, config, codecs, oracles, reconcile, core, measure <- state, stream, publish <-
# cli
LEVEL = {
    "model": 0,
    **dict.fromkeys(("settings", "config", "codecs", "oracles", "reconcile", "core", "measure"), 1),
    **dict.fromkeys(("state", "stream", "publish"), 2),
    "cli": 3,
}
PURE = [room for room, level in LEVEL.items() if level < 2]
IMPURE_MODULES = {"confluent_kafka", "socket", "time", "requests", "subprocess"}


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    module: str
    is_lazy: bool

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


def imports_of(*packages: str) -> Iterator[Import]:
    for package in packages:
        for file in sorted((ROOT / package).rglob("*.py")):
            yield from imports_in(file)


@cache
def imports_in(file: Path) -> tuple[Import, ...]:
    tree = ast.parse(file.read_bytes(), filename=str(file))
    return tuple(
        Import(file, node.lineno, module, is_lazy)
        for node, is_lazy in import_statements(tree)
        for module in modules_named_by(node, file)
    )


def import_statements(
    block: ast.AST, inside_function: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in ast.iter_child_nodes(block):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, inside_function
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from import_statements(node, inside_function=inside_function or is_function)


def modules_named_by(node: ast.Import | ast.ImportFrom, file: Path) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    parents = file.relative_to(ROOT).parts[: -node.level] if node.level else ()
    base = ".".join([*parents, *([node.module] if node.module else [])])
    # In `from validator import stream` and `from validator.cli import machine` the names are modules.
    named = [f"{base}.{alias.name}" for alias in node.names]
    return named if base in OURS else [name if is_module(name) else base for name in named]


@cache
def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    return module.split(".")[1] if module.count(".") else ""


def complain(found: list[Import]) -> None:
    assert not found, "\n".join(map(str, found))


def imports_between_rooms() -> Iterator[tuple[str, str, Import]]:
    for used in imports_of("validator"):
        own, other = used.file.relative_to(ROOT).parts[1], room(used.module)
        if used.module.startswith("validator.") and own in LEVEL and other in LEVEL and own != other:
            yield own, other, used


def test_no_package_imports_one_above_it() -> None:
    complain([used for own, other, used in imports_between_rooms() if LEVEL[other] > LEVEL[own]])


def test_packages_have_no_import_cycle() -> None:
    graph: dict[str, set[str]] = {}
    for own, other, _ in imports_between_rooms():
        graph.setdefault(own, set()).add(other)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_modules_have_no_import_cycle() -> None:
    """Imports in functions count: two such modules can only be understood together."""
    graph: dict[str, set[str]] = {}
    for used in imports_of(*OURS):
        graph.setdefault(module_of(used.file), set()).add(used.module)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_no_floor_imports_one_above_it() -> None:
    """Except the command line of the sidecar, which the next test limits."""

    def is_upward(used: Import) -> bool:
        own, other = used.file.relative_to(ROOT).parts[0], used.module.split(".")[0]
        return own != "validator" and other in OURS and FLOOR[other] > FLOOR[own]

    complain([used for used in imports_of(*OURS) if is_upward(used)])


def test_the_testbed_has_levels() -> None:
    def is_upward(used: Import) -> bool:
        own, other = used.file.relative_to(ROOT).parts[1], room(used.module)
        is_own = used.module.startswith("testbed.")
        return is_own and TESTBED_LEVEL.get(other, 0) > TESTBED_LEVEL.get(own, 0)

    complain([used for used in imports_of("testbed") if is_upward(used)])


def test_the_sidecar_runs_without_generator_faults_and_testbed() -> None:
    # The one exception: the command line loads them for `demo`, `generate`, `faults` and `dashboards`.
    def is_front(used: Import) -> bool:
        return used.is_lazy and used.file.is_relative_to(ROOT / "validator" / "cli")

    strangers = OURS - {"validator"}
    complain([u for u in imports_of("validator") if u.module.split(".")[0] in strangers and not is_front(u)])


@pytest.mark.parametrize("package", ["generator", "faults"])
def test_load_and_faults_share_only_the_model(package: str) -> None:
    def is_allowed(used: Import) -> bool:
        top = used.module.split(".")[0]
        return (
            top not in OURS or top == package or (top == "validator" and room(used.module) in {"model", "__version__"})
        )

    complain([used for used in imports_of(package) if not is_allowed(used)])


@pytest.mark.parametrize("package", PURE)
def test_deciding_code_reaches_no_clock_network_or_process(package: str) -> None:
    complain([u for u in imports_of(f"validator/{package}") if u.module.split(".")[0] in IMPURE_MODULES])


def test_every_package_of_the_validator_has_a_level() -> None:
    rooms = {folder.name for folder in (ROOT / "validator").iterdir() if (folder / "__init__.py").exists()}
    assert rooms == set(LEVEL)


def test_fetching_jars_needs_only_the_standard_library() -> None:
    used = imports_in(ROOT / "validator" / "stream" / "jars.py")
    complain([u for u in used if u.module.split(".")[0] not in sys.stdlib_module_names])


EXAMPLES = ROOT / "validator" / "config" / "examples.py"
"""Example configurations for users."""


def test_only_an_oracles_file_names_a_kind_of_oracle_or_its_parameters() -> None:
    """Otherwise a new oracle would need changes in twenty files."""
    # Some kinds are common words. For these only a string that equals the kind counts, and none if it is an aggregate,
    # or the interpreter.
    pattern = re.compile("|".join(rf"\b{kind}\b" for kind in PLANNED if "_" in kind))
    parameters = {name for one in built().values() for name in one.model_fields} - Oracle.model_fields.keys()
    found = []
    for file in sorted((ROOT / "validator").rglob("*.py")):
        # Encodings have types of such names, as Avro's map.
        if file.parent.name in {"oracles", "formats", "encodings"} or file == EXAMPLES:
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if text in PLANNED.difference(OF_FIELDS, {"python"}) or pattern.search(text):
                found.append(f"{file.relative_to(ROOT)}:{node.lineno} names a kind")
            if isinstance(node, ast.Attribute) and node.attr in parameters and _is_an_oracle(node.value):
                found.append(f"{file.relative_to(ROOT)}:{node.lineno} reads oracle.{node.attr}")
    assert found == []


def test_only_the_seam_of_oracles_is_imported_elsewhere() -> None:
    """Through their classes other code could distinguish kinds without a string."""
    seam = {f"validator.oracles.{name}" for name in ("seam", "kinds", "ids", "alternatives", "guesses")}
    others = (u for u in imports_of("validator") if u.file.parent.name != "oracles" and room(u.module) == "oracles")
    complain([used for used in others if used.module not in seam])


def test_no_unit_test_imports_another() -> None:
    """What several of them need is in modules without tests."""
    complain([used for used in imports_of("tests/unit") if used.module.startswith("tests.unit.test_")])


def test_only_a_formats_file_names_a_format() -> None:
    """Of those whose name is neither the default, nor a common word, nor that of a distribution."""
    others = formats.built().keys() & {"avro", "csv", "raw"}
    found = []
    for file in sorted((ROOT / "validator").rglob("*.py")):
        if file.parent.name not in {"formats", "encodings"}:
            found += [
                f"{file.relative_to(ROOT)}:{node.lineno} names {node.value}"
                for node in ast.walk(ast.parse(file.read_bytes()))
                if isinstance(node, ast.Constant) and node.value in others
            ]
    assert found == []


def _is_an_oracle(node: ast.expr) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) in {"oracle", "_oracle"}


def loaded_after(code: str, *packages: str) -> list[str]:
    """Which of the ``packages`` a new interpreter has loaded after it has run ``code``."""
    # What the code prints comes before the last line.
    code += "; import sys; print(); print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT, text=True)
    return sorted(set(ended.stdout.splitlines()[-1].split()) & set(packages))


def test_the_core_loads_neither_spark_nor_tables_nor_a_kafka_client() -> None:
    """Not even through the libraries that it imports."""
    files = [file for package in PURE for file in (ROOT / "validator" / package).rglob("*.py")]
    modules = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    assert loaded_after("import " + ", ".join(modules), "pyspark", "py4j", "deltalake", "confluent_kafka") == []


def test_report_and_explain_load_no_spark() -> None:
    lazy = [used.module for used in imports_in(ROOT / "validator" / "cli" / "reports.py") if used.is_lazy]
    forms = [f"validator.publish.{form}" for form in ("html", "junit", "text")]
    modules = ["validator.cli.reports", "validator.publish.explain", *lazy, *forms]
    assert loaded_after("import " + ", ".join(modules), "pyspark", "py4j", "confluent_kafka") == []


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["report", "--help"], ["validate"], ["replay", "x"]])
def test_help_and_usage_errors_load_no_model_and_no_arrays(arguments: list[str]) -> None:
    code = f"from validator.cli.main import main; main({arguments})"
    assert loaded_after(code, "numpy", "pyarrow", "pydantic", "yaml", "deltalake", "pyspark") == []


def test_checking_a_configuration_loads_no_arrays(tmp_path: Path) -> None:
    """It takes a third of a second; the array libraries alone would take as long again."""
    for name in CONFIGURATIONS.keys() - {"secured"}:  # it needs secrets
        (tmp_path / f"{name}.yaml").write_text(CONFIGURATIONS[name])
    files = sorted(map(str, tmp_path.iterdir()))
    code = f"from validator.cli.main import main; assert not any(main(['config', 'check', one]) for one in {files})"
    assert loaded_after(code, "numpy", "pyarrow", "deltalake", "pyspark", "confluent_kafka") == []
