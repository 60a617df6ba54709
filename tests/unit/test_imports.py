"""What may import what: the layer's flows are separate, and there is no import cycle."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Folders on the import path.
SOURCES = (ROOT / "layers" / "slotkeeper", ROOT / "cli", *(ROOT / "functions").glob("*/src"), ROOT / "functions", ROOT)
FLOWS = ("slots", "token", "retry", "chatbot")
SHARED = {"aws", "schema", "settings", "observability", "events", "cold_start", "printable", "next_step"}
PRODUCT = ("layers", "functions", "cli")
FUNCTION_TESTS = re.compile(r"^functions/\w+/tests/")


@cache
def _modules() -> dict[str, Path]:
    """Module name -> file, of the product and of dev."""
    named = {}
    for folder in (*PRODUCT, "dev"):
        for path in (ROOT / folder).rglob("*.py"):
            if FUNCTION_TESTS.search(str(path.relative_to(ROOT))):
                continue
            source = next(source for source in SOURCES if path.is_relative_to(source))
            parts = path.relative_to(source).with_suffix("").parts
            named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _imports(path: Path, *, for_types: bool = False) -> set[str]:
    """The modules that a module imports when it is loaded, and with `for_types` also those for type checkers."""
    names: set[str] = set()
    for node in _at_import(_parsed(path), for_types):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(
                f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in _modules() else str(node.module)
                for alias in node.names
            )
    return names


def _at_import(node: ast.AST, for_types: bool) -> list[ast.AST]:
    """The nodes outside functions, and without `for_types` outside `if TYPE_CHECKING`."""
    nodes: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if not for_types and isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        nodes += [child, *_at_import(child, for_types)]
    return nodes


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_imports_no_other_but_the_chatbot_its_token(flow: str) -> None:
    allowed = SHARED | {flow} | ({"token"} if flow == "chatbot" else set())
    for name, path in _modules().items():
        if name.startswith(f"slotkeeper.{flow}"):
            assert _packages(path) <= allowed, name


def test_a_shared_module_imports_no_flow() -> None:
    for name, path in _modules().items():
        if name.startswith("slotkeeper.") and name.split(".")[1] in SHARED:
            assert _packages(path) <= SHARED, name


def _packages(path: Path) -> set[str]:
    """The layer's packages and shared modules that a module imports, also for types alone."""
    return {each.split(".")[1] for each in _imports(path, for_types=True) if each.startswith("slotkeeper.")}


def test_the_product_imports_neither_dev_nor_tests_and_the_layer_no_command() -> None:
    for name, path in _modules().items():
        roots = {each.split(".")[0] for each in _imports(path, for_types=True)}
        if not name.startswith("dev"):
            assert not roots & {"dev", "tests"}, name
        if name.startswith("slotkeeper."):
            assert "slotkeeper_cli" not in roots, name
        assert "tests" not in roots, name


