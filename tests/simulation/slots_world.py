"""One process or two, queue, starters, workflows, janitor and Glue: what can happen next, and what then."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from slotkeeper.slots.closed_executions import AFTER_FAILURE_SECONDS
from slotkeeper.slots.request import execution_name
from tests.simulation import slots_actors as code
from tests.simulation.aws import glue, sqs, stepfunctions
from tests.simulation.frozen import Moment, Record, freeze
from tests.simulation.slots_state import (
    JOB,
    LAG,
    LATER,
    NO_PROCESS,
    PERIOD,
    PROCESS,
    STEP,
    News,
    Plan,
    SlotsState,
    arguments_of,
    process_of,
)
from tests.simulation.transcript import Answer, Question, Raised
from tests.simulation.workflow import REQUESTS, SLOTS, START, workflow
from tests.simulation.worlds import (
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

# What a poll of a live run may fail with: its task's time is over, or Glue refuses GetJobRun.
POLL_ERRORS = ("States.Timeout", "ThrottlingException", "InvalidInputException")
OUTAGES = ("glue", "sqs", "events")
OUTAGE_SECONDS = 900  # longer than any step of the workflow is tried again
_AT_THE_START = freeze({"state": START, "variables": {}})
KEPT = 900  # seconds that StatusEventQueue keeps an event, as in template.yaml


class Notes(NamedTuple):
    """What the world remembers of an actor: a starter's handle, a workflow's last state, an event, a clock's lead."""

    message: str = ""
    state: Any = None
    ahead: float = 0.0


