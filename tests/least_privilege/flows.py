"""Run every function through every case, and through every case with every fault."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

from tests.least_privilege import slot_cases, token_cases, work_cases
from tests.least_privilege.cases import Case
from tests.least_privilege.recording import Call, Recorded, Recorder
from tests.least_privilege.resolved_template import ROOT, Stack
from tests.support.cold_functions import invocation
from tests.support.http_servers import Listener, ok

# Error codes that services return in addition to those of their models.
MORE = {
    "ConditionalCheckFailedException",
    "PreconditionFailed",
    "SlowDown",
    "ThrottlingException",
    "ValidationException",
}
# Excluded: custom_resource.py retries it for half a minute of real time, since a new role may not be propagated yet.
DENIED = "AccessDeniedException"
UNKNOWN_ERROR = "SomethingElse"


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


def run_all(
    recorder: Recorder,
    functions: Collection[str],
    jobs: list[str],
    machines: list[str],
    callers: list[str],
    faults: bool = True,
) -> None:
    """Run every case of these functions, and each case again with every fault.

    Args:
        jobs, machines: the Glue jobs and the state machines of processes; the registrar registers the first ones.
        callers: the state machines whose tasks wait for answers.
    """
    with Listener() as api:
        for case in _cases(recorder.stack, jobs, machines, callers, api):
            if case.function in functions:
                run_case(recorder, case, api, faults)


def _cases(stack: Stack, jobs: list[str], machines: list[str], callers: list[str], api: Listener) -> Iterator[Case]:
    for job in jobs:
        yield from slot_cases.starter(job)
        yield from slot_cases.janitor(job)
    yield from slot_cases.process_registrar(jobs[0])
    for machine in machines:
        yield from slot_cases.with_caller(machine, callers[0])
    for caller in callers:
        yield from slot_cases.with_caller(jobs[0], caller)
    if machines:
        yield slot_cases.registered_state_machine(machines[0])
    yield from token_cases.chatbot(stack, api)
    yield from token_cases.token_refresher(stack)
    yield from work_cases.worker()
    yield from work_cases.retry_report()


def run_case(recorder: Recorder, case: Case, api: Listener, faults: bool) -> None:
    """Run a case, and with `faults` again with each fault of each call."""

    def run(refuse: dict[str, str] | None = None, lose: set[str] | None = None) -> tuple[Any, Recorded]:
        api.answers = {"/auth": ok(b'{"access_token": "new"}')}
        context = invocation(seconds=recorder.stack.properties(case.function)["Timeout"])
        return recorder.run(case.event, case.arrange, context, refuse or {}, lose or set())

    recorder.enter(case.function, CHAT_API_URL=api.url)
    ran, account = run()
    assert ran.raised is None, f"{case.function}, {case.name}: {ran}"
    if not faults:
        return
    for call, model in account.firsts():
        for code in _errors(call, model):
            run(refuse={call.operation: code})
        run(lose={call.operation})
