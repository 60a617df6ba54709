"""Find the sites where code can call AWS by reading its source, so that a call without a case is noticed.

The search goes by names within the imported modules: `.cancel()` may mean any method `cancel`, and so may `.cancel` in
a place for a function. It finds too many sites rather than too few. A name that starts with an underscore is used in
its own module only.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import boto3
from botocore import xform_name

from dev.tools.function_folders import code_folders
from tests.template.roles.needs import PARTS
from tests.template.roles.recording import Site
from tests.template.roles.resolved_template import REGION, ROOT
from tests.unit.conftest import CODE

JOBS, LAYER, COMMAND = (ROOT / "jobs", ROOT / "layers" / "slotkeeper", ROOT / "cli")
PACKAGES = {"slotkeeper": LAYER, "slotkeeper_cli": COMMAND}

MODULE, REGISTERED = "<module>", "cli/slotkeeper_cli/commands/"
# The shell calls it before a command runs. It names the checks of doctor.
COMPLETION = COMMAND / "slotkeeper_cli" / "completion.py"


@dataclass
class Definition:
    """A function, method or class body with the names that it uses and the AWS operations that it calls.

    Args:
        attributes: names after a dot. They are methods, unless they are also in `of_modules`.
        parts: of transactions, by their kinds: {"Update": ...}.
    """

    site: Site
    names: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    of_modules: set[str] = field(default_factory=set)
    operations: set[tuple[str, Site]] = field(default_factory=set)
    parts: set[str] = field(default_factory=set)

    @property
    def known_as(self) -> str:
        """The name that callers use: the class's name for `__init__`."""
        owner, _, name = self.site.function.rpartition(".")
        return owner if name == "__init__" else name

    def may_mean(self, other: Definition) -> bool:
        owner, _, name = other.site.function.rpartition(".")
        if name.startswith("_") and name != "__init__" and other.site.file != self.site.file:
            return False
        if not owner or name == "__init__":
            return other.known_as in self.names | self.of_modules
        return other.known_as in self.attributes


def reachable(paths: list[Path], begins: Callable[[Site], bool] = bool) -> set[tuple[str, Site]]:
    """Every (operation, site) that the definitions of these files for which `begins` is true can reach."""
    return {operation for made in reached_from(paths, begins) for operation in made.operations}


def reached_from(paths: list[Path], begins: Callable[[Site], bool]) -> list[Definition]:
    """The definitions of these files for which `begins` is true, and all that they can reach."""
    known = [made for path in _modules(paths) for made in _definitions(path)]
    ours = {str(path.relative_to(ROOT)) for path in paths}
    reached = [made for made in known if made.site.file in ours and begins(made.site)]
    assert reached
    # Imports run module code. The modules of commands name every command, but only one is called.
    reached += [made for made in known if made.site.function == MODULE and not made.site.file.startswith(REGISTERED)]
    by_name: dict[str, list[Definition]] = {}
    for made in known:
        by_name.setdefault(made.known_as, []).append(made)
    seen = {made.site for made in reached}
    for made in reached:  # grows during the loop
        for name in made.names | made.attributes:
            new = [other for other in by_name.get(name, []) if other.site not in seen and made.may_mean(other)]
            seen |= {other.site for other in new}
            reached += new
    return reached


def of_function(folder: str) -> set[tuple[str, Site]]:
    """Every (operation, site) that the function of this folder can reach."""
    return reachable(sorted(CODE[folder].rglob("*.py")))


def _modules(paths: list[Path]) -> list[Path]:
    """These modules and their imports from this project's packages."""
    modules = dict.fromkeys(paths)
    todo = list(paths)
    while todo:
        new = _imported(todo.pop()) - modules.keys() - {COMPLETION}
        modules |= dict.fromkeys(new)
        todo += new
    return list(modules)


@cache
def _imported(path: Path) -> set[Path]:
    imported = set()
    for node in _at_runtime(_parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
            for dotted in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                base = PACKAGES[dotted.split(".")[0]].joinpath(*dotted.split("."))
                imported |= {each for each in (base.with_suffix(".py"), base / "__init__.py") if each.exists()}
    return imported


def _at_runtime(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node without `if TYPE_CHECKING` blocks."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield node
            yield from _at_runtime(node)


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _definitions(path: Path) -> list[Definition]:
    imported = {
        alias.asname or alias.name
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    definitions: list[Definition] = []
    _collect(_parsed(path), str(path.relative_to(ROOT)), (), imported, definitions)
    return definitions


def _collect(
    node: ast.AST, file: str, inside: tuple[str, ...], imported: set[str], definitions: list[Definition]
) -> None:
    """A nested function belongs to the outer function; code outside functions belongs to its module or class."""
    made = Definition(Site(file, ".".join(inside) or MODULE))
    definitions.append(made)
    local: set[str] = set()
    todo = [*_evaluated_parts(node)]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.FunctionDef | ast.ClassDef) and not isinstance(node, ast.FunctionDef):
            _collect(part, file, (*inside, part.name), imported, definitions)
            continue
        if isinstance(part, ast.Name):
            (made.names if isinstance(part.ctx, ast.Load) else local).add(part.id)
        elif isinstance(part, ast.arg):
            local.add(part.arg)
        elif isinstance(part, ast.Attribute):
            if isinstance(part.ctx, ast.Load):
                made.attributes.add(part.attr)
            if isinstance(part.value, ast.Name) and part.value.id in imported:
                made.of_modules.add(part.attr)
        elif isinstance(part, ast.Dict):
            keys = {key.value for key in part.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
            made.parts |= keys & PARTS.keys() if len(part.keys) == 1 else set()
        elif isinstance(part, ast.Call):
            made.operations |= {(operation, made.site) for operation in _evaluated(part)}
            made.operations |= set(_handed_on(part, file, inside))
        todo += _evaluated_parts(part)
    if isinstance(node, ast.FunctionDef):
        made.names -= local


def _evaluated_parts(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node without annotations, which are not evaluated."""
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            listed = value if isinstance(value, list) else [value]
            yield from (each for each in listed if isinstance(each, ast.AST))


def _evaluated(call: ast.Call) -> Iterator[str]:
    if not isinstance(call.func, ast.Attribute):
        return
    name = call.func.attr
    if name in ("get_paginator", "get_waiter") and isinstance(call.args[0], ast.Constant):
        name = str(call.args[0].value)
    # botocore takes keyword arguments only, so a call with a positional argument is another method.
    elif call.args:
        return
    if name in operations():
        yield operations()[name][1]


def _handed_on(call: ast.Call, file: str, inside: tuple[str, ...]) -> Iterator[tuple[str, Site]]:
    """Client methods passed to a method of the same class, with that method's site."""
    for given in call.args:
        if isinstance(given, ast.Attribute) and given.attr in operations() and isinstance(call.func, ast.Attribute):
            yield operations()[given.attr][1], Site(file, ".".join((*inside[:-1], call.func.attr)))


@cache
def operations() -> dict[str, tuple[str, str]]:
    """botocore's method names -> (service, operation), for every service that this project has a client of."""
    session = boto3.Session(region_name=REGION)
    by_method = {}
    for service in sorted(_services()):
        model = session.client(service, aws_access_key_id="-", aws_secret_access_key="-").meta.service_model
        by_method |= {xform_name(operation): (service, operation) for operation in model.operation_names}
    return by_method


def _services() -> Iterator[str]:
    folders = (*code_folders().values(), JOBS, LAYER, COMMAND)
    for path in sorted(each for folder in folders for each in folder.rglob("*.py")):
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "client":
                assert isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}: the service must be a literal"
                yield str(node.args[0].value)
