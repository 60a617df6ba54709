"""The events of the slots' world: one process or two, their queue, dispatches, workflows, janitor, operators and work.

The clock moves only when no actor can act, except in random schedules. There a janitor runs each minute. Elsewhere it
runs only if a sender of a doorbell has died, or an event was lost: without such a fault nothing may be left to it.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from slotkeeper.slots.closed_executions import MAX_WAIT_SECONDS
from slotkeeper.slots.executions import SLOT_LOST
from slotkeeper.slots.work import MARKER, PARENT_FIELD
from tests.simulation import slots_actors as code
from tests.simulation.aws import glue, sqs, stepfunctions, tasks
from tests.simulation.aws.stepfunctions import OPEN, WORKFLOW, execution_arn
from tests.simulation.frozen import Moment, Record, freeze, record
from tests.simulation.slots_actors import ENDINGS, REQUESTS, VISIBILITY, Message
from tests.simulation.slots_properties import ANSWERS, SlotsProperties
from tests.simulation.slots_state import (
    CHECK_GAP,
    GRACE,
    JOB,
    LAG,
    NO_PROCESS,
    PERIOD,
    PROCESS,
    TIMEOUT,
    code_of,
    fields_of,
    process_of,
)
from tests.simulation.transcript import Answer, Question, Raised
from tests.simulation.workflow import BELLS, LARGEST_PAYLOAD, SLOTS, START, workflow
from tests.simulation.worlds import (
    CONFLICT,
    DENIED,
    DIE,
    DIE_AFTER,
    LATE,
    LOSE,
    NOT_SENT,
    STALE,
    THROTTLE,
    TWICE,
    Actor,
    Choice,
    Violation,
)

FORBIDDEN = f"{stepfunctions.CHILD}-of-others"  # no role may touch it
# The errors of a poll of a live run: its task times out, or Glue refuses GetJobRun.
POLL_ERRORS = ("States.Timeout", "ThrottlingException", "InvalidInputException")
ENDS = ("end_run", "end_child")  # of work
SOON = 5  # seconds: within which a dispatch begins without a fault
MOST_RUNS = 12  # of the janitor, for all that is left to it
OUTAGES = ("glue", "sqs", "events", "sns", "tasks", "dynamodb")
OUTAGE_SECONDS = 900  # longer than all retries of a workflow step
_AT_THE_START = freeze({"state": START, "variables": {}})
_CHILD_ENDS = ("FAILED", "ABORTED", "TIMED_OUT")
_AWS_ERRORS = ("ClientError", "ReadTimeoutError", "ConnectTimeoutError")
_SUCCESS = {"status": "SUCCEEDED"}
_LARGE_OUTPUT = json.dumps("x" * LARGEST_PAYLOAD)
_ELSEWHERE = json.dumps({PARENT_FIELD: "arn:execution:another:workflow"})
# Functions whose queue delivers their message again.
_REDELIVERED = ("starter", "dispatcher", "ending")
# The actors of operators.
_COMMANDS = ("operator", "cancel", "again", "discard", "release", "replace")


class Notes(NamedTuple):
    """The world's notes on an actor."""

    # The last state of a workflow, the messages of an invocation of the function of endings, or what an operator
    # wants
    state: Any = None
    began: float = 0.0  # of an invocation


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