def test_no_modules_import_each_other_in_a_cycle() -> None:
    modules = _modules()
    # An import of a module also loads its package. The graph omits this edge.
    graph = {name: _imports(path) & modules.keys() for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_no_two_public_classes_of_the_product_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for name, path in _modules().items():
        if not path.is_relative_to(ROOT / "dev"):
            for node in _parsed(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(name)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_two_test_files_have_one_name() -> None:
    names = Counter(path.name for folder in ("tests", "functions") for path in (ROOT / folder).rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_tests_of_the_product_import_no_moto() -> None:
    """It takes seconds. The account of tests/simulation answers; users test their own work with moto."""
    paths = [ROOT / "conftest.py", *(ROOT / "tests").rglob("*.py")]
    imported = {path: {name.partition(".")[0] for name in _imports(path)} for path in paths}
    assert [str(path) for path, names in imported.items() if "moto" in names] == []


def test_the_slots_package_loads_no_janitor() -> None:
    """A cold start that imports one module of a package loads all modules that the package exports."""
    loaded = _closure("slotkeeper.slots")
    assert "slotkeeper.slots.protocol" in loaded
    assert not {
        name
        for name in loaded
        if name.endswith(("janitor", "work", "dead_holders", "settlement", ".starter", "starts"))
    }


# Bounds of the code that decides which request starts next, and of the dispatch that grants it.


@pytest.mark.parametrize(("module", "modules", "lines"), [("dispatch", 11, 2_650), ("plan", 6, 1_500)])
def test_the_rule_and_its_dispatch_are_small_with_everything_that_they_import(
    module: str, modules: int, lines: int
) -> None:
    loaded = {name for name in _closure(f"slotkeeper.slots.{module}") if not _is_package(name)}
    assert len(loaded) <= modules, sorted(loaded)
    assert sum(len(_modules()[name].read_text().splitlines()) for name in loaded) <= lines


@pytest.mark.parametrize(("package", "most"), [("slotkeeper.slots", 5), ("slotkeeper_cli", 6)])
def test_a_package_has_few_floors(package: str, most: int) -> None:
    """The modules on a floor import only those below it."""
    modules = {name: path for name, path in _modules().items() if name.startswith(f"{package}.")}
    sorter = TopologicalSorter({name: _imports(path) & modules.keys() for name, path in modules.items()})
    sorter.prepare()
    floors = []
    while ready := sorter.get_ready():
        floors.append(sorted(name.removeprefix(f"{package}.") for name in ready))
        sorter.done(*ready)
    assert len(floors) <= most, floors


def test_answers_import_no_command_and_no_page() -> None:
    for name, path in _modules().items():
        if name.startswith("slotkeeper_cli.") and not name.startswith(
            ("slotkeeper_cli.commands", "slotkeeper_cli.web")
        ):
            above = {
                each for each in _imports(path) if each.startswith(("slotkeeper_cli.commands", "slotkeeper_cli.web"))
            }
            assert above == set(), name


def test_only_the_plan_compares_a_weight_with_a_limit() -> None:
    compared = {
        name
        for name, path in _modules().items()
        if name.startswith("slotkeeper.")
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.Compare) and {"weight", "limit"} <= set(re.findall("weight|limit", ast.unparse(node)))
    }
    assert compared == {"slotkeeper.slots.plan"}


def test_only_the_doorbell_sends_to_its_queue() -> None:
    """Each other sender of the layer and of the functions has a queue of its own."""
    senders = {name for name in _callers_of("send_message") if not name.startswith("slotkeeper_cli")}
    rings = {name for name in senders if "Bell" in _modules()[name].read_text()}
    assert rings == {"slotkeeper.slots.doorbell"}
    assert senders - rings == {"slotkeeper.retry.delivery", "slotkeeper.slots.queues", "slotkeeper.slots.ending_queue"}


# One sender of ends


def test_only_the_endings_answer_callers_publish_requests_and_notify() -> None:
    """No other function, no command and no state of the workflow: so an end is published once, in one order."""
    assert _callers_of("send_task_success") == _callers_of("send_task_failure") == {"slotkeeper.slots.callers"}
    for module in ("callers", "request_events", "notices"):
        users = {
            name
            for name, path in _modules().items()
            if f"slotkeeper.slots.{module}" in _imports(path) and not path.is_relative_to(ROOT / "dev")
        }
        assert users == {"slotkeeper.slots.endings"}, module
    actions = set(
        re.findall(r":::(?:aws-sdk:)?([\w:]+)", (ROOT / "statemachines" / "slot_workflow.asl.json").read_text())
    )
    assert not {action for action in actions if re.search("sendTask(Success|Failure)|putEvents|sns|putMetric", action)}


def test_only_the_endings_mark_an_end_as_published_and_remove_token_and_answer() -> None:
    """A returned request has no end: its token goes to its next attempt."""
    removing = {
        name
        for name, path in _modules().items()
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.Constant) and re.search(r"REMOVE\b.*(#open|task_token|answer)", str(node.value))
    }
    assert removing == {"slotkeeper.slots.endings", "slotkeeper.slots.returns"}


def _callers_of(method: str) -> set[str]:
    """The modules of the product that call a method whose name begins so."""
    return {
        name
        for name, path in _modules().items()
        if not path.is_relative_to(ROOT / "dev")
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.Attribute) and node.attr.startswith(method)
    }


def _closure(module: str) -> set[str]:
    """A module, and all modules of the product that it loads."""
    loaded, left = set[str](), [module]
    while left:
        name = left.pop()
        if name in _modules() and name not in loaded:
            loaded.add(name)
            left += _imports(_modules()[name])
    return loaded


def _is_package(name: str) -> bool:
    return _modules()[name].name == "__init__.py"
