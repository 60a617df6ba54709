"""The slots' world with state machine targets and with callers that wait.

A child is an execution of the state machine with the name of the workflow's execution. It runs until it ends, or is
stopped. A caller waits until it is answered, or times out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from dev.judge.slot_item import Holder
from slotkeeper.slots.executions import ANSWER_FAILED, CHILD_TOO_LARGE, REQUEST_FAILED, SUCCEEDED_CAUSE
from slotkeeper.slots.request import caller_of
from slotkeeper.slots.targets import NO_TARGET, is_state_machine
from slotkeeper.slots.work import MARKER, PARENT_FIELD
from tests.simulation.aws import stepfunctions, tasks
from tests.simulation.aws.stepfunctions import OPEN, WORKFLOW, execution_arn
from tests.simulation.frozen import Record, freeze, record, thaw
from tests.simulation.slots_actors import DEAD_LETTERS
from tests.simulation.slots_state import (
    GRACE,
    JOB,
    LAG,
    PERIOD,
    PROCESS,
    SECOND,
    Plan,
    request_of,
    token_of,
    version_of,
)
from tests.simulation.slots_world import SlotsWorld, random_plan
from tests.simulation.transcript import Question
from tests.simulation.workflow import FAILED, LARGEST_PAYLOAD, SLOTS
from tests.simulation.worlds import DIE, LATE, LOSE, NOT_SENT, THROTTLE, Choice, Violation

FORBIDDEN = f"{stepfunctions.CHILD}-of-others"  # no role may touch it
ANSWERS = ("send_task_success", "send_task_failure")
_READ_TO_KEPT = 200  # seconds: the most from a workflow's read of its child until its request is kept
_UNDONE = (NOT_SENT, THROTTLE, DIE)  # the call has no effect
_CHILD_ENDS = ("FAILED", "ABORTED", "TIMED_OUT")
_LARGE_OUTPUT = json.dumps("x" * LARGEST_PAYLOAD)
_ELSEWHERE = json.dumps({PARENT_FIELD: "arn:execution:another:workflow"})


@cache
def _fields(given: str) -> dict[str, Any]:
    return json.loads(given)  # type: ignore[no-any-return]


def _damaged(value: Any) -> Any:
    """An answer of DynamoDB whose items of processes have an attribute of a wrong type."""
    if isinstance(value, tuple):
        return tuple(map(_damaged, value))
    if not isinstance(value, Record):
        return value
    if "process_name" in value:
        return value.with_fields(default_weight=freeze({"S": "two"}))
    return value.with_fields(
        **{name: _damaged(value[name]) for name in ("Item", "Items", "Attributes") if name in value}
    )


class TargetsWorld(SlotsWorld):
    """A slots' world of any targets, with callers; see World."""

    def __init__(self, plan: Plan, *, timeless: bool = False) -> None:
        self.leaves, self.namesakes, self.child_redrives = plan.leaves, plan.namesakes, plan.child_redrives
        self.refusals, self.damages = plan.refusals, plan.damages
        self.is_malformed = False  # the items, as clients read them
        self.left_early: frozenset[str] = frozenset()  # tokens whose caller timed out before the confirm
        self.redriven_at: dict[str, float] = {}  # children
        # Executions whose reservation was freed before the confirm, and with it the token.
        self.lost: frozenset[str] = frozenset()
        self.adopted: frozenset[str] = frozenset()  # holders
        self.unanswered: frozenset[str] = frozenset()  # tokens: the starter's only attempt to answer has failed
        super().__init__(plan, timeless=timeless)

    # Reading the state ---------------------------------------------------------------------------------------------

    def _children(self) -> Iterator[tuple[str, Record]]:
        """The executions that the workflow has started, by name."""
        for name, child in self.services["children"].fields.items():
            if _fields(child["input"]).get(PARENT_FIELD) == execution_arn(WORKFLOW, name):
                yield name, child

    def _child(self, name: str) -> Record | None:
        return dict(self._children()).get(name)

    def _succeeded_child(self, name: str) -> bool:
        """Whether a child has succeeded, and was not redriven."""
        child = self._child(name)
        return child is not None and child["status"] == "SUCCEEDED" and not child["redrives"]

    def _succeeded_runs(self) -> list[str]:
        """The executions of the Glue runs that have succeeded."""
        return [
            run["arguments"].get(MARKER) for run in self.services["glue"][JOB]["runs"] if run["state"] == "SUCCEEDED"
        ]

    def _not_adopted(self) -> list[str]:
        """The open children that were redriven and hold no slot."""
        held, executions = self._holders(), self.services["stepfunctions"]
        return [
            name
            for name, child in self._children()
            if child["status"] in OPEN
            and child["redrives"]
            and name not in held
            and not stepfunctions.is_open(executions, name)
            and self._process(name.rpartition("-")[0]) is not None
        ]

    def _is_confirmed(self, name: str) -> bool:
        """Whether a workflow has confirmed a slot and holds it. A starter with an old delivery may reserve another."""
        holder = self._holders().get(name)
        return holder is not None and holder.state == "RUNNING"

    def _executions_of(self, token: str) -> list[str]:
        caller = caller_of(token)
        executions = self.services["stepfunctions"].fields.items()
        return [name for name, execution in executions if _fields(execution["input"]).get("caller") == caller]

    def has_succeeded(self, execution: str) -> bool:
        closed = self.services["stepfunctions"][execution]
        answer_failed = closed["error"] == ANSWER_FAILED and closed["cause"].startswith(SUCCEEDED_CAUSE)
        child = self._child(execution)
        waits = "caller" in _fields(closed["input"])  # otherwise its request is kept before its run has ended
        succeeded_run = waits and execution in self._succeeded_runs()
        return answer_failed or succeeded_run or (child is not None and child["status"] == "SUCCEEDED")

    def _dead(self) -> list[str]:
        return super()._dead() + self._not_adopted()

    def _is_unfinished(self) -> bool:
        return super()._is_unfinished() or any(
            child["status"] in OPEN for child in self.services["children"].fields.values()
        )

    # Choices -------------------------------------------------------------------------------------------------------

    def advance(self, until: Callable[[], Any]) -> Any:
        """Take the first of the possible events until this has a true value; return it."""
        while not (reached := until()):
            self.take((self.steps() or self.time_steps())[0])
        return reached

    def steps(self) -> list[Choice]:
        choices = super().steps()
        if self.is_malformed and not self.actors:
            choices += [choice for choice in self.time_steps() if choice not in choices]
        under_way = [sent for sent, *_ in self.in_transit if self.now < sent + LAG]
        if self.plan.aim == "late" and under_way and all(choice.kind == "land" for choice in choices):
            choices.append(Choice("pass_time"))
        return choices

    def ends_of_work(self) -> list[Choice]:
        choices = super().ends_of_work()
        for number, (name, child) in enumerate(self.services["children"].fields.items()):
            if child["status"] in OPEN and (self.timeless or self.now >= self._child_ends_at(name)):
                fails = self.plan.fails and number % self.plan.fails == 0
                choices.append(Choice("end_child", name, "FAILED" if fails else "SUCCEEDED"))
        return choices

    def due_times(self) -> list[float]:
        children = self.services["children"].fields.items()
        return super().due_times() + [self._child_ends_at(name) for name, child in children if child["status"] in OPEN]

    def _child_ends_at(self, name: str) -> float:
        children = self.services["children"]
        began = self.redriven_at.get(name, float(children[name]["started"]))
        return began + self.plan.run_seconds[list(children.fields).index(name) % len(self.plan.run_seconds)]

    def _external_choices(self) -> list[Choice]:
        choices = super()._external_choices()
        if self.is_malformed:
            choices.append(Choice("repair"))
        elif self.damages and self._unsettled():
            choices.append(Choice("damage"))
        if self.leaves:
            waiting = self.services["tasks"].fields.items()
            choices += [Choice("leave", token) for token, task in waiting if task["status"] == "WAITS"]
        if self.namesakes:
            working = (name.removeprefix("workflow ") for name in self.actors if name.startswith("workflow "))
            choices += [
                Choice("namesake", name)
                for name in working
                if name not in self.services["children"] and self._is_machine(name)
            ]
        if self.child_redrives:
            choices += [Choice("redrive_child", name) for name, child in self._children() if self._failed(child)]
        return choices

    def overlooked(self) -> str:
        return "" if self.is_malformed else super().overlooked()

    def _failed(self, child: Record) -> bool:
        return child["status"] not in (*OPEN, "SUCCEEDED")

    def _is_machine(self, execution: str) -> bool:
        return is_state_machine(self.target_of(execution.rpartition("-")[0]))

    def possible_faults(self) -> list[Choice]:
        choices = super().possible_faults()
        if not self.timeless and self.now >= self.outage_until and self.plan.aim in ("", "answers"):
            choices.append(Choice("outage", "tasks", "", True))
        if self.plan.aim in ("", "ends"):
            running = [name for name, child in self._children() if child["status"] in OPEN]
            choices += [Choice("end_child", name, how, True) for name in running for how in _CHILD_ENDS]
        return choices

    def _is_aimed_at(self, choice: Choice) -> bool:
        question = self.actors[choice.subject].question if choice.kind == "call" else None
        match self.plan.aim:
            case "ends":
                return choice.kind == "abort"
            case "polls":
                return choice.kind == "fail_task"
            case "redrives":
                return choice.kind in ("abort", "redrive")
            case "answers":
                return question is not None and question.operation in ANSWERS
            case "late":
                starts = question is not None and self.service_of(question) == "children"
                is_late = starts and choice.how == LATE and question.operation == "start_execution"
                return is_late or (choice.kind == "abort" and bool(self.in_transit))
        return super()._is_aimed_at(choice)

    # Events --------------------------------------------------------------------------------------------------------

    def end_child(self, name: str, status: str) -> None:
        """A child, or the execution of another workflow with the same name, ends."""
        self.log("child", f"{name} ends as {status}")
        self._keep_older("children")
        children = self.services["children"]
        closed = stepfunctions.close(children, name, status, self.now)
        if self.plan.large_outputs and status == "SUCCEEDED":
            closed = closed.with_fields(**{name: closed[name].with_fields(output=_LARGE_OUTPUT)})
        self.services["children"] = closed

    def leave(self, token: str, _: str) -> None:
        """A caller times out."""
        self.leaves -= 1
        self.log("caller", f"{token} times out")
        if not any(map(self._is_confirmed, self._executions_of(token))):
            self.left_early |= {token}
        self.services["tasks"] = tasks.end(self.services["tasks"], token)

    def damage(self, _: str, __: str) -> None:
        """An operator writes an attribute with a wrong type."""
        self.damages -= 1
        self.is_malformed = True
        self.log("operator", "makes the items malformed")

    def repair(self, _: str, __: str) -> None:
        self.is_malformed = False
        self.needs_janitor = True
        self.disturbed_at = self.now
        self.log("operator", "repairs the items")

    def namesake(self, name: str, _: str) -> None:
        """Another workflow starts an execution with this name."""
        self.namesakes -= 1
        self.log("other workflow", f"starts {name}")
        given = record({"stateMachineArn": stepfunctions.CHILD, "name": name, "input": _ELSEWHERE})
        children = self.services["children"]
        self.services["children"], _answer = stepfunctions.perform(children, "start_execution", given, self.now)

    def redrive_child(self, name: str, _: str) -> None:
        """An operator redrives a child."""
        self.child_redrives -= 1
        self.log("operator", f"redrives the child {name}")
        self.disturbed_at = self.now
        self.redriven_at = self.redriven_at | {name: self.now}
        self._keep_older("children")
        given = record({"executionArn": execution_arn(stepfunctions.CHILD, name)})
        children = self.services["children"]
        self.services["children"], _answer = stepfunctions.perform(children, "redrive_execution", given, self.now)

    def call(self, name: str, how: str) -> None:
        question = self.actors[name].question
        is_answer = question.service == "stepfunctions" and question.operation in ANSWERS
        if is_answer and self.refusals and how != DIE:
            self.refusals -= 1
            how = THROTTLE
        elif is_answer and self.down == "tasks" and self.now < self.outage_until:
            how = how or THROTTLE
        if is_answer and how == THROTTLE:
            self.disturbed_at = self.now
        if is_answer and not self.is_denied(question):
            self._check_answer(name, question, how)
        if is_answer and self.is_denied(question):
            self.unanswered |= {question.parameters["taskToken"]}
        if is_answer and name.startswith("starter") and how in (NOT_SENT, THROTTLE, LOSE, LATE):
            self.unanswered |= {question.parameters["taskToken"]}
        if name.startswith("workflow "):
            self._add_to_history(name.removeprefix("workflow "), question, how)
        super().call(name, how)

    def _add_to_history(self, name: str, question: Question, how: str) -> None:
        """Add what the janitor's code reads in an execution's history."""
        event: dict[str, Any] = {}
        if question.operation in ANSWERS:
            given = {key[0].upper() + key[1:]: value for key, value in question.parameters.fields.items()}
            event = {"taskScheduledEventDetails": {"parameters": json.dumps(given)}}
        elif question.operation == "get_item" and "task_token" in question.parameters["ProjectionExpression"]:
            entry = self._item(name.rpartition("-")[0])["holders"]["M"].get(name)
            if how or entry is None:
                return
            item = {"holders": {"M": {name: {"M": {"task_token": thaw(entry["M"]["task_token"])}}}}}
            event = {"taskSucceededEventDetails": {"output": json.dumps({"Item": item})}}
        if event:
            executions = self.services["stepfunctions"]
            self.services["stepfunctions"] = stepfunctions.add_event(executions, name, event)

    # Properties ----------------------------------------------------------------------------------------------------

    def perform(self, question: Question) -> Any:
        if self.is_denied(question):
            return super().perform(question)
        if question.operation == "send_message" and question.parameters["QueueUrl"] == FAILED:
            self._check_kept(question.parameters["MessageAttributes"])
        if question.operation == "start_job_run":
            self._check_caller_waits(question.parameters["Arguments"][MARKER])
        if self.service_of(question) == "children":
            name = (question.parameters.get("name") or question.parameters.get("executionArn") or "").rpartition(":")[2]
            if question.operation == "start_execution":
                self._check_not_again(name)
                self._check_caller_waits(name)
            if question.operation in ("start_execution", "stop_execution"):
                self._keep_older("children")
            if question.operation == "stop_execution":
                self._check_stopped(name)
        answer = super().perform(question)
        is_damaged = self.is_malformed and question.parameters.get("TableName") == SLOTS
        return answer._replace(value=_damaged(answer.value)) if is_damaged else answer

    def _check_not_again(self, execution: str) -> None:
        super()._check_not_again(execution)
        executions = self.services["stepfunctions"]
        request = request_of(executions[execution]["input"])
        for name, child in self._children():
            of_another = name != execution and child["status"] == "SUCCEEDED" and name in executions
            if of_another and request_of(executions[name]["input"]) == request:
                raise Violation("S7", f"{execution} starts a child although that of {name} has SUCCEEDED")

    def check_success(self, execution: str) -> None:
        child = self._child(execution)
        if self._is_machine(execution) and (child is None or child["status"] != "SUCCEEDED"):
            raise Violation("S3", f"{execution} has SUCCEEDED without its child")

    def _check_caller_waits(self, name: str) -> None:
        """S9, without a fault: no work is done for a caller that timed out before the confirm."""
        caller = _fields(self.services["stepfunctions"][name]["input"]).get("caller")
        if not self.faults and any(caller_of(token) == caller for token in self.left_early):
            raise Violation("S9", f"the work of {name} begins, and its caller has timed out")

    def _check_stopped(self, name: str) -> None:
        """S10: only an own child is stopped, and none that was adopted."""
        child = self.services["children"].get(name)
        if child is None or child["status"] not in OPEN:
            return
        if self._child(name) is None:
            raise Violation("S10", f"{name} of another workflow is stopped")
        if name in self.adopted:
            raise Violation("S10", f"{name}, which an operator has redriven, is stopped")

    def _check_kept(self, attributes: Record) -> None:
        """S3: no request is kept whose child has succeeded, or was redriven before it was read.

        That is known while the slot is held, and from the error of a child that could not be read.
        """
        name = attributes["execution_name"]["StringValue"]
        if not self._is_confirmed(name) and attributes["error"]["StringValue"] != CHILD_TOO_LARGE:
            return
        if self._succeeded_child(name) and "reads" not in self.denied:
            raise Violation("S3", f"{name} is kept, and its child has SUCCEEDED")
        child, redriven_at = self._child(name), self.redriven_at.get(name, self.now)
        by_workflow = attributes["kept_by"]["StringValue"] == "workflow"
        if by_workflow and child and child["status"] in OPEN and self.now - redriven_at > _READ_TO_KEPT:
            raise Violation("S3", f"{name} is kept, and its child, which an operator has redriven, runs")

    def _check_answer(self, actor: str, question: Question, how: str) -> None:
        """S9: the workflow answers after the release, and an answer states how the work has ended.

        The janitor knows that a child has succeeded only while the slot is held. A starter with an old delivery may
        dead-letter a request that has run, if it was cancelled after its release.
        """
        token = question.parameters["taskToken"]
        task = self.services["tasks"].get(token)
        if how in _UNDONE or task is None or task["status"] != "WAITS":
            return
        names, executions = self._executions_of(token), self.services["stepfunctions"]
        if actor.startswith("workflow ") and self._is_confirmed(actor.removeprefix("workflow ")):
            raise Violation("S9", f"{token} is answered while {actor} holds a slot")
        has_succeeded = question.operation == "send_task_success"
        ended_well = [name for name in names if self._is_machine(name) and self._succeeded_child(name)]
        ended_well += self._succeeded_runs()
        if has_succeeded and not ended_well and not any(child["redrives"] for _, child in self._children()):
            raise Violation("S9", f"{token} is answered with success, and no work has succeeded")
        # A status event may settle an execution that an operator redrives meanwhile, and that returns its request.
        if actor.startswith("starter") or any(executions[name]["redrives"] for name in names):
            return
        if question.parameters.get("error") == "CallerGone":
            raise Violation("S9", f"{token} waits, and counts as gone")
        if has_succeeded or "reads" in self.denied:
            return
        known = {name for name in names if actor.startswith("workflow ") or self._is_confirmed(name)}
        # A workflow that could not find its run has kept the request as failed, and the janitor answers so.
        known -= {name for name in names if executions[name]["error"] == REQUEST_FAILED}
        if known & {*ended_well}:
            raise Violation("S9", f"{token} is answered with a failure, and its work has SUCCEEDED")

    def check(self) -> None:
        super().check()
        holders = self._holders()
        for name, child in self._children():
            if child["status"] in OPEN and not child["redrives"] and name not in holders:
                raise Violation("S1b", f"the child {name} runs, and {name} holds no slot")

    def _check_process(self, item: Record, before: Record) -> None:
        super()._check_process(item, before)
        held, held_before = version_of(item).holders, version_of(before).holders
        added = held.keys() - held_before.keys()
        self.lost -= added
        # A starter adds reservations, and an adoption a confirmed holder.
        self.adopted |= {name for name in added if held[name].state == "RUNNING"}
        self.adopted -= held_before.keys() - held.keys()
        for name in held_before.keys() - held.keys():
            if held_before[name].state == "RESERVED" or self._acting[0] == "release":
                self.lost |= {name}
            child = self._child(name)
            if child is None or self.timeless or child["redrives"] or child["status"] not in ("ABORTED", "TIMED_OUT"):
                continue
            if self.now < child["stopped"] + self.plan.settle_seconds:
                raise Violation("S1b", f"{name} is freed before the work of its child has settled")

    def _check_in_time(self) -> None:
        super()._check_in_time()
        for name in () if self.suspended_actor or "reads" in self.denied else self._not_adopted():
            late = self.now - max(self.redriven_at[name], self.disturbed_at)
            if late > 2 * PERIOD:
                raise Violation("S1b", f"{name} was redriven, and holds no slot for {late:.0f} s")

    def check_child_freed(self, name: str, holder: Holder, dead: float) -> None:
        child = self._child(name)
        if child is not None and child["status"] in OPEN:
            late = self.now - max(dead + GRACE, self.disturbed_at, self.redriven_at.get(name, 0))
            if late > PERIOD and not child["redrives"]:
                raise Violation("S4", f"{name} is dead, and its child was not stopped for {late:.0f} s")
            return
        settles = self.plan.settle_seconds if child is not None and child["status"] != "FAILED" else 0
        ended = child["stopped"] + settles if child is not None else 0
        late = self.now - max(dead + GRACE, self.disturbed_at, ended)
        if late > 2 * PERIOD:
            raise Violation("S4", f"{name} is dead, and its slot was not freed for {GRACE} + {late:.0f} s")
        if name not in self.redriven_at:
            self._check_freed_by_event(name, dead, ended)

    def check_end(self) -> None:
        super().check_end()
        blocked = {request_of(each["body"]) for each in self._queue()["messages"] if self.is_blocked(each)}
        exempt = {token_of(request, self.plan.callers) for request in self.removed | blocked} | self.unanswered
        for token, task in self.services["tasks"].fields.items():
            if task["status"] == "WAITS" and token not in exempt and not self.lost & {*self._executions_of(token)}:
                raise Violation("S9", f"{token} waits, and no actor will answer it")
        texts = [
            message["body"] for each in (FAILED, DEAD_LETTERS) for message in self.services["sqs"][each]["messages"]
        ]
        texts += [execution["input"] for execution in self.services["stepfunctions"].fields.values()]
        if any("token-" in text for text in texts):
            raise Violation("S9", "a token is where an operator reads it")

    def key(self) -> Hashable:
        left = self.leaves, self.namesakes, self.child_redrives, self.refusals, self.damages, self.is_malformed
        noted = self.lost, self.adopted, self.unanswered, self.left_early, frozenset(self.redriven_at.items())
        if self.timeless:
            return super().key(), left, noted
        times = self.next_run, self.disturbed_at, self.down, self.outage_until, tuple(sorted(self.older_at.items()))
        closed = tuple(sorted(self.faults_at_close.items()))
        return super().key(), left, noted, times, closed, self.older.get("children"), frozenset(self._to_wake.items())

    def summary(self) -> str:
        children = [f"{name[-4:]} {child['status']}" for name, child in self.services["children"].fields.items()]
        waiting = [f"{token} {task['status']}" for token, task in self.services["tasks"].fields.items()]
        return f"{super().summary()}  children {children}  callers {waiting}"


