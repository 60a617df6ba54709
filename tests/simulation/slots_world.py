"""The events of the slots' world: one process or two, queue, starters, workflows, janitor, operators and Glue."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from slotkeeper.slots.closed_executions import AFTER_FAILURE_SECONDS
from slotkeeper.slots.process import TURN_SECONDS
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.targets import is_state_machine
from tests.simulation import slots_actors as code
from tests.simulation.aws import glue, sqs, stepfunctions
from tests.simulation.frozen import Moment, Record, freeze
from tests.simulation.slots_properties import SlotsProperties
from tests.simulation.slots_state import (
    JOB,
    LAG,
    LATER,
    NO_PROCESS,
    PERIOD,
    PROCESS,
    STEP,
    Plan,
    StatusEvent,
    arguments_of,
    code_of,
    id_of,
    name_of,
    request_of,
    take_overs,
)
from tests.simulation.transcript import Answer, Question, Raised
from tests.simulation.workflow import REQUESTS, START, workflow
from tests.simulation.worlds import (
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

# The errors of a poll of a live run: its task times out, or Glue refuses GetJobRun.
POLL_ERRORS = ("States.Timeout", "ThrottlingException", "InvalidInputException")
ENDS = ("end_run", "end_child")  # of work
OUTAGES = ("glue", "sqs", "events")
OUTAGE_SECONDS = 900  # longer than all retries of a workflow step
_AT_THE_START = freeze({"state": START, "variables": {}})
EVENT_RETENTION = 900  # seconds: StatusEventQueue's, as in template.yaml


class Notes(NamedTuple):
    """The world's notes on an actor.

    Attributes:
        message: the receipt handle of a starter's message.
        state: the last state of a workflow, the status event of its function, or the operator's limit.
        ahead: seconds by which the clock is ahead.
    """

    message: str = ""
    state: Any = None
    ahead: float = 0.0


class SlotsWorld(SlotsProperties):
    """The world of the slots; see World."""

    # Choices -------------------------------------------------------------------------------------------------------

    def steps(self) -> list[Choice]:
        # A call whose sender gave up arrives within LAG.
        overdue = [n for n, (sent, *_) in enumerate(self.in_transit) if self.now >= sent + LAG]
        if overdue:
            return [Choice("land", str(overdue[0]))]
        choices: list[Choice] = []
        for name, actor in self.actors.items():
            question = actor.question
            if question.service == "sns":  # no actor depends on a notice, so no other order is tried
                return [Choice("call", name)]
            if question.service != "actor":
                choices.append(Choice("call", name))
            elif self._may_wake_up(name, actor, question):
                choices.append(Choice("wake_up", name))
        if self._free_starter():
            choices += [Choice("receive", message["id"]) for message in self._receivable()]
        choices += self.ends_of_work()
        due = self._due_events() if self.plan.janitor_runs or not self.timeless else []
        if due and "status event" not in self.actors:
            choices.append(Choice("deliver_event", due[0]))
        choices += self._ends_of_turns()
        choices += [Choice("land", str(n)) for n in range(len(self.in_transit))]
        choices += self._external_choices()
        if "scheduled run" not in self.actors:
            if self.timeless and choices and all(choice.kind in ENDS for choice in choices) and self._dead():
                choices.append(Choice("run_janitor", "later"))  # a run may outlive its workflow by hours
            if (self.janitor_runs < self.plan.janitor_runs and choices) if self.timeless else self.now >= self.next_run:
                choices.append(Choice("run_janitor", "now"))
        return choices

    def ends_of_work(self) -> list[Choice]:
        """The ends of Glue runs."""
        return [Choice("end_run", run["id"], self._ends_as(run)) for run in self._alive() if self._may_end(run)]

    def _ends_of_turns(self) -> list[Choice]:
        """In a timeless world, a message that a wake makes visible after a turn comes back at any time."""
        if not self.timeless:
            return []
        woken = (message for message in self._in_flight() if message["visible_at"] <= self.now + TURN_SECONDS)
        return [Choice("expire", message["id"]) for message in woken]

    def due_times(self) -> list[float]:
        """The moments at which something is due."""
        waits = [actor.asleep_until for actor in self.actors.values() if actor.asleep_until]
        waits += [message["visible_at"] for message in self._in_flight()]
        waits += [self._ends_at(run) for run in self._alive()]
        waits += [sent + LAG for sent, *_ in self.in_transit]
        waits += [holder.removable_from for holder in self._holders().values() if holder.is_lease]
        return waits + [event.due for event in self.status_events if event.due > self.now]

    def _external_choices(self) -> list[Choice]:
        """The commands of operators, and runs of other users of the job."""
        choices: list[Choice] = []
        if self.others and any(name.startswith("workflow ") for name in self.actors):
            choices.append(Choice("another_run"))
        if self.operations and "operator" not in self.actors and self._item() is not NO_PROCESS:
            choices.append(Choice("operate"))
        if self.replacements and "replace" not in self.actors and self._may_be_removed():
            choices.append(Choice("replace"))
        if self.cancels and "cancel" not in self.actors:
            choices.append(Choice("cancel", self.cancels[0]))
        if self.leases_begun < len(self.plan.leases):
            choices.append(Choice("lease", str(self.leases_begun)))
        if self.removals:
            choices += [Choice("remove", message["id"]) for message in self._in_flight()]
        return choices

    def time_steps(self) -> list[Choice]:
        """The events that need the clock, when no actor can act."""
        overlooked = self.overlooked()
        if overlooked and not self.needs_janitor:
            raise Violation("S6", overlooked)
        if self.noting and self.noting == self.unreported() and not self.needs_janitor:
            raise Violation("S3b", f"a janitor run has left {self.noting}, whose message is gone, unreported")
        if self._to_release():
            return [Choice("release", name) for name in self._to_release()]
        if not self.timeless:
            return [Choice("pass_time")] if self._is_unfinished() or self.unreported() else []
        if self.status_events:
            return [Choice("deliver_event", self._due_events()[0])]
        if self._holders() or self._unsettled() or overlooked or self.unreported():
            return [Choice("run_janitor", "later")]
        return [Choice("expire", message["id"]) for message in self._in_flight() if not self.is_blocked(message)]

    def slow_steps(self) -> list[Choice]:
        return [] if self.timeless else [Choice("pass_time", how="while actors work")]

    def possible_faults(self) -> list[Choice]:
        choices: list[Choice] = []
        for name, actor in self.actors.items():
            question = actor.question
            kind, _, execution = name.partition(" ")
            kinds: tuple[str, ...] = ()
            if question.service != "actor":
                kinds = (NOT_SENT, THROTTLE, LOSE)
                kinds += () if kind == "workflow" else (TWICE, DIE, DIE_AFTER)
                # A timeless world has no late arrivals: they need a clock.
                kinds += () if self.timeless else (LATE,)
                kinds += (STALE,) if self._can_be_stale(question) else ()
            elif question.operation == "wait_for_end":
                choices += [Choice("fail_task", name, how, True) for how in POLL_ERRORS]
            choices += [Choice("call", name, how, True) for how in kinds]
            if kind == "workflow":
                choices += [Choice("abort", execution, how, True) for how in ("ABORTED", "TIMED_OUT")]
        choices += [Choice("end_run", run["id"], "FAILED", True) for run in self._alive() if run["state"] != "STOPPING"]
        choices += [Choice("lose_event", event.execution, "", True) for event in self.status_events]
        if not self.timeless and self.now >= self.outage_until:
            choices += [Choice("outage", service, "", True) for service in OUTAGES]
        if self.timeless:  # as if an actor were frozen while time passes
            choices += [Choice("expire", message["id"], "", True) for message in self._in_flight()]
            if self.plan.janitor_ahead and self.actors and "scheduled run" not in self.actors:
                choices.append(Choice("run_janitor", "later", is_fault=True))
        for name, execution in self.services["stepfunctions"].fields.items():
            if execution["status"] not in (*stepfunctions.OPEN, "SUCCEEDED"):
                choices.append(Choice("redrive", name, "", True))
        choices += [Choice("deny", kind, "", True) for kind in self.plan.denials if kind not in self.denied]
        return [choice for choice in choices if self._is_aimed_at(choice)] if self.plan.aim else choices

    def _is_aimed_at(self, choice: Choice) -> bool:
        if self.plan.aim == "deaths":
            of_janitor = choice.subject in ("scheduled run", "status event")
            return choice.kind in ("abort", "lose_event") or (of_janitor and bool(self._dead() or self._unsettled()))
        if self.plan.aim == "denials":
            return choice.kind in ("abort", "deny")
        if choice.kind == "abort":
            return choice.subject not in self._holders()
        question = self.actors[choice.subject].question if choice.kind == "call" else None
        return question is not None and question.operation == "change_message_visibility"

    # Events --------------------------------------------------------------------------------------------------------

    def receive(self, message_id: str, _: str) -> None:
        """The event source mapping passes the head of a process to an invocation."""
        message = next(each for each in self._receivable() if each["id"] == message_id)
        # SQS would deliver it before a later one of its group that is in flight. With batch size 1 no later one is.
        assert all(other["group"] != message["group"] for other in self._in_flight()), message_id
        queue, _answer = sqs.receive(self._queue(), message, self.now)
        self._put_queue(queue)
        taken = next(m for m in queue["messages"] if m["id"] == message["id"])
        starter = self._free_starter()
        self.log(starter, f"receives {taken['id']} {taken['body']}, receive {taken['receives']}")
        arguments = (
            taken["body"],
            taken["group"],
            taken["handle"],
            taken["sequence"],
            taken["receives"],
            taken["sent_at"],
            self.processes if self.plan.starters_read_first else (),
        )
        notes = Notes(message=taken["handle"], ahead=self.ahead_of(starter))
        self.begin(starter, code.starter.begin(taken["id"], *arguments), notes)

    def expire(self, message_id: str, _: str) -> None:
        """A message's visibility timeout ends."""
        self.log("queue", f"{message_id} is visible again: its visibility timeout has ended")
        self.services["sqs"] = sqs.expire(self.services["sqs"], REQUESTS, message_id, self.now)

    def end_run(self, run_id: str, state: str) -> None:
        """Glue ends a run."""
        self.log("glue", f"{run_id} ends as {state}")
        self.services["glue"] = glue.end(self.services["glue"], JOB, run_id, state, self.now, self.plan.lag)

    def another_run(self, _: str, __: str) -> None:
        """Another user runs the same job. The run has ended as soon as it is listed."""
        self.others -= 1
        self._keep_older("glue")
        self.log("other user", "runs the job")
        self.services["glue"] = glue.another(self.services["glue"], JOB, freeze(arguments_of("*")), self.now)

    def outage(self, service: str, _: str) -> None:
        """A service refuses all calls for a while."""
        self.down, self.outage_until = service, self.now + OUTAGE_SECONDS
        self.log(service, f"is down for {OUTAGE_SECONDS} s")

    def deny(self, kind: str, _: str) -> None:
        """A role or a key denies these calls from now on."""
        self.log("iam", f"denies {kind} from now on")
        self.denied |= {kind}

    def release(self, execution: str, _: str) -> None:
        """An operator releases the slot of a holder whose work may not be read, after it has ended.

        Without a fault the workflow knows the result of each Glue start, so that nothing is left to an operator.
        """
        if not self.faults and not is_state_machine(self.target_of(execution.rpartition("-")[0])):
            raise Violation("S4", f"{execution} keeps its slot until an operator releases it")
        self.log("operator", f"releases {execution}")
        self.disturbed_at = self.now
        node = code.releaser.begin(execution.rpartition("-")[0], execution)
        self.begin("release", node, Notes())

    def lease(self, number: str, _: str) -> None:
        """A caller asks for a lease."""
        self.leases_begun += 1
        self.log(f"caller {number}", "asks for a lease")
        block = self.plan.blocks[int(number) % len(self.plan.blocks)]
        node = code.caller.begin(int(number), block, self.plan.lease_wait)
        self.begin(f"caller {number}", node, Notes(ahead=self.ahead_of(f"caller {number}")))

    def call(self, name: str, how: str) -> None:
        ahead = self.actors[name].notes.ahead
        self._acting, self._shown = (name, ahead), self.clocks.get(name, 0.0)
        self.latest_clock = max(self.latest_clock, self.now + ahead)
        is_down = self.now < self.outage_until and self.service_of(self.actors[name].question) == self.down
        if is_down:
            self.disturbed_at = self.now
        super().call(name, THROTTLE if is_down and how in ("", TWICE, STALE) else how)

    def deliver_event(self, execution: str, _: str) -> None:
        """A status event invokes its function."""
        event = next(event for event in self.status_events if event.execution == execution)
        self.status_events = tuple(each for each in self.status_events if each != event)
        self.log("status event", f"of {execution} arrives")
        node = code.closed_execution.begin(execution, event.redrives, *self._janitor_times())
        self.begin("status event", node, Notes(state=event))

    def _requeue_event(self, actor: Actor, seconds: int) -> None:
        """The event is received again later, unless the queue's retention has ended."""
        event = actor.notes.state
        if self.timeless or self.now - event.sent <= EVENT_RETENTION:
            self.status_events = (*self.status_events, event._replace(due=0 if self.timeless else self.now + seconds))

    def lose_event(self, execution: str, _: str) -> None:
        """A status event is lost: delivery is best effort."""
        self.log("eventbridge", f"the status event of {execution} is lost")
        self.status_events = tuple(event for event in self.status_events if event.execution != execution)

    def run_janitor(self, when: str, _: str) -> None:
        """A scheduled janitor run begins."""
        self.janitor_runs += self.timeless and when == "now"
        self.next_run = self.now + PERIOD
        self.needs_janitor &= bool(self.actors)
        self.noting = "" if self.actors or not self.timeless else self.unreported()
        self.log("scheduled run", f"begins ({when})" if when else "begins")
        node = code.janitor_run.begin(*self._janitor_times(), *self.memories[:1])
        self.begin("scheduled run", node, Notes(ahead=LATER if when == "later" else 0))

    def operate(self, _: str, __: str) -> None:
        """The operator changes the limit, pauses or resumes."""
        limit, *rest = self.operations
        self.operations = tuple(rest)
        self.newest = (limit, self.newest[1]) if limit > 0 else (self.newest[0], limit)
        self.log("operator", "pauses" if limit == 0 else "resumes" if limit < 0 else f"sets the limit to {limit}")
        self.begin("operator", code.operator.begin(PROCESS, limit), Notes(state=limit))

    def remove(self, message_id: str, _: str) -> None:
        """A message leaves the queue although nothing has handled it."""
        self.removals -= 1
        self.disturbed_at = self.now
        queue = self._queue()
        (gone,) = (message for message in queue["messages"] if message["id"] == message_id)
        self.log("queue", f"{message_id} is removed")
        self.removed |= {request_of(gone["body"])}
        self._put_queue(queue.with_fields(messages=tuple(each for each in queue["messages"] if each is not gone)))

    def cancel(self, request_id: str, _: str) -> None:
        """The operator cancels a request, which may have left the queue."""
        self.cancels = self.cancels[1:]
        self.log("operator", f"cancels {request_id}")
        name = name_of(request_id, self.plan.callers)
        self.begin("cancel", code.canceller.begin(name), Notes())

    def replace(self, _: str, __: str) -> None:
        """The operator removes the process and adds it again."""
        self.replacements -= 1
        self.log("operator", "removes the process and adds it again")
        node = code.replacer.begin(PROCESS, self.plan.limit, self.target_of(PROCESS), self.plan.rate)
        self.begin("replace", node, Notes())

    def abort(self, execution: str, status: str) -> None:
        """An execution is stopped or times out, and makes no further call."""
        self.log("stepfunctions", f"{execution} ends as {status}")
        name = f"workflow {execution}"
        state = self.actors[name].notes.state
        self.actors = {other: actor for other, actor in self.actors.items() if other != name}
        self._close(execution, status, state=state)

    def fail_task(self, name: str, error: str) -> None:
        """A task fails because it times out or its poll is refused. Its Glue run continues."""
        self.log(name, f"its task fails with {error}")
        actor = self.actors[name]
        self._advance(name, actor.after(Answer(error=error)))

    def redrive(self, execution: str, _: str) -> None:
        """An operator redrives a failed execution, which continues at its last state."""
        before = self.services["stepfunctions"][execution]
        arn = freeze({"executionArn": stepfunctions.execution_arn(stepfunctions.WORKFLOW, execution)})
        self.perform(Question("stepfunctions", "redrive_execution", arn))
        self.log("operator", f"redrives {execution}")
        state = before.get("state") or _AT_THE_START
        self._run(execution, state)

    def pass_time(self, _: str, how: str) -> None:
        """The clock moves to the next moment at which something is due."""
        self._note_to_wakes()
        self.now = max(self.now + 1, min([*self.due_times(), self.next_run]))
        self.now += -self.now % STEP
        if how:
            self.disturbed_at = self.now
        self._check_in_time()

    # Answers to actors ---------------------------------------------------------------------------------------------

    def own_answer(self, name: str, actor: Actor, question: Question) -> Answer | None:
        notes = actor.notes
        match question.operation:
            case "enter":
                entered = Notes(notes.message, question.parameters, notes.ahead)
                self.actors[name] = Actor(actor.node, actor.asleep_until, entered)
                return Answer()
            case "clock":
                self.clocks = self.clocks | {name: self.now + notes.ahead}
                return Answer(self.now + notes.ahead)
            case "put_events" | "put_metric_data":
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
                execution = self.services["stepfunctions"][name.partition(" ")[2]]
                return Answer(Moment(execution["started"]))
            case "wait_for_end" if "reads" in self.denied:
                return DENIED
            case "wait_for_end" if "executionArn" in question.parameters:
                child = stepfunctions.described(self.services["children"], question.parameters["executionArn"])
                return None if child["status"] in stepfunctions.OPEN else Answer(child)
            case "wait_for_end":
                runs = self.services["glue"][JOB]["runs"]
                run = next(run for run in runs if run["id"] == question.parameters["RunId"])
                if run["state"] in glue.ALIVE:
                    return None
                return Answer(freeze({"Id": run["id"], "JobName": JOB, "JobRunState": run["state"]}))
        raise AssertionError(f"no service answers {question}")

    def finished(self, name: str, actor: Actor) -> None:
        assert not isinstance(actor.node.result, Raised) or name == "status event", f"{name} raised {actor.node.result}"
        if name.startswith("workflow "):
            status, error, cause = actor.node.result
            self._close(name.partition(" ")[2], status, error, cause, actor.notes.state)
        elif name == "status event" and isinstance(actor.node.result, Raised | int):
            raised = isinstance(actor.node.result, Raised)
            self._requeue_event(actor, AFTER_FAILURE_SECONDS if raised else actor.node.result)
        elif name == "scheduled run":
            memory, counts = actor.node.result
            self.memories = (*self.memories[1:], memory) if self.memories else ()
            self.unreadable = dict(counts).get("HoldersUnreadable", 0)
        elif name == "operator":
            self._repeat_change(actor.notes.state)
        elif actor.node.result == "Deferred":
            self.deferred = {**self.deferred, actor.notes.message: self.now}

    def died(self, name: str, actor: Actor) -> None:
        assert not name.startswith("workflow "), "a workflow does not die"
        self.blocks = {other: block for other, block in self.blocks.items() if other != name}
        if name == "scheduled run" and self.memories:
            self.memories = (*self.memories[1:], code.NEW)
        if name == "status event":
            self._requeue_event(actor, AFTER_FAILURE_SECONDS)
        if name == "operator":
            self._repeat_change(actor.notes.state)

    def land(self, number: str, how: str) -> None:
        """A call arrives late. The operator who sees an older setting in `status` repeats the newest command."""
        sender = self.in_transit[int(number)][1]
        self._acting, self._shown = (sender, self.ahead_of(sender)), 0.0
        super().land(number, how)
        for newest in self.newest:
            if newest is not None:
                self._repeat_change(newest)

    def _repeat_change(self, limit: int) -> None:
        """The operator repeats a command that has changed nothing. A lost wake is left to the janitor."""
        process = self._process(PROCESS)
        if process and (process.slot_limit != limit if limit > 0 else process.paused != (limit == 0)):
            self.operations = (limit, *self.operations)

    def perform(self, question: Question) -> Answer:
        if self.is_denied(question):
            if question.operation in ("start_job_run", "start_execution") and self.is_without_permission(question):
                raise Violation("S10", f"work of {self.plan.target} begins, which no role may touch")
            return DENIED
        if question.service in ("sns", "events", "cloudwatch"):
            return Answer(freeze({}))
        if question.service == "stepfunctions":
            question = Question(self.service_of(question), question.operation, question.parameters)
        before = self.services["stepfunctions"]
        if question.operation in ("start_job_run", "start_execution"):
            self._keep_older(question.service)
        if question.operation == "start_job_run":
            self._check_not_again(question.parameters["Arguments"]["--slotkeeper-execution"])
        answer = super().perform(question)
        if ":expired" in (question.parameters.get("ExpressionAttributeValues") or ()):
            take_overs["refused" if answer.error else "done"] += 1
        if question.operation == "start_execution" and self.services["stepfunctions"] is not before:
            request = json.loads(question.parameters["input"])
            self._check_size(question.parameters["name"], request)
            if request["attempt"] == 1:
                self._check_order(question.parameters["input"])
            self._run(question.parameters["name"], _AT_THE_START)
        return answer

    def _run(self, execution: str, state: Record) -> None:
        known = self.services["stepfunctions"][execution]
        node = workflow.begin(execution, known["input"], known["redrives"], state["state"], state["variables"])
        self.begin(f"workflow {execution}", node, Notes(state=state))

    def _close(self, execution: str, status: str, error: str = "", cause: str = "", state: Any = None) -> None:
        if error == "RequestReturned" and self.timeless and not self.faults:
            raise Violation("S5", f"{execution} returns its request to the end of the queue without a fault")
        if status == "SUCCEEDED":
            self.check_success(execution)
        self._keep_older("stepfunctions")
        closed = stepfunctions.close(self.services["stepfunctions"], execution, status, self.now, error, cause)
        self.services["stepfunctions"] = closed.with_fields(**{execution: closed[execution].with_fields(state=state)})
        if status != "SUCCEEDED" and not self.plan.events_lost:
            self.faults_at_close = self.faults_at_close | {execution: self.faults}
            redrives = closed[execution]["redrives"]
            self.status_events = (
                *self.status_events,
                StatusEvent(execution, redrives, self.now, 0 if self.timeless else self.now),
            )


