"""`python -m tests.mutation slots ledger`: mutmut on modules of the layer, in copies of the tree; docs/mutation.md.

Exit codes: 0 every mutant was judged, whether it survived or not; 1 mutmut could not begin; 2 wrong options.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import click

from dev.emulator.environment import ROOT
from tests.mutants.copies import copy_tree

BUILD = ROOT / "build" / "mutated"
MUTMUT = [str(ROOT / "build" / "mutation" / "bin" / "python"), "-m", "mutmut"]
PACKAGE = Path("layers", "slotkeeper", "slotkeeper")
SECTION = "[tool.mutmut]"
# Which tests judge which module: all of them would take hours, and a survivor costs every test that reaches it.
TESTS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]["tests"]


def prepare(module: str, folder: Path) -> None:
    """A copy of the tree in which mutmut finds the package, and knows the one module to mutate and its tests."""
    copy_tree(ROOT, folder)
    # mutmut names a mutant by its path, and Python by its import: in a copy where the two are one, each is found.
    (folder / PACKAGE).rename(folder / PACKAGE.name)
    (source,) = (folder / PACKAGE.name).rglob(f"{module}.py")
    chosen = (
        f"only_mutate = {[str(source.relative_to(folder))]}\n"
        f"pytest_add_cli_args_test_selection = {[f'tests/unit/test_{name}.py' for name in TESTS[module]]}\n"
    )
    settings = folder / "pyproject.toml"
    head, section, rest = settings.read_text().partition(SECTION)
    comment, _, rest = rest.partition("\n")
    settings.write_text(f"{head}{section}{comment}\n{chosen}{rest}")


def survivors(folder: Path) -> str:
    """Their names and differences, one below the other."""
    listed = subprocess.run([*MUTMUT, "results"], cwd=folder, check=True, capture_output=True, text=True).stdout
    left = [line.strip().rpartition(": ") for line in listed.splitlines() if ": " in line]
    shown = []
    for name, _, verdict in left:
        show = subprocess.run([*MUTMUT, "show", name], cwd=folder, check=False, capture_output=True, text=True)
        shown.append(f"{name}: {verdict}\n{show.stdout}")
    return "\n".join(shown)


@click.command()
@click.argument("modules", nargs=-1, type=click.Choice(sorted(TESTS)))
@click.option("--jobs", type=click.IntRange(1, 16), default=2, show_default=True, help="How many are tried at once.")
def main(modules: tuple[str, ...], jobs: int) -> None:
    """Mutate MODULES, or all of them, one after the other. Reports: build/mutated/<module>.txt."""
    for module in modules or TESTS:
        folder = BUILD / module
        prepare(module, folder)
        ran = subprocess.run([*MUTMUT, "run", "--max-children", str(jobs)], cwd=folder, check=False)
        if ran.returncode != 0:
            sys.exit(1)
        report = BUILD / f"{module}.txt"
        report.write_text(survivors(folder))
        click.echo(f"What is left of {module}: {report.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