class SlotsWorld(SlotsProperties):
    """The world of the slots; see World."""

    # Choices -------------------------------------------------------------------------------------------------------

    def steps(self) -> list[Choice]:
        # A call whose sender gave up arrives within LAG.
        late = [at for at, (sent, *_) in enumerate(self.in_transit) if self.now >= sent + LAG]
        if late:
            return [Choice("land", str(late[0]))]
        choices: list[Choice] = []
        for name, actor in self.actors.items():
            question = actor.question
            if question.service != "actor":
                choices.append(Choice("call", name))
            elif self._may_wake_up(name, actor):
                choices.append(Choice("wake_up", name))
        heads = {message["group"]: message for message in reversed(self.receivable(REQUESTS))}
        choices += [Choice("receive", group) for group in heads]
        if self.plan.has_doorbell and self._count("dispatcher") < self.plan.dispatchers:
            bells = {message["body"]: message for message in self.receivable(BELLS)}
            choices += [Choice("ring", message["id"]) for message in bells.values()]
        choices += self._ends_of_work()
        ends = {message["body"]: message for message in self.receivable(ENDINGS)}
        ends = ends if self._count("ending") < self.plan.dispatchers and not self._repeats_for_days() else {}
        choices += [Choice("handle_end", each["id"]) for each in ends.values() if not self._comes_last(each)]
        choices += self.arrivals()
        choices += self._external_choices()
        if "janitor" not in self.actors and (self.now >= self.next_run or (choices and self._may_run_alongside())):
            choices.append(Choice("run_janitor"))
        choices = choices or [Choice("handle_end", each["id"]) for each in ends.values()]
        if self.in_transit and self.plan.aim == "late" and all(choice.kind == "land" for choice in choices):
            choices.append(Choice("pass_time"))
        if choices and all(choice.kind in ENDS for choice in choices):
            self._check_overdue()  # work may take hours
        return choices

    def _repeats_for_days(self) -> bool:
        """Whether a denied answer is all that is left of the messages of EndingQueue, and a janitor run reports it."""
        return "answers" in self.denied and self.unpublished > 0

    def _comes_last(self, message: Record) -> bool:
        """Whether a message of EndingQueue is received only when nothing else can happen, which makes fewer states.

        How a success is published matters to no other actor but those of the worlds of publishing.
        """
        is_step = self.plan.event_steps or self.plan.aim in ("publishing", "ends")
        return not is_step and fields_of(message["body"]).get("detail", {}).get("status") == "SUCCEEDED"

    def _may_run_alongside(self) -> bool:
        """Whether a janitor run may begin while other actors work."""
        has_work = self._unrecorded() or self._unpublished() or self._not_adopted()
        return self.janitor_runs > 0 and (self.plan.aim != "ends" or bool(has_work))

    def _check_overdue(self) -> None:
        """S6, when no actor can act: nothing may start, or must leave, unless a message will lead to a dispatch."""
        overdue = self.overdue()
        works = all(self._is_waiting(*each) for each in self.actors.items())
        if overdue and works and not self.needs_janitor and not self.is_malformed and not self._may_come():
            raise Violation("S6", f"{overdue} and nothing comes for it")

    def _is_waiting(self, name: str, actor: Actor) -> bool:
        """Whether it waits for the end of its work, or of its block."""
        return actor.question.operation == ("sleep" if name.startswith("caller") else "wait_for_end")

    def _count(self, kind: str) -> int:
        return sum(name.startswith(kind) for name in self.actors)

    def _may_wake_up(self, name: str, actor: Actor) -> bool:
        if actor.question.operation == "sleep":
            return self.now >= actor.asleep_until
        return self.own_answer(name, actor, actor.question) is not None

    def _ends_of_work(self) -> list[Choice]:
        """The ends of Glue runs and of children."""
        choices = []
        for run in self._alive():
            if not self.plan.run_seconds or self.now >= self._ends_at(run):
                number = int(run["id"].partition("_")[2])
                end = "STOPPED" if run["state"] == "STOPPING" else "FAILED" if self._fails(number) else "SUCCEEDED"
                choices.append(Choice("end_run", run["id"], end))
        for number, (name, child) in enumerate(self.services["children"].fields.items()):
            if child["status"] in OPEN and (not self.plan.run_seconds or self.now >= self._child_ends_at(name)):
                choices.append(Choice("end_child", name, "FAILED" if self._fails(number) else "SUCCEEDED"))
        return choices

    def _external_choices(self) -> list[Choice]:
        """The commands of operators, runs of other users of the job, and callers."""
        if self.now < self.outage_until:
            return []  # an operator would repeat a command without an end
        return self._commands() + self._of_others()

    def _commands(self) -> list[Choice]:
        choices: list[Choice] = []
        if self.limits and "operator" not in self.actors and self._item() is not NO_PROCESS:
            choices.append(Choice("operate"))
        if self.replacements and "replace" not in self.actors and self._may_be_removed():
            choices.append(Choice("replace"))
        if self.cancels and "cancel" not in self.actors:
            choices.append(Choice("cancel", self.cancels[0]))
        if self.frees and "release" not in self.actors:
            held = self._holders().items()
            choices += [Choice("free", name) for name, holder in held if holder.state == "RESERVED"]
        others = [name for name in self.actors if name.split()[0] not in _COMMANDS]
        is_busy = bool(others or self.messages(REQUESTS, BELLS, ENDINGS))
        return choices if self.plan.rests and is_busy else choices + self._of_failures()

    def _of_failures(self) -> list[Choice]:
        choices = []
        if self.again and (name := self._failed(self.again[0])) and self._count("again") < 2:
            choices.append(Choice("queue_again", name))
        if self.discards and (name := self._failed(self.discards[0])) and "discard" not in self.actors:
            choices.append(Choice("discard", name))
        return choices

    def _of_others(self) -> list[Choice]:
        choices: list[Choice] = []
        if self.others and self._count("workflow "):
            choices.append(Choice("another_run"))
        if self.leases_begun < len(self.plan.leases):
            choices.append(Choice("lease", str(self.leases_begun)))
        if self.is_malformed:
            choices.append(Choice("repair"))
        elif self.damages and self._unrecorded():
            choices.append(Choice("damage"))
        if self.leaves:
            waiting = self.services["tasks"].fields.items()
            choices += [Choice("leave", token) for token, task in waiting if task["status"] == "WAITS"]
        if self.namesakes:
            names = (name.removeprefix("workflow ") for name in self.actors if name.startswith("workflow "))
            free = (name for name in names if name not in self.services["children"] and self._is_machine(name))
            choices += [Choice("namesake", name) for name in free]
        if self.child_redrives:
            closed = (name for name, child in self._children() if child["status"] not in (*OPEN, "SUCCEEDED"))
            choices += [Choice("redrive_child", name) for name in closed]
        return choices

    def _may_be_removed(self) -> bool:
        paused = self._item().get("paused")
        return paused is not None and bool(paused["BOOL"]) and not self._holders_of(PROCESS)

    def _failed(self, request_id: str) -> str:
        """The first execution of a request that has failed; empty if it has not."""
        sent = (each.execution for each in self.plan.requests if each.id == request_id)
        rows = self._rows()
        return next((name for name in sent if name in rows and rows[name]["state"]["S"] == "FAILED"), "")

    def time_steps(self) -> list[Choice]:
        """The events that need the clock, when no actor can act."""
        self._check_overdue()
        if to_release := self._to_release():
            return [Choice("free", name) for name in to_release]
        if self.due_times():
            return [Choice("pass_time")]
        left = self.left()
        if not left and not self.awaits_time():
            return []
        is_of_janitor = self.needs_janitor or (self.janitor_settles and bool(left)) or self._is_for_janitor()
        if not is_of_janitor or self.runs_alone >= MOST_RUNS:
            raise Violation("S4", f"{left or 'a start in the future'}: nothing comes for it")
        return [Choice("run_janitor")]

    def _may_come(self) -> bool:
        """Whether a message is under way that leads to a dispatch, after a fault as late as its visibility timeout."""
        until = self.now + (VISIBILITY if self.is_disturbed else SOON)
        messages = self.messages(REQUESTS, BELLS) if self.plan.has_doorbell else self.messages(REQUESTS)
        details = [fields_of(message["body"]).get("detail", _SUCCESS) for message in self.messages(ENDINGS)]
        is_freed = any(detail["status"] != "SUCCEEDED" for detail in details)
        return is_freed or any(message["visible_at"] <= until for message in messages)

    def _is_for_janitor(self) -> bool:
        """Whether only the janitor's runs do what is left, although no sender of a doorbell has died.

        It removes leases of callers that have died, adopts redriven children, and repeats what could not be published.
        """
        if self.faults and self._unpublished():
            return True
        has_lease = any(holder.is_lease for holder in self._holders().values()) and not self._is_kept_out()
        return has_lease or bool(self._not_adopted()) or any(child["redrives"] for _, child in self._children())

    def _is_kept_out(self) -> bool:
        """Whether a request waits that could start if all slots were free."""
        process = self._process(PROCESS)
        return process is not None and not process.paused and bool(self._lines(PROCESS, self._waiting(PROCESS)))

    def times(self) -> list[float]:
        times = super().times()
        queues = (REQUESTS, BELLS) if self.plan.has_doorbell else (REQUESTS,)
        queues = queues if self._repeats_for_days() else (*queues, ENDINGS)
        times += [message["visible_at"] for message in self.messages(*queues)]
        times += [self._ends_at(run) for run in self._alive() if self.plan.run_seconds]
        children = self.services["children"].fields.items()
        times += [self._child_ends_at(name) for name, child in children if child["status"] in OPEN]
        times.append(self.outage_until)
        if self.plan.first_run and self.is_unfinished():
            times.append(self.next_run)
        return times

    # Faults --------------------------------------------------------------------------------------------------------

    def possible_faults(self) -> list[Choice]:
        choices: list[Choice] = []
        for name, actor in self.actors.items():
            question = actor.question
            kind, _, execution = name.partition(" ")
            if question.service != "actor":
                choices += [Choice("call", name, how, True) for how in self._faults_of(kind, question)]
            elif question.operation == "wait_for_end":
                choices += [Choice("fail_task", name, how, True) for how in POLL_ERRORS]
            if question.operation == "start_execution" and kind != "workflow":
                choices.append(Choice("start_fails", name, "", True))
            if kind == "workflow":
                choices += [Choice("abort", execution, how, True) for how in ("ABORTED", "TIMED_OUT")]
        choices += [Choice("end_run", run["id"], "FAILED", True) for run in self._alive() if run["state"] != "STOPPING"]
        running = [name for name, child in self._children() if child["status"] in OPEN]
        choices += [Choice("end_child", name, how, True) for name in running for how in _CHILD_ENDS]
        for queue in (REQUESTS, BELLS, ENDINGS):
            for message in self.messages(queue):
                if sqs.is_in_flight(message, self.now):
                    choices.append(Choice("expire", f"{queue} {message['id']}", "", True))
                elif queue == BELLS:
                    choices += [Choice(how, message["id"], "", True) for how in ("lose_bell", "delay_bell")]
                elif queue == ENDINGS and "refused" not in fields_of(message["body"]):
                    choices.append(Choice("lose_end", message["id"], "", True))
        if self.plan.first_run and self.now >= self.outage_until:
            choices += [Choice("outage", service, "", True) for service in OUTAGES]
        choices += [Choice("redrive", name, "", True) for name in self._unsuccessful()]
        choices += [Choice("deny", kind, "", True) for kind in self.plan.denials if kind not in self.denied]
        return [choice for choice in choices if self._is_aimed_at(choice)] if self.plan.aim else choices

    def _faults_of(self, kind: str, question: Question) -> tuple[str, ...]:
        """The faults of a call."""
        kinds: tuple[str, ...] = (NOT_SENT, THROTTLE, LOSE)
        if kind != "workflow":
            kinds += (DIE, DIE_AFTER)
        if question.operation in ("update_item", "put_item", "transact_write_items"):
            kinds += (CONFLICT,)
        # The SDK sends each transaction with a token, and starts of workflows once.
        if kind != "workflow" and question.operation not in ("transact_write_items", "start_execution"):
            kinds += (TWICE,)
        if self.plan.run_seconds:
            kinds += (LATE,)
        return (*kinds, STALE) if self._can_be_stale(question) else kinds

    def _can_be_stale(self, question: Question) -> bool:
        """Whether a read may return the state before the last change: Glue and Step Functions lag by seconds."""
        if question.operation not in ("get_job_runs", "get_job_run", "list_executions", "describe_execution"):
            return False
        service = self.service_of(question)
        recent = self.now < self.older_at.get(service, 0) + LAG
        return recent and self.older[service] is not self.services[service]

    def _is_aimed_at(self, choice: Choice) -> bool:
        """Whether a fault is one of the plan's aim.

        "dispatches": calls of starters and dispatchers; "doorbells": what happens to messages; "invocations": their
        deaths; "deaths" of workflows, calls of those who settle; "ends" of workflows; "publishing": calls of those who
        publish, and lost messages; "polls" that fail; "redrives" and deaths of workflows; "denials" and deaths; "late"
        starts of children, and deaths then.
        """
        kind = choice.subject.partition(" ")[0]
        question = self.actors[choice.subject].question if choice.kind == "call" else None
        match self.plan.aim:
            case "dispatches":
                return choice.kind == "start_fails" or (question is not None and kind in ("starter", "dispatcher"))
            case "invocations":
                dies = question is not None and choice.how in (DIE, DIE_AFTER)
                return dies and kind in ("starter", "dispatcher")
            case "doorbells":
                return choice.kind in ("expire", "lose_bell", "delay_bell")
            case "publishing":
                publishes = question is not None and kind in ("janitor", "ending") and bool(self._unpublished())
                return publishes or choice.kind in ("lose_end", "expire")
            case "deaths":
                of_janitor = question is not None and kind in ("janitor", "ending")
                return choice.kind in ("abort", "lose_end") or (of_janitor and bool(self._dead() or self._unrecorded()))
            case "ends":
                return choice.kind == "abort" or (choice.kind == "end_child" and self.plan.settle_seconds > 0)
            case "polls":
                return choice.kind == "fail_task"
            case "redrives":
                return choice.kind in ("abort", "redrive")
            case "denials":
                return choice.kind in ("abort", "deny")
            case "late":
                starts = question is not None and self.service_of(question) == "children"
                is_late = starts and choice.how == LATE and question is not None
                return (is_late and question.operation == "start_execution") or (  # type: ignore[union-attr]
                    choice.kind == "abort" and bool(self.in_transit)
                )
        raise AssertionError(self.plan.aim)

    # Events of queues and functions --------------------------------------------------------------------------------

    def receive(self, group: str, _: str) -> None:
        """Invoke the starter with the head of a group, or with all its messages."""
        messages = [each for each in self.receivable(REQUESTS, together=True) if each["group"] == group]
        taken = [self._take(REQUESTS, each) for each in (messages if self.plan.batch else messages[:1])]
        self._invoke("starter", code.starter.begin(tuple(taken)))

    def ring(self, message_id: str, _: str) -> None:
        """Invoke the starter with a doorbell, or with all of them."""
        messages = [each for each in self.receivable(BELLS) if self.plan.batch or each["id"] == message_id]
        self._invoke("dispatcher", code.dispatcher.begin(tuple(self._take(BELLS, each) for each in messages)))

    def _invoke(self, kind: str, node: Any, taken: tuple[Message, ...] = ()) -> None:
        # The first free name: numbers that only grow would make equal states differ.
        name = next(name for at in range(99) if (name := f"{kind} {at}") not in self.actors)
        self.begin(name, node, Notes(taken, self.now))

    def _take(self, queue: str, message: Record) -> Message:
        taken = self.deliver(queue, message)
        return Message(*(taken[field] for field in Message._fields))

    def expire(self, which: str, _: str) -> None:
        """A message comes again although its invocation runs."""
        queue, message_id = which.split()
        self.log("queue", f"{message_id} is visible again")
        self.services["sqs"] = sqs.expire(self.services["sqs"], queue, message_id, self.now)
        self.needs_janitor = True  # one delivery may delete it, and the other one die

    def lose_bell(self, message_id: str, _: str) -> None:
        """A doorbell is lost, as if its sender had died before."""
        self.log("queue", f"{message_id} is lost")
        self._lose(BELLS, message_id)
        self.needs_janitor = True

    def delay_bell(self, message_id: str, _: str) -> None:
        """A doorbell comes a minute late."""
        self.log("queue", f"{message_id} is late")
        late = {message_id: self.now + 60}
        bells = self.messages(BELLS)
        self.put_messages(
            BELLS, [each.with_fields(visible_at=late.get(each["id"], each["visible_at"])) for each in bells]
        )

    def _lose(self, queue: str, message_id: str) -> None:
        self.put_messages(queue, [each for each in self.messages(queue) if each["id"] != message_id])

    def start_fails(self, name: str, _: str) -> None:
        """Step Functions fails before it starts the execution, which its answer does not show."""
        self.log(name, "gets InternalServerError from", self.actors[name].question)
        self._advance(name, self.actors[name].after(Answer(error="InternalServerError")))

    def handle_end(self, message_id: str, _: str) -> None:
        """Invoke the function of endings with a message, or with all of them."""
        messages = [each for each in self.receivable(ENDINGS) if self.plan.batch or each["id"] == message_id]
        taken = tuple(self._take(ENDINGS, each) for each in messages)
        self._invoke("ending", code.ending.begin(taken, GRACE, CHECK_GAP), taken)

    def lose_end(self, message_id: str, _: str) -> None:
        """A message of EndingQueue is lost: EventBridge's delivery is best effort, and other senders may die before."""
        self.log("queue", f"{message_id} of EndingQueue is lost")
        self._lose(ENDINGS, message_id)
        self._leave_to_janitor()

    def _leave_to_janitor(self) -> None:
        """Something was lost after which only the janitor's runs settle requests, free slots and publish ends."""
        self.needs_janitor = self.janitor_settles = True

    def run_janitor(self, _: str, __: str) -> None:
        """A scheduled janitor run begins, next to other actors or when nothing else can happen."""
        is_alone = not (self.actors or self._may_come())
        if self.now < self.next_run:  # not by the clock
            self.janitor_runs -= not is_alone
            self.now += PERIOD * is_alone
            self.runs_alone += is_alone
        else:
            self.next_run = self.now + PERIOD
        self.needs_janitor &= not is_alone or not self.plan.has_doorbell or self.now < self.outage_until
        self.log("janitor", "begins")
        self.begin("janitor", code.janitor_run.begin(GRACE, CHECK_GAP), Notes(began=self.now))

    # Events of work and executions ---------------------------------------------------------------------------------

    def end_run(self, run_id: str, state: str) -> None:
        """Glue ends a run."""
        self.log("glue", f"{run_id} ends as {state}")
        self.services["glue"] = glue.end(self.services["glue"], JOB, run_id, state, self.now, self.plan.lag)

    def another_run(self, _: str, __: str) -> None:
        """Another user runs the same job. The run has ended as soon as it is listed."""
        self.others -= 1
        self._keep_older("glue")
        self.log("other user", "runs the job")
        self.services["glue"] = glue.another(self.services["glue"], JOB, freeze({"--other": "arguments"}), self.now)

    def end_child(self, name: str, status: str) -> None:
        """A child, or the execution of another workflow with the same name, ends."""
        self.log("child", f"{name} ends as {status}")
        self._keep_older("children")
        closed = stepfunctions.close(self.services["children"], name, status, self.now)
        if self.plan.large_outputs and status == "SUCCEEDED":
            closed = closed.with_fields(**{name: closed[name].with_fields(output=_LARGE_OUTPUT)})
        self.services["children"] = closed

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

    def abort(self, execution: str, status: str) -> None:
        """An execution is stopped or times out, and makes no further call."""
        self.log("stepfunctions", f"{execution} ends as {status}")
        state = self.actors.pop(f"workflow {execution}").notes.state
        self._close(execution, status, state=state)

    def fail_task(self, name: str, error: str) -> None:
        """A task fails because it times out or its poll is refused. Its Glue run continues."""
        self.log(name, f"its task fails with {error}")
        self._advance(name, self.actors[name].after(Answer(error=error)))

    def redrive(self, execution: str, _: str) -> None:
        """An operator redrives a failed execution, which continues at its last state."""
        before = self.services["stepfunctions"][execution]
        arn = freeze({"executionArn": execution_arn(WORKFLOW, execution)})
        self.perform(Question("stepfunctions", "redrive_execution", arn))
        self.log("operator", f"redrives {execution}")
        self._run(execution, before.get("state") or _AT_THE_START)

    def _run(self, execution: str, state: Record) -> None:
        known = self.services["stepfunctions"][execution]
        node = workflow.begin(execution, known["input"], known["redrives"], state["state"], state["variables"])
        self.begin(f"workflow {execution}", node, Notes(state))

    def _close(self, execution: str, status: str, error: str = "", cause: str = "", state: Any = None) -> None:
        executions = self.services["stepfunctions"]
        is_unexpected = not self.plan.frees and not self.plan.first_run  # else a slow run may grant late
        if error == SLOT_LOST and is_unexpected and not executions[execution]["redrives"]:
            raise Violation("S4", f"{execution} has lost its slot, which no operator has freed")
        self._keep_older("stepfunctions")
        closed = stepfunctions.close(self.services["stepfunctions"], execution, status, self.now, error, cause)
        self.services["stepfunctions"] = closed.with_fields(**{execution: closed[execution].with_fields(state=state)})
        self._check_closed(execution, status)
        if self.plan.events_lost:
            self._leave_to_janitor()
            return
        self.faults_at_close = self.faults_at_close | {execution: self.faults}
        detail = {"name": execution, "status": status, "redriveCount": closed[execution]["redrives"]}
        self.send(ENDINGS, json.dumps({"detail": detail}))

    def _keep_older(self, service: str) -> None:
        self.older[service] = self.services[service]
        self.older_at[service] = self.now

    # Events of operators, callers and time -------------------------------------------------------------------------

    def operate(self, _: str, __: str) -> None:
        """The operator changes the limit, or that of a key, pauses or resumes."""
        limit, *rest = self.limits
        self.limits = tuple(rest)
        self.log("operator", {0: "pauses", -1: "resumes"}.get(limit, f"sets the limit to {limit}"))  # type: ignore[arg-type]
        self.begin("operator", code.operator.begin(PROCESS, limit), Notes(limit))

    def cancel(self, request_id: str, _: str) -> None:
        """The operator cancels a request, which may have started, or not have been received."""
        self.cancels = self.cancels[1:]
        request = next(each for each in self.plan.requests if each.id == request_id)
        self.log("operator", f"cancels {request_id}")
        self.begin("cancel", code.canceller.begin(request.process, request.execution), Notes(request_id))

    def queue_again(self, execution: str, _: str) -> None:
        """An operator redrives a failed request."""
        request_id, *rest = self.again
        self.again = tuple(rest)
        self.log("operator", f"redrives the request {execution}")
        node = code.requeuer.begin(process_of(execution), execution)
        self.begin("again 0" if "again 0" not in self.actors else "again 1", node, Notes(request_id))

    def discard(self, execution: str, _: str) -> None:
        """An operator discards a failed request."""
        request_id, *rest = self.discards
        self.discards = tuple(rest)
        self.log("operator", f"discards the request {execution}")
        self.begin("discard", code.discarder.begin(process_of(execution), execution), Notes(request_id))

    def free(self, execution: str, _: str) -> None:
        """An operator frees a reservation, or the slot of a holder whose work may not be read, after it has ended.

        Without a fault the workflow knows the result of each Glue start, so that nothing is left to an operator.
        """
        is_reserved = self._holders()[execution].state == "RESERVED"
        if not is_reserved and not self.faults and not self._is_machine(execution):
            raise Violation("S4", f"{execution} keeps its slot until an operator releases it")
        self.frees -= is_reserved
        self.log("operator", f"frees {execution}")
        self.disturbed_at = self.now
        node = code.releaser.begin(process_of(execution), execution, is_reserved)
        self.begin("release", node, Notes(execution))

    def _to_release(self) -> list[str]:
        """The holders that an operator releases: their check is denied and reported, and their work has ended."""
        if not self.unreadable or self.actors or self.in_transit:
            return []
        held, working = self._holders(), self._working()
        dead = [name for name in self._dead() if name in held and not held[name].is_lease]
        return [name for name in dead if self.is_unreadable(name) and name not in working]

    def replace(self, _: str, __: str) -> None:
        """The operator removes the process and adds it again."""
        self.replacements -= 1
        self.log("operator", "removes the process and adds it again")
        node = code.replacer.begin(
            PROCESS, self.plan.limit, self.target_of(PROCESS), self.plan.rate, self.plan.key_limit
        )
        self.begin("replace", node, Notes())

    def lease(self, number: str, _: str) -> None:
        """A caller asks for a lease."""
        self.leases_begun += 1
        self.log(f"caller {number}", "asks for a lease")
        block = self.plan.blocks[int(number) % len(self.plan.blocks)]
        self.begin(f"caller {number}", code.caller.begin(int(number), block, self.plan.lease_wait), Notes())

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
        self._leave_to_janitor()
        self.disturbed_at = self.now
        self.log("operator", "repairs the items")

    def outage(self, service: str, _: str) -> None:
        """A service refuses all calls for a while."""
        self.down, self.outage_until = service, self.now + OUTAGE_SECONDS
        self._leave_to_janitor()
        self.log(service, f"is down for {OUTAGE_SECONDS} s")

    def deny(self, kind: str, _: str) -> None:
        """A role or a key denies these calls from now on."""
        self.log("iam", f"denies {kind} from now on")
        self.denied |= {kind}
        self._leave_to_janitor()

    def pass_time(self, _: str, how: str) -> None:
        """Lambda ends invocations at their timeout."""
        super().pass_time("", how)
        for name, actor in list(self.actors.items()):
            if name.startswith(("starter", "dispatcher")) and self.now > actor.notes.began + TIMEOUT:
                self.log(name, "is ended by its timeout")
                del self.actors[name]
        if how:
            self.disturbed_at = self.now
        self._check_in_time()

    # Answers to actors ---------------------------------------------------------------------------------------------

    def call(self, name: str, how: str) -> None:
        question, ahead = self.actors[name].question, self.ahead_of(name)
        self._acting, self._shown = (name, ahead), self.clocks.get(name, 0.0)
        is_answer = question.service == "stepfunctions" and question.operation in ANSWERS
        if is_answer and self.refusals and how != DIE:
            self.refusals -= 1
            how, self.disturbed_at = THROTTLE, self.now
        elif self.now < self.outage_until and self.service_of(question) == self.down and how in ("", TWICE, STALE):
            how, self.disturbed_at = THROTTLE, self.now
        if is_answer and not self.is_denied(question):
            self._check_answer(name, question, how)
        if how == STALE:
            self._leave_to_janitor()  # which reads again
        super().call(name, how)

    def land(self, number: str, how: str) -> None:
        _, name, _ = self.in_transit[int(number)]
        self._acting = (name, self.ahead_of(name))
        super().land(number, how)

    def clock_of(self, name: str, actor: Actor) -> float:
        return self.now + self.ahead_of(name)

    def own_answer(self, name: str, actor: Actor, question: Question) -> Answer | None:
        match question.operation:
            case "enter":
                entered = Notes(question.parameters, actor.notes.began)
                self.actors[name] = Actor(actor.node, actor.asleep_until, entered)
                return Answer()
            case "clock":
                self.clocks = self.clocks | {name: self.clock_of(name, actor)}
            case "put_events" | "publish":
                return self.perform(question)
            case "runs block":
                own = next((each for each in self._holders_of(PROCESS).values() if each.code == code_of(name)), None)
                if own is not None:
                    self.blocks = self.blocks | {name: (own.until, own.weight)}
                return Answer()
            case "leaves block":
                self.blocks = {other: block for other, block in self.blocks.items() if other != name}
                return Answer()
            case "started":
                return Answer(Moment(self.services["stepfunctions"][name.partition(" ")[2]]["started"]))
            case "wait_for_end" if "reads" in self.denied:
                return DENIED
            case "wait_for_end" if "executionArn" in question.parameters:
                child = stepfunctions.described(self.services["children"], question.parameters["executionArn"])
                return None if child["status"] in OPEN else Answer(child)
            case "wait_for_end":
                runs = self.services["glue"][JOB]["runs"]
                run = next(run for run in runs if run["id"] == question.parameters["RunId"])
                if run["state"] in glue.ALIVE:
                    return None
                return Answer(freeze({"Id": run["id"], "JobName": JOB, "JobRunState": run["state"]}))
        return super().own_answer(name, actor, question)

    def perform(self, question: Question) -> Answer:
        if self.is_denied(question):
            if question.operation in ("start_job_run", "start_execution") and self.is_without_permission(question):
                raise Violation("S10", f"work of {self.plan.target} begins, which no role may touch")
            return DENIED
        if question.service in ("sns", "events"):
            self._note_published(question)
            return Answer(freeze({"FailedEntryCount": 0, "Entries": [{}]}))
        before, service = self.services["stepfunctions"], self.service_of(question)
        self._asked_for = question.parameters
        self._check_question(question, service)
        if question.operation == "start_execution" and question.parameters["name"] in self._rejected():
            return Answer(error="InvalidExecutionInput")
        answer = super().perform(Question(service, question.operation, question.parameters))
        if question.operation == "start_execution" and self.services["stepfunctions"] is not before:
            self._check_started_as(question.parameters["name"], question.parameters["input"])
            self._run(question.parameters["name"], _AT_THE_START)
        is_damaged = self.is_malformed and question.parameters.get("TableName") == SLOTS
        return answer._replace(value=_damaged(answer.value)) if is_damaged else answer

    def _check_question(self, question: Question, service: str) -> None:
        """The checks of calls of Glue and of children, and their older states."""
        given = question.parameters
        if question.operation in ("start_job_run", "start_execution", "stop_execution"):
            self._keep_older(service)
        name = ""
        if question.operation == "start_job_run":
            name = given["Arguments"][MARKER]
        elif service == "children":
            name = (given.get("name") or given.get("executionArn") or "").rpartition(":")[2]
            if question.operation == "stop_execution":
                self._check_stopped(name)
        if name and question.operation in ("start_job_run", "start_execution"):
            self._check_not_again(name)
            self._check_caller_waits(name)

    def _check_started_as(self, name: str, given: str) -> None:
        """S1: a workflow starts with the content of its row, and with the weight of its slot while that is reserved."""
        fields, row = fields_of(given), self._rows().get(name)
        if row is None or row.get("body", {"S": given})["S"] != given:
            raise Violation("S3", f"{name} starts with {given}, its row is {row}")
        process = self._process(fields["process"])
        holder = process.holders.get(name) if process else None
        if process and holder and holder.weight != (fields.get("weight") or process.default_weight):
            raise Violation("S1", f"{name} of weight {fields.get('weight')} starts in a slot of {holder.weight}")

    def _rejected(self) -> set[str]:
        return {each.execution for each in self.plan.requests if each.id in self.plan.rejects}

    # Ends of actors ------------------------------------------------------------------------------------------------

    def finished(self, name: str, actor: Actor) -> None:
        result, kind = actor.node.result, name.partition(" ")[0]
        if kind == "workflow":
            status, error, cause = result
            self._close(name.partition(" ")[2], status, error, cause, actor.notes.state)
        elif kind == "ending":
            assert not isinstance(result, Raised) or result.error in _AWS_ERRORS, result
            if any(self.now - each.first_received >= MAX_WAIT_SECONDS for each in actor.notes.state):
                self._leave_to_janitor()
        elif kind == "janitor":
            assert not isinstance(result, Raised), result
            counts = dict(result)
            self.unreadable, self.unpublished = counts.get("HoldersUnreadable", 0), counts.get("RequestsUnpublished", 0)
        elif kind in _COMMANDS:
            self._after_command(kind, actor)
        elif kind == "caller":
            assert not isinstance(result, Raised), result

    def _after_command(self, kind: str, actor: Actor) -> None:
        """The operator repeats a command that has failed. A repeated one has no effect if the first one had."""
        wanted, result = actor.notes.state, actor.node.result
        if not isinstance(result, Raised):
            if kind == "cancel" and result:
                self.cancelled |= {result}
            if kind == "discard" and result:
                self.discarded |= {result}
            return
        assert "ValidationException" not in result.text, result
        self.limits = (wanted, *self.limits) if kind == "operator" else self.limits
        self.cancels = (wanted, *self.cancels) if kind == "cancel" else self.cancels
        self.again = (wanted, *self.again) if kind == "again" else self.again
        self.discards = (wanted, *self.discards) if kind == "discard" else self.discards
        self.needs_janitor |= kind in ("again", "release", "replace")

    def died(self, name: str, actor: Actor) -> None:
        assert not name.startswith("workflow "), "a workflow does not die"
        self.blocks = {other: block for other, block in self.blocks.items() if other != name}

    def take(self, choice: Choice) -> None:
        is_call = choice.is_fault and choice.kind == "call"
        self.needs_janitor |= is_call and choice.subject.partition(" ")[0] not in (*_REDELIVERED, "workflow")
        super().take(choice)
