"""A copy of the tree in which own work replaces the shipped work, by the steps of docs/retries.md, "Your own work"."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from dev.emulator.environment import ROOT
from tests.deployed.own_work.copies import copy_tree

WORK = """from typing import Any

from slotkeeper.retry import Poison, WorkRequest


def perform(request: WorkRequest, remaining_seconds: float) -> Any:
    if "name" not in request.payload:
        raise Poison("payload.name is missing")
    return f"Hello {request.payload['name']}"
"""
APP = """from typing import Any

from greeting import perform
from slotkeeper.retry import RetryingWorker

worker = RetryingWorker.from_environment(perform)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return worker.handle(event, context)
"""
OWN_TEST = """from functions.worker.src.greeting import perform
from slotkeeper.retry import WorkRequest


def test_a_name_is_greeted() -> None:
    assert perform(WorkRequest("r", {"name": "Ada"}), 5.0) == "Hello Ada"
"""
VARIABLES = """          GREETINGS: Hello
"""
PERMISSIONS = """        - PolicyName: work
          PolicyDocument:
            Version: "2012-10-17"
            Statement:
              - Effect: Allow
                Action: "s3:GetObject"
                Resource: !Sub "${DataBucket.Arn}/names/*"
"""
# The blocks of the template that the page names, from the first line of a comment to this one.
BLOCK = re.compile(r"^ *# The shipped work's .*?# End of the shipped work\.\n", re.MULTILINE | re.DOTALL)


def replace(folder: Path) -> None:
    """Copy the tree to `folder`, and replace the shipped work by own work with a sample event and a test."""
    copy_tree(ROOT, folder)
    (folder / "build" / "venv").symlink_to(Path(sys.prefix))
    worker, template = folder / "functions" / "worker", folder / "template.yaml"
    sample = json.loads((ROOT / "events" / "worker" / "redelivery.json").read_text())
    shutil.rmtree(worker)
    (worker / "src").mkdir(parents=True)
    (worker / "src" / "app.py").write_text(APP)
    (worker / "src" / "greeting.py").write_text(WORK)
    blocks = iter([VARIABLES, PERMISSIONS])
    text, replaced = BLOCK.subn(lambda _: next(blocks), template.read_text())
    assert replaced == 2, f"template.yaml has {replaced} blocks of the shipped work"
    template.write_text(text)
    (worker / "events").mkdir()
    (worker / "tests").mkdir()
    sample["Records"][0]["body"] = json.dumps({"request_id": "greet", "payload": {"name": "Ada"}})
    (worker / "events" / "greet.json").write_text(json.dumps(sample))
    (worker / "tests" / "test_greeting.py").write_text(OWN_TEST)


def run(folder: Path, *command: str) -> str:
    """Run a command in the copy, and return its output. Raises AssertionError with the output if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))}
    environment["PATH"] = f"{folder / 'build' / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert ran.returncode == 0, f"{' '.join(command)} in {folder}:\n{ran.stdout}"
    return ran.stdout


def run_make(folder: Path, *arguments: str) -> str:
    """Run `make` in the copy with the packages that are installed."""
    return run(folder, "make", "--old-file=setup-dev", "--old-file=setup", *arguments)