class SlotsWorld(SlotsState):
    """What can happen to it; see World."""

    # Choices -------------------------------------------------------------------------------------------------------

    def steps(self) -> list[Choice]:
        # A request that nobody waits for any more lands within seconds, or never.
        overdue = [n for n, (sent, _) in enumerate(self.on_their_way) if self.now >= sent + LAG]
        if overdue:
            return [Choice("land", str(overdue[0]))]
        choices: list[Choice] = []
        for name, actor in self.actors.items():
            question = actor.node.question
            assert question is not None
            if question.service == "sns":  # nobody sees when a notice was sent: no other order need be tried
                return [Choice("call", name)]
            if question.service != "actor":
                choices.append(Choice("call", name))
            elif self._may_wake_up(name, actor, question):
                choices.append(Choice("wake_up", name))
        if self._free_starter():
            choices += [Choice("receive", message["id"]) for message in self._receivable()]
        choices += [Choice("end_run", run["id"], self._ends_as(run)) for run in self._alive() if self._may_end(run)]
        if self._due_news() and "visit" not in self.actors and not (self.timeless and not self.plan.rounds):
            choices.append(Choice("visit", self._due_news()[0]))
        choices += [Choice("land", str(n)) for n in range(len(self.on_their_way))]
        choices += self._of_others()
        if "round" not in self.actors:
            if self.timeless and choices and all(choice.kind == "end_run" for choice in choices) and self._dead():
                choices.append(Choice("round", "later"))  # a run may outlive its workflow by hours
            if (self.rounds < self.plan.rounds and choices) if self.timeless else self.now >= self.next_round:
                choices.append(Choice("round", "now"))
        return choices

    def _of_others(self) -> list[Choice]:
        """What operators do, and other users of the job."""
        choices: list[Choice] = []
        if self.others and any(name.startswith("workflow ") for name in self.actors):
            choices.append(Choice("another_run"))
        if self.operations and self._item() is not NO_PROCESS:
            choices.append(Choice("operate"))
        if self.replacements and "replace" not in self.actors and self._may_be_removed():
            choices.append(Choice("replace"))
        if self.cancels and "cancel" not in self.actors:
            choices.append(Choice("cancel", self.cancels[0]))
        return choices

    def time_steps(self) -> list[Choice]:
        """What only time brings about, when nobody is at work."""
        self.check_quiet()
        if not self.timeless:
            return [Choice("pass_time")] if self._is_unfinished() else []
        if self.news:
            return [Choice("visit", self._due_news()[0])]
        if self._holders() or self._unsettled():
            return [Choice("round", "later")]
        return [Choice("expire", message["id"]) for message in self._in_flight()]

    def slowness(self) -> list[Choice]:
        return [] if self.timeless else [Choice("pass_time", how="beside code at work")]

    def mishaps(self) -> list[Choice]:
        choices: list[Choice] = []
        for name, actor in self.actors.items():
            question = actor.node.question
            assert question is not None
            kind, _, execution = name.partition(" ")
            hows: tuple[str, ...] = ()
            if question.service != "actor":
                hows = (NOT_SENT, THROTTLE, LOSE)
                hows += () if kind == "workflow" else (TWICE, DIE, DIE_AFTER)
                # Late is later than anybody waits for, or it is just a lost answer.
                hows += () if self.timeless else (LATE,)
                hows += (STALE,) if self._can_be_stale(question) else ()
            elif question.operation == "wait_for_end":
                choices += [Choice("give_up", name, how, True) for how in POLL_ERRORS]
            choices += [Choice("call", name, how, True) for how in hows]
            if kind == "workflow":
                choices += [Choice("abort", execution, how, True) for how in ("ABORTED", "TIMED_OUT")]
        choices += [Choice("end_run", run["id"], "FAILED", True) for run in self._alive() if run["state"] != "STOPPING"]
        choices += [Choice("lose_news", news.execution, "", True) for news in self.news]
        if not self.timeless and self.now >= self.outage_until:
            choices += [Choice("outage", service, "", True) for service in OUTAGES]
        if self.timeless:  # somebody stands still while time passes for the others
            choices += [Choice("expire", message["id"], "", True) for message in self._in_flight()]
            if self.plan.standing_still and self.actors and "round" not in self.actors:
                choices.append(Choice("round", "later", is_fault=True))
        for name, execution in self.services["stepfunctions"].fields.items():
            if execution["status"] not in (*stepfunctions.OPEN, "SUCCEEDED"):
                choices.append(Choice("redrive", name, "", True))
        return [choice for choice in choices if self._is_aimed_at(choice)] if self.plan.aim else choices

    def _is_aimed_at(self, choice: Choice) -> bool:
        if self.plan.aim == "deaths":
            is_about_the_dead = choice.who in ("round", "visit") and bool(self._dead() or self._unsettled())
            return choice.kind in ("abort", "lose_news") or is_about_the_dead
        if choice.kind == "abort":
            return choice.who not in self._holders()
        question = self.actors[choice.who].node.question if choice.kind == "call" else None
        return question is not None and question.operation == "change_message_visibility"

    # Events --------------------------------------------------------------------------------------------------------

    def receive(self, message_id: str, _: str) -> None:
        """The event source mapping hands the first message of a process to an invocation."""
        message = next(each for each in self._receivable() if each["id"] == message_id)
        queue, _answer = sqs.receive(self._queue(), message, self.now)
        self._put_queue(queue)
        taken = next(m for m in queue["messages"] if m["id"] == message["id"])
        who = self._free_starter()
        self.say(who, f"receives {taken['id']} {taken['body']} for the {taken['receives']}. time")
        arguments = (
            taken["body"],
            taken["group"],
            taken["handle"],
            taken["sequence"],
            taken["receives"],
            taken["sent_at"],
            self.processes if self.plan.looking else (),
        )
        self.begin(who, code.starter.begin(taken["id"], *arguments), Notes(message=taken["handle"]))

    def expire(self, message_id: str, _: str) -> None:
        """A message's visibility timeout is over."""
        self.say("queue", f"{message_id} is visible again: its time is over")
        self.services["sqs"] = sqs.expire(self.services["sqs"], REQUESTS, message_id, self.now)

    def end_run(self, run_id: str, state: str) -> None:
        """Glue ends a run."""
        self.say("glue", f"{run_id} ends as {state}")
        self.services["glue"] = glue.end(self.services["glue"], JOB, run_id, state, self.now, self.plan.lag)

    def another_run(self, _: str, __: str) -> None:
        """Somebody else runs the same job; it is over as soon as it is listed."""
        self.others -= 1
        self._keep_older("glue")
        self.say("somebody", "runs the job")
        self.services["glue"] = glue.another(
            self.services["glue"], JOB, freeze(arguments_of("*", self.plan.argument_bytes)), self.now
        )

    def outage(self, service: str, _: str) -> None:
        """A service refuses all calls for a while."""
        self.down, self.outage_until = service, self.now + OUTAGE_SECONDS
        self.say(service, f"is down for {OUTAGE_SECONDS} s")

    def call(self, name: str, how: str) -> None:
        question = self.actors[name].node.question
        is_down = self.now < self.outage_until and question is not None and question.service == self.down
        if is_down:
            self.disturbed_at = self.now
        super().call(name, THROTTLE if is_down and how in ("", TWICE, STALE) else how)

    def visit(self, execution: str, _: str) -> None:
        """A status event reaches its function."""
        news = next(news for news in self.news if news.execution == execution)
        self.news = tuple(each for each in self.news if each != news)
        self.say("visit", f"status event of {execution}")
        node = code.closed_execution.begin(execution, news.redrives, *self._patience())
        self.begin("visit", node, Notes(state=news))

    def _come_back(self, actor: Actor, seconds: int) -> None:
        """The event is received again later, unless it is too old for the queue."""
        news = actor.notes.state
        if self.timeless or self.now - news.sent <= KEPT:
            self.news = (*self.news, news._replace(due=0 if self.timeless else self.now + seconds))

    def lose_news(self, execution: str, _: str) -> None:
        """Delivery of status events is best effort."""
        self.say("eventbridge", f"the status event of {execution} is lost")
        self.news = tuple(news for news in self.news if news.execution != execution)

    def round(self, when: str, _: str) -> None:
        """A scheduled round of the janitor begins."""
        self.rounds += self.timeless and when == "now"
        self.next_round = self.now + PERIOD
        self.say("round", f"begins ({when})" if when else "begins")
        node = code.janitor_round.begin(*self._patience(), *self.memories[:1])
        self.begin("round", node, Notes(ahead=LATER if when == "later" else 0))

    def operate(self, _: str, __: str) -> None:
        """The operator changes the limit, pauses or resumes, and wakes who waits as `operations` does."""
        limit, *rest = self.operations
        self.operations = tuple(rest)
        item = self._item()
        if limit == 0:
            item = item.with_fields(paused=freeze({"BOOL": True}))
        elif limit < 0:
            item = item.without("paused")
        else:
            item = item.with_fields(slot_limit=freeze({"N": str(limit)}))
        self.say("operator", "pauses" if limit == 0 else "resumes" if limit < 0 else f"sets the limit to {limit}")
        tables = self.services["dynamodb"]
        self.services["dynamodb"] = tables.with_fields(**{SLOTS: tables[SLOTS].with_fields(**{PROCESS: item})})
        waiting = item.get("waiting")
        if waiting is not None and self._has_room():
            handle = waiting["M"]["receipt_handle"]["S"]
            wake = {"QueueUrl": REQUESTS, "ReceiptHandle": handle, "VisibilityTimeout": 0}
            self.perform(Question("sqs", "change_message_visibility", freeze(wake)))

    def cancel(self, request_id: str, _: str) -> None:
        """The operator cancels a request, queued or not any more."""
        self.cancels = self.cancels[1:]
        self.say("operator", f"cancels {request_id}")
        self.begin("cancel", code.canceller.begin(execution_name(process_of(request_id), request_id, 1)), Notes())

    def replace(self, _: str, __: str) -> None:
        """The operator removes the process, and adds it again."""
        self.replacements -= 1
        self.say("operator", "removes the process and adds it again")
        self.begin("replace", code.replacer.begin(PROCESS, self.plan.limit, JOB), Notes())

    def abort(self, execution: str, status: str) -> None:
        """Somebody stops an execution, or it times out: nothing more of it happens."""
        self.say("stepfunctions", f"{execution} ends as {status}")
        name = f"workflow {execution}"
        state = self.actors[name].notes.state
        self.actors = {other: actor for other, actor in self.actors.items() if other != name}
        self._close(execution, status, state=state)

    def give_up(self, name: str, error: str) -> None:
        """A task fails by itself: its time is over, or a poll was refused; what it asked for goes on."""
        self.say(name, f"its task fails with {error}")
        actor = self.actors[name]
        self._settle(name, actor._replace(node=actor.node.after(Answer(error=error))))

    def redrive(self, execution: str, _: str) -> None:
        """Somebody redrives an execution that failed: it goes on at its last state."""
        before = self.services["stepfunctions"][execution]
        arn = freeze({"executionArn": f"execution:{execution}"})
        self.perform(Question("stepfunctions", "redrive_execution", arn))
        self.say("operator", f"redrives {execution}")
        state = before.get("state") or _AT_THE_START
        self._run(execution, state)

    def pass_time(self, _: str, how: str) -> None:
        """The clock moves on."""
        self._note_room()
        waits = [actor.asleep_until for actor in self.actors.values() if actor.asleep_until]
        waits += [message["visible_at"] for message in self._in_flight()]
        waits += [self._ends_at(run) for run in self._alive()]
        waits += [sent + LAG for sent, _ in self.on_their_way]
        waits += [news.due for news in self.news if news.due > self.now]
        self.now = max(self.now + 1, min([*waits, self.next_round]))
        self.now += -self.now % STEP
        if how:
            self.disturbed_at = self.now
        self._check_in_time()

    # What actors ask of the world ----------------------------------------------------------------------------------

    def local(self, name: str, actor: Actor, question: Question) -> Answer | None:
        notes = actor.notes
        match question.operation:
            case "put_events" | "put_metric_data":
                return self.perform(question)
            case "clock":
                return Answer(self.now + notes.ahead)
            case "enter":
                self.actors[name] = self.actors.get(name, actor)._replace(
                    notes=notes._replace(state=question.parameters)
                )
                return Answer()
            case "started":
                execution = self.services["stepfunctions"][name.partition(" ")[2]]
                return Answer(Moment(execution["started"]))
            case "wait_for_end":
                runs = self.services["glue"][JOB]["runs"]
                run = next(run for run in runs if run["id"] == question.parameters["RunId"])
                if run["state"] in glue.ALIVE:
                    return None
                return Answer(freeze({"Id": run["id"], "JobName": JOB, "JobRunState": run["state"]}))
        raise AssertionError(f"nobody answers {question}")

    def finished(self, name: str, actor: Actor) -> None:
        assert not isinstance(actor.node.result, Raised) or name == "visit", f"{name} raised {actor.node.result}"
        if name.startswith("workflow "):
            status, error = actor.node.result
            self._close(name.partition(" ")[2], status, error, actor.notes.state)
        elif name == "visit" and isinstance(actor.node.result, Raised | int):
            raised = isinstance(actor.node.result, Raised)
            self._come_back(actor, AFTER_FAILURE_SECONDS if raised else actor.node.result)
        elif name == "round" and self.memories:
            self.memories = (*self.memories[1:], actor.node.result[0])
        elif actor.node.result == "Deferred":
            self.held_back = {**self.held_back, actor.notes.message: self.now}

    def died(self, name: str, actor: Actor) -> None:
        assert not name.startswith("workflow "), "Step Functions does not die"
        if name == "round" and self.memories:
            self.memories = (*self.memories[1:], code.NEW)
        if name == "visit":
            self._come_back(actor, AFTER_FAILURE_SECONDS)

    def perform(self, question: Question) -> Answer:
        if question.service in ("sns", "events", "cloudwatch"):
            return Answer(freeze({}))
        before = self.services["stepfunctions"]
        if question.operation in ("start_job_run", "start_execution"):
            self._keep_older(question.service)
        if question.operation == "start_job_run":
            self._check_not_again(question.parameters["Arguments"]["--slotkeeper-execution"])
        answer = super().perform(question)
        if question.operation == "start_execution" and self.services["stepfunctions"] is not before:
            request = json.loads(question.parameters["input"])
            if request["attempt"] == 1:
                self._check_order(question.parameters["input"])
            self._run(question.parameters["name"], _AT_THE_START)
        return answer

    def _run(self, execution: str, state: Record) -> None:
        known = self.services["stepfunctions"][execution]
        node = workflow.begin(execution, known["input"], known["redrives"], state["state"], state["variables"])
        self.begin(f"workflow {execution}", node, Notes(state=state))

    def _close(self, execution: str, status: str, error: str = "", state: Any = None) -> None:
        if error == "RequestReturned" and self.timeless and not self.faults:
            raise Violation("S5", f"{execution} goes to the tail of its queue, though nothing went wrong")
        self._keep_older("stepfunctions")
        closed = stepfunctions.close(self.services["stepfunctions"], execution, status, self.now, error)
        self.services["stepfunctions"] = closed.with_fields(**{execution: closed[execution].with_fields(state=state)})
        if status != "SUCCEEDED" and not self.plan.events_lost:
            self.faults_at_close = self.faults_at_close | {execution: self.faults}
            redrives = closed[execution]["redrives"]
            self.news = (*self.news, News(execution, redrives, self.now, 0 if self.timeless else self.now))


