"""Run the fast tests of the changed files, and cfn-lint if the template changed.

    python -m dev.tools.check            changes since the common ancestor with main
    python -m dev.tools.check HEAD~1     changes since that commit

- A changed test module is run. For a changed test helper, its folder is run.
- A file of a function with its own folder of tests is tested by the modules in it.
- A file of the operator command is tested by the modules of tests/command that begin with its name or that of one of
  its folders, and by the situations of all commands.
- Any other file is tested by the test folders that have its name or the name of its innermost folder with one:
  slots/protocol.py of the layer by tests/unit/slots and tests/proof/slots, template.yaml by tests/template. Without
  one, all of FAST is run.
- The folders of SLOW are left to `make test`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAST = ("tests/unit", "tests/template", "tests/workflow")
COMMAND = "tests/command"
SLOW = ("deployed", "facts", "guards", "roles", "fuzz", "simulation")


def targets_of(changed: Iterable[str]) -> list[str]:
    """The test modules and folders for these files; a folder replaces the targets in it."""
    targets = {target for path in changed for target in _targets_of(Path(path))}
    return sorted(each for each in targets if not any(str(parent) in targets for parent in Path(each).parents))


def _targets_of(path: Path) -> Iterable[str]:
    if path.parts[0] == "tests":
        if len(path.parts) == 2:
            return FAST
        if not set(SLOW).isdisjoint(path.parts):
            return ()
        is_module = path.name.startswith("test_") and path.suffix == ".py"
        target = path if is_module else path.parent
        return (str(target),) if (ROOT / target).exists() else ()
    if path.parts[0] == "cli":
        names = (*path.parts[2:-1], path.name.partition(".")[0])
        named = {module for name in names for module in ROOT.glob(f"{COMMAND}/test_{name}*.py")}
        return [f"{COMMAND}/test_situations.py", *(str(module.relative_to(ROOT)) for module in named)]
    own_tests = ROOT.joinpath(*path.parts[:2], "tests")
    if path.parts[0] == "functions" and own_tests.is_dir():
        modules = [str(module.relative_to(ROOT)) for module in own_tests.glob("test_*.py")]
        return [str(path)] if str(path) in modules else modules
    for part in reversed((*path.parts[:-1], path.name.partition(".")[0])):
        if part in SLOW:
            return ()
        if folders := [folder for folder in (ROOT / "tests").rglob(f"{part}/") if _has_tests(folder)]:
            return [str(folder.relative_to(ROOT)) for folder in folders]
    return FAST


def _has_tests(folder: Path) -> bool:
    return any(folder.rglob("test_*.py"))


def changed_files(base: str) -> list[str]:
    """The files that differ from the common ancestor with `base`, and the untracked files."""
    ancestor = _git("merge-base", "HEAD", base).strip()
    differing = _git("diff", "--name-only", "--no-renames", ancestor)
    untracked = _git("ls-files", "--others", "--exclude-standard")
    return (differing + untracked).splitlines()


def _git(*arguments: str) -> str:
    answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        sys.exit(f"check: git {arguments[0]} failed, so the changed files are unknown: {answer.stderr.strip()}")
    return answer.stdout


def main() -> int:
    base = sys.argv[1] if len(sys.argv) > 1 else "main"
    changed = changed_files(base)
    targets = targets_of(changed)
    print(f"check: {len(changed)} files differ from {base}; tests: {' '.join(targets) or 'none'}", flush=True)
    if "template.yaml" in changed and _run(str(Path(sys.executable).with_name("cfn-lint")), "template.yaml") != 0:
        return 1
    many = any((ROOT / target).is_dir() for target in targets)
    options = ["--numprocesses=2"] if many else []
    return _run(sys.executable, "-m", "pytest", "-q", *options, *targets) if targets else 0


def _run(*command: str) -> int:
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
