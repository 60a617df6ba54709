"""Makes the project's virtual environment with the Python that the Lambda functions run on.

    python3 dev/tools/bootstrap.py requirements/local.txt [requirements/dev.txt ...]
    python3 dev/tools/bootstrap.py --venv build/checkov requirements/checkov.txt

Runs on any Python 3.8 or newer and imports nothing but the standard library, because it comes first on a fresh
machine. A file that is installed already, byte for byte, is not installed again.
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

RUNTIME = "3.13"  # template.yaml's Globals.Function.Runtime says the same; a test holds the two together

NO_PYTHON = f"""slotkeeper: no Python {RUNTIME} found.
  The Lambda functions run on Python {RUNTIME}, and so do the build and the embedded AWS.
  Looked at: python{RUNTIME} and python3 on PATH, pyenv's versions, uv's.
  Install one (apt, brew, pyenv install {RUNTIME}, uv python install {RUNTIME}) or set SLOTKEEPER_PYTHON to it."""
NO_VENV = """slotkeeper: {python} is a Python {version}, but cannot make virtual environments.
  On Debian and Ubuntu: apt install python{version}-venv"""

# What a candidate says of itself: its version, and whether pip can be put into an environment of its making.
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
    """The version of a Python and whether it can make environments; nothing and False if it does not run."""
    # A pyenv shim stands on PATH even when its version is not chosen, and then fails: so each one is asked.
    try:
        answer = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, check=False)
    except OSError:
        return "", False
    version, _, able = answer.stdout.strip().partition(" ")
    return (version, able == "True") if answer.returncode == 0 else ("", False)


def find_python() -> str:
    """The path of a Python of the runtime's version that can make virtual environments; exits if there is none."""
    chosen = os.environ.get("SLOTKEEPER_PYTHON")
    unable = ""
    for candidate in [chosen] if chosen else _candidates():
        version, able = _ask(candidate)
        if version == RUNTIME and able:
            return candidate
        if version == RUNTIME:
            unable = candidate
        elif chosen:
            sys.exit(f"slotkeeper: SLOTKEEPER_PYTHON={chosen} is no Python {RUNTIME}: {version or 'it does not run'}")
    sys.exit(NO_VENV.format(python=unable, version=RUNTIME) if unable else NO_PYTHON)


def ensure(venv: Path, requirement_files: list[Path]) -> None:
    """Creates the virtual environment if need be, and installs each file that has changed since it was installed."""
    python = venv / "bin" / "python"
    # Written last: an interrupted set-up leaves none. It holds the place, since an environment does not survive a move.
    made = venv / ".made"
    if not made.exists() or made.read_text() != str(venv.resolve()):
        base = find_python()
        print(f"slotkeeper: making {venv} with {base}", flush=True)
        subprocess.run([base, "-m", "venv", "--clear", str(venv)], check=True)
        made.write_text(str(venv.resolve()))
    for requirements in requirement_files:
        stamp = venv / f".installed-{requirements.stem}"
        digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
        if stamp.exists() and stamp.read_text() == digest:
            continue
        print(f"slotkeeper: installing {requirements} into {venv} (once; a minute or two)", flush=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]
        if subprocess.run([*install, str(requirements)], check=False).returncode != 0:
            sys.exit(f"slotkeeper: pip could not install {requirements}; what it says is above")
        stamp.write_text(digest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=Path("build/venv"), help="where (default: %(default)s)")
    parser.add_argument("requirements", type=Path, nargs="+", help="compiled requirement files, in order")
    arguments = parser.parse_args()
    try:
        ensure(arguments.venv, arguments.requirements)
    except KeyboardInterrupt:
        sys.exit("\nslotkeeper: set-up interrupted; the next make goes on with it")


if __name__ == "__main__":
    main()