def drawn(random: Random, **given: Any) -> SlotsWorld:
    """A world of the kind that random schedules are made in, but for what is given of its plan."""
    requests = tuple("abcd"[: random.choice((1, 1, 2, 2, 3))])
    if random.random() < 0.2:
        requests = (*requests, requests[0] + random.choice(("", "*")))
    if random.random() < 0.25:
        place = random.randrange(len(requests) + 1)
        requests = (*requests[:place], *random.choice(("A", "A", "AB")), *requests[place:])
    limit = random.choice((1, 1, 2))
    changes: tuple[int, ...] = random.choice(((), (), (), (1,), (2, 1), (0, -1), (0, 1, -1)))
    replacements = random.choice((0, 0, 1)) if 0 in changes else 0
    plan = Plan(
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
        looking=random.choice((False, True)),
        run_seconds=random.choice(((60,), (60, 120), (60, 300))),
        cancels=random.choice(((), (), (), requests[:1], (requests[-1].removesuffix("*"),))),
        replacements=replacements,
        starters=2 - replacements,
        containers=random.choice((0, 1, 2)),
        events_lost=random.random() < 0.3,
        aim=random.choice(("", "", "deaths", "wakes")),
        first_run=random.randrange(STEP, PERIOD + 1, STEP),
    )
    return SlotsWorld(replace(plan, **given))
