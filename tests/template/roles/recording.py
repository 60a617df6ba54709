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

import boto3
import pytest
from botocore.exceptions import ReadTimeoutError

from tests.http_servers import Listener, ok
from tests.simulation.account.cold_functions import ENVIRONMENT, Functions, Ran, invocation
from tests.simulation.account.in_process_aws import Answer, InProcessAws
from tests.template.roles.resolved_template import REGION, ROOT, Stack

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


class Recorded(InProcessAws):
    """The account with a record of its calls. `lose`: operations that take effect but whose answer is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.lose: set[str] = set()
        self._refusals = 0
        self._models: dict[tuple[str, Site], tuple[Call, Any]] = {}

    def answer(self, model: Any, parameters: dict[str, Any]) -> Answer:
        call = Call(model.service_model.service_name, model.name, parameters, _site())
        self.calls.append(call)
        self._models.setdefault((call.operation, call.site), (call, model))
        if self.refuse.get(model.name) == CONDITION:
            self._refusals += 1
            if self._refusals > MOST_REFUSALS:
                del self.refuse[model.name]
        answer = super().answer(model, parameters)
        if model.name in self.lose:
            raise ReadTimeoutError(endpoint_url="the service")
        return answer

    def firsts(self) -> list[tuple[Call, Any]]:
        """The first call of each operation at each site, with botocore's model of the operation."""
        return list(self._models.values())


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
        self.stack = stack
        self.functions = functions
        self._patch = patch
        self.calls: dict[str, list[Call]] = {}
        self.tried: set[tuple[str, Site, str]] = set()
        self._name = ""

    def enter(self, logical: str, **instead: str) -> None:
        """Set the environment of this function. `instead`: other values for variables of the template."""
        self._name = logical
        kept = ("POWERTOOLS_", "AWS_")
        for name in [name for name in ENVIRONMENT if not name.startswith(kept)] + ["TOKEN_REFRESHER_FUNCTION"]:
            self._patch.delenv(name, raising=False)
        variables = self.stack.environment(logical)
        for name, value in (variables | {n: v for n, v in instead.items() if n in variables}).items():
            self._patch.setenv(name, value)

    def run(
        self,
        event: dict[str, Any],
        arrange: Callable[[Recorded], None],
        context: Any,
        refuse: dict[str, str],
        lose: set[str],
    ) -> tuple[Ran, Recorded]:
        account = Recorded()
        self.functions.account = account
        self.functions.answered.clear()
        arrange(account)
        account.refuse, account.lose = account.refuse | refuse, lose
        ran = self.functions.run(self.functions.load(folder_of(self._name)), event, context)
        self.calls.setdefault(self._name, []).extend(account.calls)
        return ran, account


def folder_of(logical: str) -> str:
    words = logical.removesuffix("Function")
    return "".join("_" + each.lower() if each.isupper() else each for each in words).lstrip("_")


@contextmanager
def recorder(stack: Stack) -> Iterator[Recorder]:
    """Replace boto3's clients and the clock's waits inside the context, and restore them at its end."""
    session = boto3.Session("local", "local", region_name=REGION)
    with pytest.MonkeyPatch.context() as patch, Functions(session, patch) as functions:
        patch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # saves thousands of log lines
        yield Recorder(stack, functions, patch)


# Error codes that services return in addition to those of their models.
MORE = {
    CONDITION,
    "PreconditionFailed",
    "SlowDown",
    "ThrottlingException",
    "ValidationException",
}
# Excluded: custom_resource.py retries it for half a minute of real time, since a new role may not be propagated yet.
DENIED = "AccessDeniedException"
UNKNOWN_ERROR = "SomethingElse"
LOST = ""  # no error code: the call takes effect, and its answer is lost


def _errors(call: Call, model: Any) -> Iterator[str]:
    """The error codes that the calling module names, and an unknown one that represents all others."""
    yield UNKNOWN_ERROR
    source = _text(call.site.file)
    codes = {shape.name: shape.metadata.get("error", {}).get("code", shape.name) for shape in model.error_shapes}
    for name, code in sorted(({each: each for each in MORE} | codes).items()):
        if f'"{name}"' in source and code != DENIED:
            yield code


@cache
def _text(file: str) -> str:
    return (ROOT / file).read_text()


def run_case(recorder: Recorder, case: Case, api: Listener, faults: bool) -> None:
    """Run a case, and with `faults` again with each fault that no earlier case had at the same site."""

    def run(refuse: dict[str, str] | None = None, lose: set[str] | None = None) -> tuple[Any, Recorded]:
        api.answers = {"/auth": ok(b'{"access_token": "new"}')}
        context = invocation(seconds=recorder.stack.properties(case.function)["Timeout"])
        return recorder.run(case.event, case.arrange, context, refuse or {}, lose or set())

    recorder.enter(case.function, CHAT_API_URL=api.url)
    ran, account = run()
    assert ran.raised is None, f"{case.function}, {case.name}: {ran}"
    if not faults:
        return
    possible = {
        (call.operation, call.site, code) for call, model in account.firsts() for code in (*_errors(call, model), LOST)
    }
    for operation, code in sorted({(operation, code) for operation, _, code in possible - recorder.tried}):
        if code == LOST:
            run(lose={operation})
        else:
            run(refuse={operation: code})
    recorder.tried |= possible
