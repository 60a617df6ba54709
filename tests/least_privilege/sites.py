"""Where the code of a function can call AWS, by its text: so that no call is left out for want of a case that makes it.

By names alone, within the modules that the function imports: whatever is called `cancel` may be what `.cancel` means.
That finds too much rather than too little.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import boto3
from botocore import xform_name

from tests.least_privilege.recording import Site
from tests.least_privilege.stack import REGION, ROOT

LAYER = ROOT / "layers" / "slotkeeper"


@dataclass
class Definition:
    """A function, method or class body: the names that it uses, and the AWS operations that it asks for."""

    site: Site
    uses: set[str] = field(default_factory=set)
    operations: set[str] = field(default_factory=set)


def reachable(folder: str) -> set[tuple[str, Site]]:
    """Every (botocore's operation, site) that the function of this folder may come to."""
    own = sorted((ROOT / "functions" / folder).glob("*.py"))
    known = [made for path in _modules(own) for made in _definitions(path)]
    by_name: dict[str, list[Definition]] = {}
    for made in known:
        by_name.setdefault(made.site.function.rpartition(".")[2], []).append(made)
        if made.site.function.endswith(".__init__"):
            by_name.setdefault(made.site.function.split(".")[-2], []).append(made)
    ours = {str(path.relative_to(ROOT)) for path in own}
    found = [made for made in known if made.site.file in ours]
    seen = {made.site for made in found}
    for made in found:  # grows as it goes
        for name in made.uses:
            new = [other for other in by_name.get(name, []) if other.site not in seen]
            seen |= {other.site for other in new}
            found += new
    return {(operation, made.site) for made in found for operation in made.operations}


def in_file(path: Path) -> set[tuple[str, Site]]:
    """Every (botocore's operation, site) of a file that stands alone."""
    return {(operation, made.site) for made in _definitions(path) for operation in made.operations}


def _modules(paths: list[Path]) -> list[Path]:
    """These, and what they import of the layer."""
    found = list(paths)
    for path in found:  # grows as it goes
        found += [module for module in _imported(path) if module not in found]
    return found


def _imported(path: Path) -> Iterator[Path]:
    for node in _at_runtime(_parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "slotkeeper":
            for dotted in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                base = LAYER.joinpath(*dotted.split("."))
                yield from (each for each in (base.with_suffix(".py"), base / "__init__.py") if each.exists())


def _at_runtime(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node, but for what is imported for types alone."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield node
            yield from _at_runtime(node)


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _definitions(path: Path) -> list[Definition]:
    found: list[Definition] = []
    _collect(_parsed(path), str(path.relative_to(ROOT)), (), found)
    return found


def _collect(node: ast.AST, file: str, inside: tuple[str, ...], found: list[Definition]) -> None:
    """A function within a function belongs to the outer one; what stands in no function, to the module or the class."""
    made = Definition(Site(file, ".".join(inside) or "<module>"))
    found.append(made)
    todo = list(ast.iter_child_nodes(node))
    while todo:
        part = todo.pop()
        in_function = isinstance(node, ast.FunctionDef)
        if isinstance(part, ast.FunctionDef | ast.ClassDef) and not in_function:
            _collect(part, file, (*inside, part.name), found)
            continue
        if isinstance(part, ast.Name):
            made.uses.add(part.id)
        elif isinstance(part, ast.Attribute):
            made.uses.add(part.attr)
        elif isinstance(part, ast.Call):
            made.operations |= set(_asked(part))
        todo += ast.iter_child_nodes(part)


def _asked(call: ast.Call) -> Iterator[str]:
    if not isinstance(call.func, ast.Attribute):
        return
    name = call.func.attr
    if name in ("get_paginator", "get_waiter") and isinstance(call.args[0], ast.Constant):
        name = str(call.args[0].value)
    # botocore takes keywords alone, so what has another argument is a method of somebody else's.
    elif call.args:
        return
    if name in operations():
        yield operations()[name]


@cache
def operations() -> dict[str, str]:
    """botocore's method names -> operations, of every service that our code makes a client of."""
    session = boto3.Session(region_name=REGION)
    found = {}
    for service in sorted(_services()):
        model = session.client(service, aws_access_key_id="-", aws_secret_access_key="-").meta.service_model
        found |= {xform_name(operation): operation for operation in model.operation_names}
    return found


def _services() -> Iterator[str]:
    for path in [*(ROOT / "functions").rglob("*.py"), *LAYER.rglob("*.py"), *(ROOT / "jobs").glob("*.py")]:
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "client":
                assert isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}: name the service in place"
                yield str(node.args[0].value)
