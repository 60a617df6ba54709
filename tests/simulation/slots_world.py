"""One process, its queue, its starter, its workflows, the janitor and Glue; S1 to S6 and S1b as `check` sees them."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from slotkeeper.names import execution_name
from tests.simulation import slots_actors as code
from tests.simulation.aws import dynamodb, glue, sqs, stepfunctions
from tests.simulation.frozen import Moment, Record, freeze, record
from tests.simulation.transcript import Answer, Question, Raised
from tests.simulation.workflow import FAILED, REQUESTS, SLOTS, START, workflow
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
    World,
)

PROCESS, JOB = "p", "job"
STEP = 30  # seconds: the clock's grain, so that the same times come about again and again
GRACE, LOOK_GAP = 120, 30  # seconds: template.yaml's defaults
LATER = 2 * 86400.0  # seconds that a clock is ahead in a world without time, when everybody else stood still


@dataclass(frozen=True)
class Plan:
    """What happens in a world besides chance.

    Attributes:
        requests: the ids of what is sent, in this order; twice the same id is a request that is sent twice.
        limit: the process's, at first.
        limits: what an operator sets it to later, in this order; 0 pauses the process, -1 resumes it.
        starters: how many invocations there can be at once.
        rounds: how many rounds of the janitor may begin while others are at work, in a world without time, without that
            being a fault. With none, status events wait too until nobody is at work.
        standing_still: as a fault, the janitor's clock is ahead while others are at work: they have stood still for long.
        job_limit: how many runs Glue allows at once.
        period: seconds between two rounds of the janitor.
        lax: SQS hides a message although it is visible again.
    """

    requests: tuple[str, ...] = ("a", "b", "c")
    limit: int = 1
    limits: tuple[int, ...] = ()
    starters: int = 2
    rounds: int = 1
    lax: bool = False
    standing_still: bool = True
    job_limit: int = 100
    run_seconds: tuple[int, ...] = (60, 120, 1800)
    lag: int = 0
    period: int = 60


_messages: dict[Any, tuple[list[Record], list[Record]]] = {}
_alive: dict[Record, list[Record]] = {}


def forget() -> None:
    """Drops what is known, to bound memory."""
    _messages.clear()
    _alive.clear()


class Notes(NamedTuple):
    """What the world remembers of an actor: the message of a starter, the last state of a workflow, a clock's lead."""

    message: str = ""
    state: Any = None
    ahead: float = 0.0


