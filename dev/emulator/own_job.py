"""A script of the user as the Glue job of the local stack: `make local-up JOB=my_job.py`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dev.emulator.aws import EmbeddedAws

MAX_CONCURRENT_RUNS = 1000  # twice the template's largest SlotLimit
ROLE = "arn:aws:iam::000000000000:role/job"  # the embedded AWS enforces no permissions


class InvalidJob(ValueError):
    """The script or its arguments cannot be used; the message states what was expected."""


@dataclass(frozen=True)
class OwnJob:
    """A Glue job whose script is a file on this machine, which Glue reads again for each run."""

    name: str
    script: Path
    arguments: Mapping[str, str]

    def create(self, aws: EmbeddedAws) -> None:
        """Create the job in the embedded Glue, or update it: a template that names the job expects it to exist."""
        glue = aws.client("glue")
        job = {
            "Role": ROLE,
            "Command": {"Name": "pythonshell", "PythonVersion": "3.9", "ScriptLocation": str(self.script)},
            "DefaultArguments": self.arguments,
            "ExecutionProperty": {"MaxConcurrentRuns": MAX_CONCURRENT_RUNS},
            "MaxRetries": 0,
        }
        try:
            glue.update_job(JobName=self.name, JobUpdate=job)
        except glue.exceptions.EntityNotFoundException:
            glue.create_job(Name=self.name, **job)


def read_job(script: str, name: str, arguments: str) -> OwnJob:
    """The job of a script. Raises InvalidJob.

    Args:
        script: a path; a relative one begins in the working directory.
        name: of the job; if empty, the script's name without its suffix.
        arguments: the job's default arguments as a shell reads them, such as `--mode=fast --day "a b"`.
    """
    path = Path(script).expanduser().resolve()
    if not path.is_file():
        raise InvalidJob(f"there is no file {path}: expected the Python script of your Glue job")
    return OwnJob(name or path.stem, path, parse_arguments(arguments))


def parse_arguments(text: str) -> dict[str, str]:
    """Argument name -> value, of `--name=value` and `--name value`. Raises InvalidJob."""
    words = split_words(text)
    found: dict[str, str] = {}
    while words:
        name, separator, value = words.pop(0).partition("=")
        if not re.fullmatch(r"--[^-\s].*", name):
            raise InvalidJob(f"{name!r} is not an argument: expected --name=value, separated by spaces")
        if not separator and (not words or words[0].startswith("--")):
            raise InvalidJob(f"{name} has no value: expected {name}=value")
        found[name] = value if separator else words.pop(0)
    return found


def split_words(text: str) -> list[str]:
    """The words of `text` as a shell reads them. Raises InvalidJob."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidJob(f"{text!r} is not a list of words: {error}") from None
