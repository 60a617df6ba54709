"""Create the project's virtual environment with the Python version of the Lambda functions.

    python3 dev/tools/bootstrap.py requirements/local.txt [requirements/dev.txt ...]
    python3 dev/tools/bootstrap.py --venv build/checkov requirements/checkov.txt

It runs on any Python 3.8 or newer with the standard library alone, because it runs first on a new machine. A file is
installed again only after a change.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

RUNTIME = "3.13"  # a test compares it with Globals.Function.Runtime in template.yaml

NO_PYTHON = f"""slotkeeper: no Python {RUNTIME} found.
  The Lambda functions, the build and the embedded AWS run on Python {RUNTIME}.
  Searched: python{RUNTIME} and python3 on PATH, the versions of pyenv and uv.
  Install one (apt, brew, pyenv install {RUNTIME}, uv python install {RUNTIME}) or set SLOTKEEPER_PYTHON to its path."""
NO_VENV = """slotkeeper: {python} is Python {version}, but cannot create virtual environments.
  On Debian and Ubuntu: apt install python{version}-venv"""

# Prints a candidate's version, and whether it can install pip into an environment.
_PROBE = "import sys, importlib.util as u; print('%d.%d' % sys.version_info[:2], u.find_spec('ensurepip') is not None)"


def _candidates() -> Iterator[str]:
    yield sys.executable
    for name in (f"python{RUNTIME}", "python3"):
        python = shutil.which(name)
        if python:
            yield python
    pyenv_root = os.environ.get("PYENV_ROOT") or str(Path.home() / ".pyenv")
    # The highest patch release first; "3.13.10" sorts after "3.13.9" only as numbers.
    versions = glob.glob(os.path.join(pyenv_root, "versions", RUNTIME + ".*", "bin", "python3"))
    yield from sorted(versions, key=lambda path: [int(n) for n in Path(path).parts[-3].split(".") if n.isdigit()])[::-1]
    uv = shutil.which("uv")
    if uv:
        answer = subprocess.run([uv, "python", "find", RUNTIME], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            yield answer.stdout.strip()


def _ask(python: str) -> tuple[str, bool]:
    """The version of a Python, and whether it can create environments; "" and False if it does not run."""
    # A pyenv shim is on PATH even if its version is not selected, and then fails. So each candidate is run.
    try:
        answer = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, check=False)
    except OSError:
        return "", False
    version, _, able = answer.stdout.strip().partition(" ")
    return (version, able == "True") if answer.returncode == 0 else ("", False)


def find_python() -> str:
    """The path of a Python of the runtime's version that can create virtual environments; exits if there is none."""
    chosen = os.environ.get("SLOTKEEPER_PYTHON")
    unable = ""
    for candidate in [chosen] if chosen else _candidates():
        version, able = _ask(candidate)
        if version == RUNTIME and able:
            return candidate
        if version == RUNTIME:
            unable = candidate
        elif chosen:
            sys.exit(f"slotkeeper: SLOTKEEPER_PYTHON={chosen} is not Python {RUNTIME}: {version or 'it does not run'}")
    sys.exit(NO_VENV.format(python=unable, version=RUNTIME) if unable else NO_PYTHON)


def ensure(venv: Path, requirement_files: list[Path]) -> None:
    """Create the virtual environment if it is missing, and install each requirement file that has changed."""
    python = venv / "bin" / "python"
    # Written last, so an interrupted set-up leaves none. It contains the path: an environment cannot be moved.
    made = venv / ".made"
    if not made.exists() or made.read_text() != str(venv.resolve()):
        base = find_python()
        print(f"slotkeeper: creating {venv} with {base}", flush=True)
        subprocess.run([base, "-m", "venv", "--clear", str(venv)], check=True)
        made.write_text(str(venv.resolve()))
    for requirements in requirement_files:
        stamp = venv / f".installed-{requirements.stem}"
        digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
        if stamp.exists() and stamp.read_text() == digest:
            continue
        print(f"slotkeeper: installing {requirements} into {venv} (once; takes a minute or two)", flush=True)
        # Python compiles what it imports. To compile every module takes as long as the rest of the installation.
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", "-r"]
        if subprocess.run([*install, str(requirements)], check=False).returncode != 0:
            sys.exit(f"slotkeeper: pip could not install {requirements}; its error is above")
        stamp.write_text(digest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--venv", type=Path, default=Path("build/venv"), help="folder of the environment (default: %(default)s)"
    )
    parser.add_argument("requirements", type=Path, nargs="+", help="compiled requirement files, in order")
    arguments = parser.parse_args()
    try:
        ensure(arguments.venv, arguments.requirements)
    except KeyboardInterrupt:
        sys.exit("\nslotkeeper: set-up interrupted; the next make continues it")


if __name__ == "__main__":
    main()