class SlotsWorld(World):
    """See World."""

    def __init__(self, plan: Plan, *, timeless: bool = False) -> None:
        super().__init__(timeless=timeless)
        self.plan = plan
        item = {
            "process_name": {"S": PROCESS},
            "slot_limit": {"N": str(plan.limit)},
            "slots_in_use": {"N": "0"},
            "holders": {"M": {}},
            "job_name": {"S": JOB},
        }
        queues = {
            REQUESTS: sqs.queue(code.VISIBILITY, fifo=True, lax=plan.lax),
            code.DEAD_LETTERS: sqs.queue(fifo=True),
            FAILED: sqs.queue(),
        }
        self.services = {
            "dynamodb": dynamodb.tables(slots=[item], settled=[]),
            "sqs": record(queues),
            "stepfunctions": stepfunctions.executions(),
            "glue": glue.jobs(**{JOB: plan.job_limit}),
            "sns": (),
        }
        self.operations = plan.limits
        self.rounds = 0
        self.next_round = self.now + self.plan.period
        self.calm_since: float | None = None
        self.older_at: dict[str, float] = {}
        self.news: tuple[str, ...] = ()  # closed executions whose status event is under way
        self.redrives = 0
        self.order = 0  # sequence number of the last message that was admitted as it was sent
        self._checked: tuple[Any, ...] = ()
        self._held: dict[str, Record] = {}
        for request_id in plan.requests:
            body = json.dumps({"process": PROCESS, "request_id": request_id})
            self.perform(
                Question(
                    "sqs",
                    "send_message",
                    freeze({"QueueUrl": REQUESTS, "MessageBody": body, "MessageGroupId": PROCESS}),
                )
            )

    # Choices -------------------------------------------------------------------------------------------------------

    def steps(self) -> list[Choice]:
        # A request that nobody waits for any more lands within seconds, or never.
        overdue = [n for n, (sent, _) in enumerate(self.on_their_way) if self.now >= sent + STEP]
        if overdue:
            return [Choice("land", str(overdue[0]))]
        found: list[Choice] = []
        for name, actor in self.actors.items():
            question = actor.node.question
            assert question is not None
            if question.service == "sns":  # nobody sees when a notice was sent: no other order need be tried
                return [Choice("call", name)]
            if question.service != "actor":
                found.append(Choice("call", name))
            elif self._may_wake_up(name, actor, question):
                found.append(Choice("wake_up", name))
        if self._receivable() and self._free_starter():
            found.append(Choice("receive"))
        found += [Choice("end_run", run["id"], _ends_as(run)) for run in self._alive() if self._may_end(run)]
        if self.news and "visit" not in self.actors and not (self.timeless and not self.plan.rounds):
            found.append(Choice("visit", self.news[0]))
        found += [Choice("land", str(n)) for n in range(len(self.on_their_way))]
        if self.operations:
            found.append(Choice("operate"))
        if "round" not in self.actors:
            if self.timeless and found and all(choice.kind == "end_run" for choice in found) and self._dead():
                found.append(Choice("round", "later"))  # a run may outlive its workflow by hours
            if (self.rounds < self.plan.rounds and found) if self.timeless else self.now >= self.next_round:
                found.append(Choice("round", "now"))
        return found

    def time_steps(self) -> list[Choice]:
        """What only time brings about, when nobody is at work."""
        self.check_quiet()
        if not self.timeless:
            return [Choice("pass_time")] if self._is_unfinished() else []
        if self.news:
            return [Choice("visit", self.news[0])]
        if self._holders() or self._unsettled():
            return [Choice("round", "later")]
        return [Choice("expire", message["id"]) for message in self._in_flight()]

    def slowness(self) -> list[Choice]:
        return [] if self.timeless else [Choice("pass_time")]

    def calm(self) -> None:
        self.calm_since = self.now

    def mishaps(self) -> list[Choice]:
        found: list[Choice] = []
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
                found += [Choice("give_up", name, how, True) for how in ("States.Timeout", "ThrottlingException")]
            found += [Choice("call", name, how, True) for how in hows]
            if kind == "workflow":
                found += [Choice("abort", execution, how, True) for how in ("ABORTED", "TIMED_OUT")]
        found += [Choice("end_run", run["id"], "FAILED", True) for run in self._alive() if run["state"] != "STOPPING"]
        found += [Choice("lose_news", name, "", True) for name in self.news]
        if self.timeless:  # somebody stands still while time passes for the others
            found += [Choice("expire", message["id"], "", True) for message in self._in_flight()]
            if self.plan.standing_still and self.actors and "round" not in self.actors:
                found.append(Choice("round", "later", is_fault=True))
        for name, execution in self.services["stepfunctions"].fields.items():
            if execution["status"] not in (*stepfunctions.OPEN, "SUCCEEDED"):
                found.append(Choice("redrive", name, "", True))
        return found

    # Events --------------------------------------------------------------------------------------------------------

    def receive(self, _: str, __: str) -> None:
        """The event source mapping hands the head of the queue to an invocation."""
        message = self._receivable()[0]
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
        )
        self.begin(who, code.starter.begin(taken["id"], *arguments), Notes(message=taken["id"]))

    def expire(self, message_id: str, _: str) -> None:
        """A message's visibility timeout is over."""
        self.say("queue", f"{message_id} is visible again: its time is over")
        self.services["sqs"] = sqs.expire(self.services["sqs"], REQUESTS, message_id, self.now)

    def end_run(self, run_id: str, state: str) -> None:
        """Glue ends a run."""
        self.say("glue", f"{run_id} ends as {state}")
        self.services["glue"] = glue.end(self.services["glue"], JOB, run_id, state, self.now, self.plan.lag)

    def visit(self, execution: str, _: str) -> None:
        """A status event reaches the janitor."""
        self.news = tuple(name for name in self.news if name != execution)
        self.say("visit", f"status event of {execution}")
        self.begin("visit", code.janitor_visit.begin(execution, *self._patience()), Notes(ahead=0))

    def lose_news(self, execution: str, _: str) -> None:
        """Delivery of status events is best effort."""
        self.say("eventbridge", f"the status event of {execution} is lost")
        self.news = tuple(name for name in self.news if name != execution)

    def round(self, when: str, _: str) -> None:
        """A scheduled round of the janitor begins."""
        self.rounds += self.timeless and when == "now"
        self.next_round = self.now + self.plan.period
        self.say("round", f"begins ({when})" if when else "begins")
        self.begin("round", code.janitor_round.begin(*self._patience()), Notes(ahead=LATER if when == "later" else 0))

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

    def abort(self, execution: str, status: str) -> None:
        """Somebody stops an execution, or it times out: nothing more of it happens."""
        self.say("stepfunctions", f"{execution} ends as {status}")
        self.actors = {name: actor for name, actor in self.actors.items() if name != f"workflow {execution}"}
        self._close(execution, status)

    def give_up(self, name: str, error: str) -> None:
        """A task of the workflow fails by itself: its time is over, or a poll was refused. What it asked for goes on."""
        self.say(name, f"its task fails with {error}")
        actor = self.actors[name]
        self._settle(name, actor._replace(node=actor.node.after(Answer(error=error))))

    def redrive(self, execution: str, _: str) -> None:
        """Somebody redrives an execution that failed: it goes on at its last state."""
        before = self.services["stepfunctions"][execution]
        arn = freeze({"executionArn": f"execution:{execution}"})
        self.perform(Question("stepfunctions", "redrive_execution", arn))
        self.say("operator", f"redrives {execution}")
        self.redrives += 1
        state = before.get("state") or freeze({"state": START, "input": json.loads(before["input"])})
        self._run(execution, state)

    def pass_time(self, _: str, __: str) -> None:
        """The clock moves on."""
        waits = [actor.asleep_until for actor in self.actors.values() if actor.asleep_until]
        waits += [message["visible_at"] for message in self._in_flight()]
        waits += [self._ends_at(run) for run in self._alive()]
        waits += [sent + STEP for sent, _ in self.on_their_way]
        self.now = max(self.now + 1, min([*waits, self.next_round]))
        self.now += -self.now % STEP
        self._check_freed()

    # What actors ask of the world ----------------------------------------------------------------------------------

    def local(self, name: str, actor: Actor, question: Question) -> Answer | None:
        notes = actor.notes
        match question.operation:
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

    def died(self, name: str, actor: Actor) -> None:
        assert not name.startswith("workflow "), "Step Functions does not die"

    def perform(self, question: Question) -> Answer:
        if question.service == "sns":
            return Answer(freeze({"MessageId": "published"}))
        before = self.services["stepfunctions"]
        if question.operation in ("start_job_run", "start_execution"):
            self._keep_older(question.service)
        answer = super().perform(question)
        if question.operation == "start_execution" and self.services["stepfunctions"] is not before:
            request = json.loads(question.parameters["input"])
            if request["attempt"] == 1:
                self._check_order(request["request_id"])
            self._run(question.parameters["name"], freeze({"state": START, "input": request}))
        return answer

    def _run(self, execution: str, state: Record) -> None:
        known = self.services["stepfunctions"][execution]
        node = workflow.begin(execution, known["input"], known["redrives"], state["state"], state["input"])
        self.begin(f"workflow {execution}", node, Notes(state=state))

    def _close(self, execution: str, status: str, error: str = "", state: Any = None) -> None:
        self._keep_older("stepfunctions")
        closed = stepfunctions.close(self.services["stepfunctions"], execution, status, self.now, error)
        self.services["stepfunctions"] = closed.with_fields(**{execution: closed[execution].with_fields(state=state)})
        if status != "SUCCEEDED":
            self.news = (*self.news, execution)

    # Looking at it -------------------------------------------------------------------------------------------------

    def _item(self) -> Record:
        return self.services["dynamodb"][SLOTS][PROCESS]  # type: ignore[no-any-return]

    def _holders(self) -> dict[str, Record]:
        return self._item()["holders"]["M"].fields  # type: ignore[no-any-return]

    def _has_room(self) -> bool:
        item = self._item()
        paused = item.get("paused")
        in_use, limit = (int(item[name]["N"]) for name in ("slots_in_use", "slot_limit"))
        return in_use < limit and not (paused is not None and paused["BOOL"])

    def _queue(self) -> Record:
        return self.services["sqs"][REQUESTS]  # type: ignore[no-any-return]

    def _receivable(self) -> list[Record]:
        return self._messages()[0]

    def _in_flight(self) -> list[Record]:
        return self._messages()[1]

    def _messages(self) -> tuple[list[Record], list[Record]]:
        """Those that can be received and those in flight; looked up, since they are asked for at every step."""
        key = (self.services["sqs"], self.now)
        found = _messages.get(key)
        if found is None:
            queue = self._queue()
            hidden = [message for message in queue["messages"] if sqs.is_in_flight(message, self.now)]
            found = _messages[key] = (sqs.receivable(queue, self.now), hidden)
        return found

    def _free_starter(self) -> str:
        names = (f"starter {n + 1}" for n in range(self.plan.starters))
        return next((name for name in names if name not in self.actors), "")

    def _alive(self) -> list[Record]:
        jobs = self.services["glue"]
        found = _alive.get(jobs)
        if found is None:
            found = _alive[jobs] = [run for run in jobs[JOB]["runs"] if run["state"] in glue.ALIVE]
        return found

    def _ends_at(self, run: Record) -> float:
        if run["state"] == "STOPPING":
            return 0.0
        seconds = self.plan.run_seconds[int(run["id"].partition("_")[2]) % len(self.plan.run_seconds)]
        return float(run["started"] + seconds)

    def _may_end(self, run: Record) -> bool:
        return self.timeless or self.now >= self._ends_at(run)

    def _may_wake_up(self, name: str, actor: Actor, question: Question) -> bool:
        if question.operation == "sleep":
            return self.may_go_on(name) if self.timeless else self.now >= actor.asleep_until
        return self.local(name, actor, question) is not None

    def may_go_on(self, name: str) -> bool:
        """A workflow that waits for its run to stop looks again when it has."""
        stopping = (run["arguments"]["--slotkeeper-execution"] for run in self._alive() if run["state"] == "STOPPING")
        return name.partition(" ")[2] not in stopping

    def _keep_older(self, service: str) -> None:
        self.older[service] = self.services[service]
        self.older_at[service] = self.now

    def _can_be_stale(self, question: Question) -> bool:
        """Whether a read may still show what was before the last change: Glue, and Step Functions, lag by seconds."""
        if question.operation not in ("get_job_runs", "list_executions", "describe_execution"):
            return False
        # Without time a lag has no end, and the janitor's grace is longer than Step Functions' lag.
        if self.timeless and question.service != "glue":
            return False
        recent = self.now < self.older_at.get(question.service, 0) + STEP
        return recent and self.older[question.service] is not self.services[question.service]

    def _patience(self) -> tuple[int, int]:
        return GRACE, (0 if self.timeless else LOOK_GAP)

    def _unsuccessful(self) -> list[str]:
        executions = self.services["stepfunctions"].fields.items()
        return [name for name, found in executions if found["status"] not in (*stepfunctions.OPEN, "SUCCEEDED")]

    def _dead(self) -> list[str]:
        return [name for name in self._holders() if not stepfunctions.is_open(self.services["stepfunctions"], name)]

    def _unsettled(self) -> list[str]:
        return [name for name in self._unsuccessful() if name not in self.services["dynamodb"][code.SETTLED]]

    def _is_unfinished(self) -> bool:
        return bool(self.actors or self._holders() or self._unsettled() or self._queue()["messages"] or self._alive())

    def _put_queue(self, queue: Record) -> None:
        self.services["sqs"] = self.services["sqs"].with_fields(**{REQUESTS: queue})

    # Properties ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        now = (self.services["dynamodb"], self.services["glue"])
        if now == self._checked:
            return
        self._checked, before = now, self._held
        self._held = holders = self._holders()
        item = self._item()
        limit, in_use = (int(item[name]["N"]) for name in ("slot_limit", "slots_in_use"))
        if in_use != len(holders):
            raise Violation("S2", f"slots_in_use is {in_use}, but there are {len(holders)} holders")
        if len(holders) > max(limit, len(before)):
            raise Violation("S1", f"{len(holders)} holders, limit {limit}")
        owners = [run["arguments"]["--slotkeeper-execution"] for run in self._alive()]
        for owner in owners:
            if owner not in holders:
                raise Violation("S1b", f"a Glue run of {owner} is alive, which holds no slot")
            if owners.count(owner) > 1:
                raise Violation("S1b", f"two Glue runs of {owner} are alive in one slot")

    def _check_order(self, request_id: str) -> None:
        place = self.plan.requests.index(request_id)
        if place < self.order:
            raise Violation(
                "S5", f"{request_id} starts after {self.plan.requests[self.order]}, which was sent after it"
            )
        self.order = place

    def _check_freed(self) -> None:
        """S4: a dead holder's slot is free within two rounds plus the grace, from when the faults are over."""
        if self.calm_since is None:
            return
        executions = self.services["stepfunctions"]
        owners = {run["arguments"]["--slotkeeper-execution"] for run in self._alive()}
        for name, holder in self._holders().items():
            if stepfunctions.is_open(executions, name) or name in owners:
                continue
            dead = executions[name]["stopped"] if name in executions else int(holder["M"]["since"]["N"])
            late = self.now - max(dead, self.calm_since)
            if late > GRACE + 2 * self.plan.period + 2 * STEP:
                raise Violation("S4", f"{name} is dead and has held its slot for {late:.0f} s")

    def check_quiet(self) -> None:
        """S6: time alone must not be needed where no fault was."""
        hidden = [message["id"] for message in self._in_flight()]
        if not self.faults and hidden and self._has_room() and not self.actors:
            raise Violation("S6", f"there is room, {hidden} wait, and nobody will wake them")

    def check_end(self) -> None:
        if self._holders():
            raise Violation("S4", f"{sorted(self._holders())} hold slots, and nobody will free them")
        executions = self.services["stepfunctions"]
        left = [message["id"] for message in self._queue()["messages"]]
        if left:
            raise Violation("S3", f"{left} are still on the queue")
        dead = {message["body"] for message in self.services["sqs"][code.DEAD_LETTERS]["messages"]}
        kept = {
            message["attributes"]["execution_name"]["StringValue"]
            for message in self.services["sqs"][FAILED]["messages"]
        }
        for request_id in set(self.plan.requests):
            body = json.dumps({"process": PROCESS, "request_id": request_id})
            if execution_name(PROCESS, request_id, 1) not in executions and body not in dead:
                raise Violation("S3", f"request {request_id} was neither started nor dead-lettered")
        for name in self._unsuccessful():
            request = json.loads(executions[name]["input"])
            again = execution_name(PROCESS, request["request_id"], request["attempt"] + 1)
            if name not in kept and again not in executions:
                raise Violation("S3", f"{name} ended as {executions[name]['status']}: neither kept nor queued again")

    def key(self) -> Hashable:
        return (
            *self.services.values(),
            frozenset(self.actors.items()),
            self.operations,
            self.rounds,
            self.news,
            self.order,
            self.on_their_way,
            self.faults,
            self.older.get("glue"),
            self.now,
        )

    def summary(self) -> str:
        item = self._item()
        holders = [f"{name[-4:]}={holder['M']['state']['S']}" for name, holder in self._holders().items()]
        queue = [f"{m['id']}{'(hidden)' if sqs.is_in_flight(m, self.now) else ''}" for m in self._queue()["messages"]]
        return (
            f"slots {item['slots_in_use']['N']}/{item['slot_limit']['N']} [{', '.join(holders)}]  "
            f"queue [{', '.join(queue)}]  runs [{', '.join(run['id'] + ' ' + run['state'] for run in self._alive())}]"
        )


def drawn(random: Random) -> SlotsWorld:
    """A world of the kind that random schedules are made in."""
    requests = tuple("abcd"[: random.choice((1, 1, 2, 2, 3))])
    if random.random() < 0.2:
        requests = (*requests, requests[0])
    limit = random.choice((1, 1, 2))
    changes: tuple[int, ...] = random.choice(((), (), (), (1,), (2, 1), (0, -1), (0, 1, -1)))
    plan = Plan(
        requests,
        limit,
        changes,
        job_limit=random.choice((limit, 100)),
        lag=random.choice((0, 0, 10)),
        period=random.choice((300, 600)),
        lax=random.choice((False, True)),
        run_seconds=random.choice(((60,), (60, 120), (60, 1200))),
    )
    return SlotsWorld(plan)


def _ends_as(run: Record) -> str:
    return "STOPPED" if run["state"] == "STOPPING" else "SUCCEEDED"
