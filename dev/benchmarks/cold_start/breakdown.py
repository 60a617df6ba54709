"""Where the time of an import goes, by -X importtime: who is imported, at whose wish, and what is done meanwhile.

A module of the standard library counts for whoever imports it first. What making a client and compiling a schema takes
is told apart by marks between Python's own lines; what they import belongs to them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.benchmarks.cold_start.bare import run

# In the order in which the bars are stacked: what the bare handler has too comes first.
GROUPS = ("boto3", "clients", "Powertools", "X-Ray SDK", "other packages", "layer", "schemas", "function")
PACKAGES = {
    **dict.fromkeys(("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six", "urllib3"), "boto3"),
    **dict.fromkeys(("aws_lambda_powertools", "typing_extensions"), "Powertools"),
    **dict.fromkeys(("aws_xray_sdk", "wrapt"), "X-Ray SDK"),
    **dict.fromkeys(("backoff", "fastjsonschema"), "other packages"),
    "slotkeeper": "layer",
    **dict.fromkeys(("app", "work", "publishing", "splitting"), "function"),
}
MARK = "@mark@"
TIMED = f"""
import sys, time

def timed(owner, name, group):
    do = getattr(owner, name)
    def measured(*given, **options):
        frame = sys._getframe(1)
        while frame.f_code.co_name != "<module>":
            frame = frame.f_back
        importing = frame.f_globals["__name__"]
        began = time.perf_counter()
        print({MARK!r}, "begin", file=sys.stderr, flush=True)
        try:
            return do(*given, **options)
        finally:
            took = int((time.perf_counter() - began) * 1e6)
            print({MARK!r}, group, importing, took, file=sys.stderr, flush=True)
    setattr(owner, name, measured)

from slotkeeper import cold_start  # as the functions do first of all
import boto3, fastjsonschema
timed(boto3, "client", "clients")
timed(fastjsonschema, "compile", "schemas")
import app
"""
LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| ( *)([\w.]+)$")


@dataclass
class Imported:
    """A module's own time and that with all that it imports, in microseconds. `group`: at whose wish."""

    name: str
    own: int
    cumulative: int
    depth: int
    group: str = ""


@dataclass(frozen=True)
class Breakdown:
    """In seconds. `packages`: without boto3 and what it wants."""

    groups: Mapping[str, float]
    packages: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.groups.values())


def of(path: Sequence[Path], environment: Mapping[str, str]) -> Breakdown:
    """Imports the function on this path once. Raises Unusable."""
    said = run(TIMED, path, environment, "-X", "importtime").stderr
    return read(said.splitlines())


def read(lines: Sequence[str]) -> Breakdown:
    """From what Python and the marks have written."""
    groups: dict[str, int] = dict.fromkeys(GROUPS, 0)
    modules, elsewhere = _outside_marks(lines, groups)
    packages: dict[str, int] = defaultdict(int)
    for module in _with_groups(modules):
        own = module.own - elsewhere.pop(module.name, 0)
        if module.group:  # Python's own start has none
            groups[module.group] += own
        if module.group not in ("", "boto3"):
            packages[_package(module)] += own
    return Breakdown(
        {name: time / 1e6 for name, time in groups.items()},
        {name: time / 1e6 for name, time in sorted(packages.items(), key=lambda each: -each[1])},
    )


def _outside_marks(lines: Sequence[str], groups: dict[str, int]) -> tuple[list[Imported], dict[str, int]]:
    """The modules that were not imported by what is marked, and what that took of a module's own time."""
    modules: list[Imported] = []
    elsewhere: dict[str, int] = defaultdict(int)
    within, inside = 0, 0
    for line in lines:
        if line.startswith(MARK):
            _, *words = line.split()
            if words == ["begin"]:
                within += 1
                continue
            group, importing, took = words
            within -= 1
            groups[group] += int(took)
            elsewhere[importing] += int(took) - inside
            inside = 0
        elif found := LINE.match(line):
            own, cumulative, indent, name = found.groups()
            if within:
                inside += int(own)
            else:
                modules.append(Imported(name, int(own), int(cumulative), len(indent) // 2))
    return modules, elsewhere


def _with_groups(modules: Sequence[Imported]) -> Iterator[Imported]:
    """A module is written after what it imports, so read backwards each comes after its importer."""
    above: list[str] = []
    for module in reversed(modules):
        del above[module.depth :]
        inherited = next((group for group in reversed(above) if group), "")
        module.group = PACKAGES.get(module.name.split(".")[0], inherited)
        above += [""] * (module.depth - len(above)) + [module.group]
        yield module


def _package(module: Imported) -> str:
    """The name under which a reader looks for it: parts of Powertools and of the layer, others as a whole."""
    first, *rest = module.name.split(".")
    if first == "aws_lambda_powertools" and rest[:1] == ["utilities"]:
        return ".".join([first, *rest[:2]])
    if first in ("aws_lambda_powertools", "slotkeeper"):
        return ".".join([first, *rest[:1]])
    return first if first in PACKAGES else f"{first} (for {module.group})"