def random_world(random: Random, **given: Any) -> TargetsWorld:
    """A random world for random schedules. `given`: fields of its plan that are not random."""
    plan = random_plan(random)
    ids = "".join(dict.fromkeys(character for request in plan.requests for character in request if character.isalpha()))
    plan = replace(
        plan,
        machines=random.choice(((PROCESS,), (PROCESS,), (PROCESS, SECOND), (SECOND,), (), ())),
        settle_seconds=random.choice((0, 0, 100)),
        callers="".join(each for each in ids if random.random() < 0.6),
        leaves=random.choice((0, 0, 1)),
        refusals=random.choice((0, 0, 0, 0, 7, 9)),
        namesakes=random.choice((0, 0, 0, 1)),
        child_redrives=random.choice((0, 0, 1)),
        large_outputs=random.random() < 0.1,
        denials=random.choice(((),) * 8 + (("starts",), ("reads",), ("answers",), ("starts", "reads"))),
    )
    if random.random() < 0.1:
        plan = replace(plan, requests=(f"{plan.requests[0].removesuffix('*')}*", *plan.requests[1:]), wrong_kind=True)
    if random.random() < 0.1:
        plan = replace(plan, target=random.choice((NO_TARGET, FORBIDDEN if PROCESS in plan.machines else "another")))
    if random.random() < 0.3:
        plan = replace(plan, run_seconds=(1200,), timeout_minutes=1)
    if random.random() < 0.4:
        plan = replace(plan, aim=random.choice(("redrives", "polls", "ends")))
    return TargetsWorld(replace(plan, **given))