def _with_weight(request: str, weight: str) -> str:
    """A plan's request with this weight. The second process has limit 1, so its requests keep theirs."""
    if request.isupper():
        return f"{request.removesuffix('*')}1{'*' * request.endswith('*')}"
    return f"{request.removesuffix('*')}{weight}{'*' * request.endswith('*')}"


def random_world(random: Random, **given: Any) -> SlotsWorld:
    """A random world for random schedules. `given`: fields of its plan that are not random."""
    return SlotsWorld(replace(random_plan(random), **given))


def random_world_with_rate(random: Random) -> SlotsWorld:
    """A random world whose processes have a rate, and whose starters' clocks differ."""
    count, seconds = random.choice(((1, 60), (3, 60), (1, 30), (6, 60)))
    rate = Rate(count, seconds, random.randint(1, min(2, count)))
    return random_world(random, rate=rate, ahead=random.choice(((0.0, 0.0), (0.0, 4.5), (-4.25, 0.0))))


# The part of random worlds in which blocks overrun their leases, so that other callers take these over.
_OVERRUNS = 0.25


def random_plan(random: Random) -> Plan:
    """The plan of a random world."""
    requests = tuple("abcd"[: random.choice((1, 1, 2, 2, 3))])
    if random.random() < 0.2:
        requests = (*requests, requests[0] + random.choice(("", "*")))
    if random.random() < 0.25:
        place = random.randrange(len(requests) + 1)
        requests = (*requests[:place], *random.choice(("A", "A", "AB")), *requests[place:])
    limit = random.choice((1, 1, 2))
    changes: tuple[int, ...] = random.choice(((), (), (), (1,), (2, 1), (0, -1), (0, 1, -1)))
    if random.random() < 0.6:
        requests = tuple(random.choice(("", "+", "-")) + request for request in requests)
    default_weight = 1
    if random.random() < 0.4:  # the last limit is as large as any weight, so that every request can start
        requests = tuple(_with_weight(request, random.choice(("", "1", "2", "3"))) for request in requests)
        limit = random.choice((2, 3, 3))
        changes = random.choice(((), (), (1, 3), (2, 3), (0, 3, -1), (0, -1, 3)))
        changes = changes if changes or limit == 3 else (3,)
        default_weight = random.choice((1, 1, 2))
    leases: tuple[float, ...] = random.choice(((), (), (0,), (4, 0), (0, 0, 4)))
    blocks: tuple[int, ...] = random.choice(((0,), (30,), (60, 0), (150, 30)))
    lease_wait = random.choice((0, 30, 200))
    if random.random() < _OVERRUNS:
        # A registered request keeps leases out, so most of these worlds have one of the other process.
        requests, limit, changes, default_weight = (random.choice(("A", "A", "a")),), 1, (), 1
        leases = random.choice(((0, 0), (4, 0), (0, 0, 4), (0, 4, 4)))
        blocks, lease_wait = random.choice(((-90,), (-150, -70), (-90, -70, 0))), 200
    replacements = random.choice((0, 0, 1)) if 0 in changes and limit != 2 else 0  # it is added again with `limit`
    return Plan(
        requests,
        limit,
        changes,
        job_limit=random.choice((limit, 100)),
        stop_seconds=random.choice((0, 20, 100)),
        page=random.choice((1, 2, 200)),
        others=random.choice((0, 0, 4)),
        fails=random.choice((0, 0, 0, 1, 2)),
        lag=random.choice((0, 0, 10)),
        lax=random.choice((False, True)),
        starters_read_first=random.choice((False, True)),
        run_seconds=random.choice(((60,), (60, 120), (60, 300))),
        cancels=random.choice(((), (), (), (id_of(requests[0]),), (id_of(requests[-1]),))),
        removals=random.choice((0, 0, 0, 1)),
        default_weight=default_weight,
        leases=leases,
        blocks=blocks,
        lease_wait=lease_wait,
        replacements=replacements,
        starters=2 - replacements,
        containers=random.choice((0, 1, 2)),
        events_lost=random.random() < 0.3,
        aim=random.choice(("", "", "deaths", "wakes")),
        first_run=random.randrange(STEP, PERIOD + 1, STEP),
    )
