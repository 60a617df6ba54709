"""Run the functions' handlers over an in-process account, and record their calls to AWS."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.http_servers import Listener, ok
from tests.simulation.account.account import Answer, AwsAccount
from tests.simulation.account.cold_functions import ENVIRONMENT, Functions, invocation
from tests.template.roles.resolved_template import ROOT, Stack

OURS = tuple(str(ROOT / folder) for folder in ("functions", "layers", "jobs"))


@dataclass(frozen=True)
class Site:
    """The site of a call: the file relative to the repository, and the function's qualified name."""

    file: str
    function: str

    def __str__(self) -> str:
        return f"{self.file}: {self.function}"


@dataclass(frozen=True)
class Call:
    """One call. Service and operation have botocore's names."""

    service: str
    operation: str
    parameters: dict[str, Any] = field(hash=False)
    site: Site

    def __str__(self) -> str:
        return f"{self.operation} at {self.site}"


# A condition that fails although its item is as it requires: code that reads the item tries again, without an end.
CONDITION = "ConditionalCheckFailedException"
MOST_REFUSALS = 10


class Recorded(AwsAccount):
    """The account with a record of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._refusals = 0

    def answer(self, model: Any, parameters: dict[str, Any]) -> Answer:
        self.calls.append(Call(model.service_model.service_name, model.name, parameters, _site()))
        if self.refuse.get(model.name) == CONDITION:
            self._refusals += 1
            if self._refusals > MOST_REFUSALS:
                del self.refuse[model.name]
        return super().answer(model, parameters)


def _site() -> Site:
    frame: FrameType | None = sys._getframe()
    while frame and not frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    assert frame is not None, "a call from outside functions, layers and jobs"
    return _site_of(frame.f_code)


@cache
def _site_of(code: CodeType) -> Site:
    return Site(str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname.partition(".<locals>")[0])


@dataclass(frozen=True)
class Case:
    """One invocation. `arrange` prepares the account."""

    function: str
    name: str
    event: dict[str, Any]
    arrange: Callable[[Recorded], None]


class Recorder:
    """Runs one function's handler at a time, in exactly the environment that the template gives it."""

    def __init__(self, stack: Stack, functions: Functions, patch: pytest.MonkeyPatch) -> None:
        self.functions = functions
        self.calls: dict[str, list[Call]] = {}
        self._stack = stack
        self._patch = patch

    def run(self, case: Case, api: Listener) -> None:
        """Record the calls of a case. Fails if its function raises."""
        kept = ("POWERTOOLS_", "AWS_")
        for name in [name for name in ENVIRONMENT if not name.startswith(kept)] + ["TOKEN_REFRESHER_FUNCTION"]:
            self._patch.delenv(name, raising=False)
        variables = self._stack.environment(case.function)
        for name, value in variables.items():
            self._patch.setenv(name, api.url if name == "CHAT_API_URL" else value)
        api.answers = {"/auth": ok(b'{"access_token": "new"}')}
        account = Recorded().use()
        for queue in self._stack.of_type("AWS::SQS::Queue"):
            account.make_queue(self._stack.physical(queue))
        account.parameters |= dict.fromkeys(map(self._stack.physical, self._stack.of_type("AWS::SSM::Parameter")), "{}")
        self.functions.answered.clear()
        case.arrange(account)
        context = invocation(seconds=self._stack.properties(case.function)["Timeout"])
        ran = self.functions.run(self.functions.load(folder_of(case.function)), case.event, context)
        assert ran.raised is None, f"{case.function}, {case.name}: {ran}"
        self.calls.setdefault(case.function, []).extend(account.calls)


def folder_of(logical: str) -> str:
    words = logical.removesuffix("Function")
    return "".join("_" + each.lower() if each.isupper() else each for each in words).lstrip("_")


@contextmanager
def recorder(stack: Stack) -> Iterator[Recorder]:
    """Replace boto3's clients and the clock's waits inside the context, and restore them at its end."""
    with pytest.MonkeyPatch.context() as patch, Functions(patch) as functions:
        patch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # saves thousands of log lines
        yield Recorder(stack, functions, patch)
