"""A process whose waiting requests are rows: intake, dispatches, doorbells, workflows and operators.

Time passes only when no actor can act. There is no janitor to make up for a lost wake, so at the end every request has
ended by itself, after any crash, lost answer, late or doubled doorbell. The exception is a message that SQS delivers
twice: if one delivery deletes it and the other one dies, the janitor's dispatch finds what that one has left.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from datetime import UTC, datetime
from random import Random
from typing import Any, NamedTuple

from slotkeeper.aws.dynamodb import number
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import PRIORITIES, Priority, execution_name
from tests.simulation import queue_actors as code
from tests.simulation.aws import dynamodb, sqs, stepfunctions
from tests.simulation.frozen import Record, freeze
from tests.simulation.queue_actors import BELLS, REQUESTS, VISIBILITY
from tests.simulation.transcript import Answer, Question, Raised
from tests.simulation.worlds import (
    BEGINNING,
    CONFLICT,
    DIE,
    DIE_AFTER,
    LOSE,
    NOT_SENT,
    THROTTLE,
    Actor,
    Choice,
    Violation,
    World,
)

PROCESS = "p"
TIMEOUT = code.AGE - 2  # seconds, of the functions


class Sent(NamedTuple):
    """A request of a plan. `deadline`: seconds after the beginning."""

    id: str
    priority: Priority = "normal"
    weight: int | None = None
    skips: bool = False
    deadline: float | None = None


class Plan(NamedTuple):
    """What happens in a world.

    Attributes:
        batch: whether one invocation receives all messages of a group.
        dispatchers: how many doorbells are answered at the same time.
        cancels: ids of requests that an operator cancels, at any time.
        limits: that an operator sets, at any time, one after the other.
        leased: seconds from the beginning for which a lease holds a slot; 0: none does.
        rejects: ids of requests whose input Step Functions refuses.
        only_deaths: whether the only fault is an invocation that dies.
    """

    requests: tuple[Sent, ...]
    limit: int = 1
    batch: bool = False
    dispatchers: int = 2
    cancels: tuple[str, ...] = ()
    limits: tuple[int, ...] = ()
    rate: Rate | None = None
    leased: int = 0
    rejects: tuple[str, ...] = ()
    only_deaths: bool = False


class QueueWorld(World):
    """See World."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.cancels, self.limits = plan.cancels, plan.limits
        self.worked: frozenset[str] = frozenset()  # ids of requests whose work has begun
        self.cancelled: frozenset[str] = frozenset()
        self.grants = 0  # so far
        self.queued_at: dict[str, int] = {}  # execution -> the number of grants before its row was added
        self.redelivered = False  # a message came again while an invocation had it
        self.services = {
            "dynamodb": dynamodb.tables(slots=[self._process()], requests=[]),
            "sqs": freeze({REQUESTS: sqs.queue(VISIBILITY, fifo=True), BELLS: sqs.queue(VISIBILITY)}),
            "stepfunctions": stepfunctions.executions(),
        }
        for request in plan.requests:
            self._send(request)

    def _process(self) -> dict[str, Any]:
        item: dict[str, Any] = {
            "process_name": {"S": PROCESS},
            "slot_limit": number(self.plan.limit),
            "slots_in_use": number(0),
            "holders": {"M": {}},
            "waiting": {"M": {}},
            "target": {"S": "job"},
            "grants": number(1),
        }
        if self.plan.rate:
            item |= {"rate": self.plan.rate.item, "next_start": number(0)}
        if self.plan.leased:
            until = number(int(BEGINNING) + self.plan.leased)
            lease = {"state": {"S": "LEASED"}, "since": number(int(BEGINNING)), "until": until, "code": {"S": "x"}}
            item |= {"holders": {"M": {"lease": {"M": lease}}}, "slots_in_use": number(1)}
        return item

    def _send(self, request: Sent) -> None:
        body: dict[str, Any] = {"process": PROCESS, "request_id": request.id, "priority": request.priority}
        if request.weight is not None:
            body["weight"] = request.weight
        if request.skips:
            body["when_busy"] = "skip"
        if request.deadline is not None:
            body["start_before"] = datetime.fromtimestamp(BEGINNING + request.deadline, UTC).isoformat()
        sending = {"QueueUrl": REQUESTS, "MessageBody": json.dumps(body), "MessageGroupId": request.priority}
        assert not self.perform(Question("sqs", "send_message", freeze(sending))).error

    # Choices -------------------------------------------------------------------------------------------------------

    def steps(self) -> list[Choice]:
        choices = []
        for name, actor in self.actors.items():
            question = actor.question
            if question.service != "actor":
                choices.append(Choice("call", name))
            elif question.operation == "works":
                choices.append(Choice("end_work", name))
            elif self.now >= actor.asleep_until:
                choices.append(Choice("wake_up", name))
        queue = self.services["sqs"][REQUESTS]
        heads = {message["group"]: message for message in reversed(sqs.receivable(queue, self.now))}
        choices += [Choice("receive", message["group"]) for message in heads.values()]
        if sum(name.startswith("dispatcher") for name in self.actors) < self.plan.dispatchers:
            bells = {message["body"]: message for message in sqs.receivable(self.services["sqs"][BELLS], self.now)}
            choices += [Choice("answer", message["id"]) for message in bells.values()]
        choices += [Choice("cancel", self.cancels[0])] if self.cancels else []
        choices += [Choice("set_limit")] if self.limits and "limiter" not in self.actors else []
        return choices

    def time_steps(self) -> list[Choice]:
        if self._due_times():
            return [Choice("pass_time")]
        return [Choice("janitor")] if self.redelivered and self._is_left() else []

    def _is_left(self) -> bool:
        """Whether a request is queued, or a reservation waits for its workflow."""
        holders = self._item()["holders"]["M"].fields.values()
        return any("place" in row for row in self._rows()) or any(
            holder["M"]["state"]["S"] == "RESERVED" for holder in holders
        )

    def _due_times(self) -> list[float]:
        messages = [message for queue in (REQUESTS, BELLS) for message in self.services["sqs"][queue]["messages"]]
        times = [message["visible_at"] for message in messages] + [a.asleep_until for a in self.actors.values()]
        return [time for time in times if time > self.now]

    def possible_faults(self) -> list[Choice]:
        choices = []
        if self.plan.only_deaths:
            dying = (name for name in self.actors if name.startswith(("starter", "dispatcher")))
            return [Choice("call", name, DIE, True) for name in dying if self.actors[name].question.service != "actor"]
        for name, actor in self.actors.items():
            if actor.question.service != "actor" and not name.startswith("workflow"):
                kinds = (DIE, DIE_AFTER, LOSE, THROTTLE, NOT_SENT)
                kinds = kinds if name.startswith(("starter", "dispatcher")) else (LOSE, THROTTLE)
                choices += [Choice("call", name, how, True) for how in kinds]
                if actor.question.operation in ("update_item", "transact_write_items"):
                    choices.append(Choice("call", name, CONFLICT, True))
            if actor.question.operation == "start_execution":
                choices.append(Choice("start_fails", name, "", True))
        for queue in (REQUESTS, BELLS):
            flying = [each for each in self.services["sqs"][queue]["messages"] if sqs.is_in_flight(each, self.now)]
            choices += [Choice("expire", f"{queue} {each['id']}", "", True) for each in flying]
        return choices

    # Events --------------------------------------------------------------------------------------------------------

    def receive(self, group: str, _: str) -> None:
        """Invoke the starter with the head of a group, or with all its messages."""
        messages = [m for m in self._receivable(REQUESTS) if m["group"] == group]
        taken = [self._take(REQUESTS, m) for m in (messages if self.plan.batch else messages[:1])]
        fields = ("id", "body", "sequence", "sent_at", "handle")
        given = tuple(tuple(message[name] for name in fields) for message in taken)
        self.begin(self._new("starter"), code.starter.begin(given), self.now)

    def answer(self, message_id: str, _: str) -> None:
        """Invoke a dispatch with a doorbell."""
        message = next(m for m in self._receivable(BELLS) if m["id"] == message_id)
        taken = self._take(BELLS, message)
        self.begin(self._new("dispatcher"), code.dispatcher.begin(taken["body"], taken["handle"]), self.now)

    def _new(self, kind: str) -> str:
        """The first free name: numbers that only grow would make equal states differ."""
        return next(name for number in range(99) if (name := f"{kind} {number}") not in self.actors)

    def _receivable(self, queue: str) -> list[Record]:
        return sqs.receivable(self.services["sqs"][queue], self.now, together=True)

    def _take(self, queue: str, message: Record) -> Record:
        changed, answer = sqs.receive(self.services["sqs"][queue], message, self.now)
        self.services["sqs"] = self.services["sqs"].with_fields(**{queue: changed})
        taken: Record = answer.value["Messages"][0]
        self.log("queue", f"delivers {taken['id']} {taken['body']}, receive {taken['receives']}")
        return taken

    def expire(self, which: str, _: str) -> None:
        """A message comes again although its invocation runs."""
        queue, message_id = which.split()
        self.log("queue", f"{message_id} is visible again")
        self.services["sqs"] = sqs.expire(self.services["sqs"], queue, message_id, self.now)
        self.redelivered = True

    def janitor(self, _: str, __: str) -> None:
        """The janitor's minute, when all reservations are old."""
        self.now += 60
        self.begin("dispatcher janitor", code.dispatcher.begin(json.dumps({"process": PROCESS, "at": self.now}), ""))

    def start_fails(self, name: str, _: str) -> None:
        """Step Functions fails before it starts the execution, which its answer does not show."""
        self.log(name, "gets InternalServerError from", self.actors[name].question)
        self._advance(name, self.actors[name].after(Answer(error="InternalServerError")))

    def end_work(self, name: str, _: str) -> None:
        self._advance(name, self.actors[name].after(Answer()))

    def cancel(self, request_id: str, _: str) -> None:
        """An operator cancels the request."""
        self.cancels = self.cancels[1:]
        node = code.canceller.begin(PROCESS, execution_name(PROCESS, request_id, 1))
        self.begin(f"cancel {request_id}", node)

    def set_limit(self, _: str, __: str) -> None:
        limit, *rest = self.limits
        self.limits = tuple(rest)
        self.begin("limiter", code.limiter.begin(PROCESS, limit), limit)

    def pass_time(self, _: str, __: str) -> None:
        """The clock moves to the next moment at which something is due. Lambda ends invocations at their timeout."""
        self.now = min(self._due_times())
        for name, actor in list(self.actors.items()):
            if isinstance(actor.notes, float) and self.now > actor.notes + TIMEOUT:
                self.log(name, "is ended by its timeout")
                del self.actors[name]

    # Answers -------------------------------------------------------------------------------------------------------

    def own_answer(self, name: str, actor: Actor, question: Question) -> Answer | None:
        match question.operation:
            case "clock":
                return Answer(self.now)
            case "works":
                return None
        raise AssertionError(f"no service answers {question}")

    def perform(self, question: Question) -> Answer:
        before = self.services["dynamodb"]
        known = self.services["stepfunctions"]
        if question.operation == "start_execution" and question.parameters["name"] in self._rejected():
            return Answer(error="InvalidExecutionInput")
        answer = super().perform(question)
        if question.service == "stepfunctions" and self.services["stepfunctions"] is not known:
            name = question.parameters["name"]
            self.begin(f"workflow {name}", code.workflow.begin(PROCESS, name))
        if self.services["dynamodb"] is not before:
            self._check_write(before["slots"][PROCESS], self._item())
            new = {row["execution"]["S"] for row in self._rows()} - self.queued_at.keys()
            self.queued_at = self.queued_at | dict.fromkeys(new, self.grants)
        return answer

    def _rejected(self) -> set[str]:
        return {execution_name(PROCESS, request_id, 1) for request_id in self.plan.rejects}

    def finished(self, name: str, actor: Actor) -> None:
        kind, _, which = name.partition(" ")
        if kind == "workflow":
            status = "SUCCEEDED" if actor.node.result == "succeeded" else "FAILED"
            executions = self.services["stepfunctions"]
            self.services["stepfunctions"] = stepfunctions.close(executions, which, status, self.now)
        elif kind == "cancel" and actor.node.result == "cancelled":
            self.cancelled |= {which}
        elif isinstance(actor.node.result, Raised):  # of an operator's command, which the operator repeats
            self.limits = (actor.notes, *self.limits) if kind == "limiter" else self.limits
            self.cancels = (which, *self.cancels) if kind == "cancel" else self.cancels

    def died(self, name: str, actor: Actor) -> None:
        """Its message comes again after its visibility timeout."""

    # Checks --------------------------------------------------------------------------------------------------------

    def _item(self) -> Record:
        item: Record = self.services["dynamodb"]["slots"][PROCESS]
        return item

    def _rows(self) -> list[Record]:
        return list(self.services["dynamodb"]["requests"].fields.values())

    def _check_write(self, before: Record, after: Record) -> None:
        held, holders = before["holders"]["M"].fields, after["holders"]["M"].fields
        limit, total = int(after["slot_limit"]["N"]), sum(_weight_of(holder) for holder in holders.values())
        if int(after["slots_in_use"]["N"]) != total:
            raise Violation("S2", f"the counter is {after['slots_in_use']['N']}, the holders have {total}")
        added = holders.keys() - held.keys()
        if added and total > limit:
            raise Violation("S1", f"{total} of {limit}")
        rows = {row["execution"]["S"]: row for row in self._rows()}
        for name in added:
            for other in rows.values():
                # Each grant is planned on a queue that was read after the grant before it, not what came later.
                is_known = self.queued_at[other["execution"]["S"]] < self.grants
                waits = is_known and "place" in other and other["execution"]["S"] not in holders
                weight = int(other["weight"]["N"]) if "weight" in other else 1
                if waits and weight <= limit and other["place"]["S"] < rows[name]["placed"]["S"]:
                    raise Violation("S5", f"{name} is granted before {other['execution']['S']}")
        self.grants += bool(added)
        for name, holder in holders.items():
            is_new = holder["M"]["state"]["S"] == "RUNNING" and held.get(name, holder) is not holder
            if is_new:
                self._begin_work(rows[name])

    def _begin_work(self, row: Record) -> None:
        request_id = row["request_id"]["S"]
        if request_id in self.worked:
            raise Violation("S3", f"{request_id} runs twice")
        if row["state"]["S"] not in ("QUEUED", "STARTED"):
            raise Violation("S3", f"{request_id} runs although it is {row['state']['S']}")
        self.worked |= {request_id}

    def check(self) -> None:
        if self.cancelled & self.worked:
            raise Violation("S3", f"{self.cancelled & self.worked} was cancelled, and runs")

    def check_end(self) -> None:
        if self.actors:
            raise Violation("END", f"{sorted(self.actors)} wait")
        holders = self._item()["holders"]["M"].fields
        if holders and set(holders) != {"lease"}:
            raise Violation("S4", f"{sorted(holders)} keep their slots")
        for row in self._rows():
            if "place" in row or row["state"]["S"] in ("QUEUED", "STARTED"):
                raise Violation("S6", f"{row['request_id']['S']} is {row['state']['S']}, and nothing comes for it")
        ended = {row["request_id"]["S"]: row["state"]["S"] for row in self._rows() if row["state"]["S"] != "RETURNED"}
        for request in self.plan.requests:
            state = ended.get(request.id)
            allowed = {"REJECTED"} if request.id in self.plan.rejects else {"SUCCEEDED"}
            allowed |= {"SKIPPED"} if request.skips else set()
            allowed |= {"TOO_LATE"} if request.deadline is not None else set()
            allowed |= {"CANCELLED"} if request.id in self.plan.cancels else set()
            if state not in allowed or (state == "SUCCEEDED") != (request.id in self.worked):
                raise Violation("S3", f"{request.id} is {state}")

    def key(self) -> Hashable:
        services = tuple(sorted(self.services.items()))
        return (
            self.now,
            services,
            frozenset(self.actors.items()),
            self.cancels,
            self.limits,
            self.worked,
            self.cancelled,
        )

    def summary(self) -> str:
        rows = sorted((row["placed"]["S"][:1], row["request_id"]["S"], row["state"]["S"]) for row in self._rows())
        holders = {name[-4:]: holder["M"]["state"]["S"] for name, holder in self._item()["holders"]["M"].fields.items()}
        return f"{rows} holders {holders} grants {self._item()['grants']['N']}"


def _weight_of(holder: Record) -> int:
    return int(holder["M"]["weight"]["N"]) if "weight" in holder["M"] else 1


def random_world(random: Random) -> QueueWorld:
    """A random world for random schedules."""
    requests = []
    for name in "abcde"[: random.randint(2, 5)]:
        requests.append(
            Sent(
                name,
                random.choice((*PRIORITIES, "normal")),
                random.choice((None, None, 1, 2, 3)),
                skips=random.random() < 0.15,
                deadline=random.choice((None, None, None, 0, 5, 70, 300)),
            )
        )
    limit = random.choice((1, 2, 3))
    return QueueWorld(
        Plan(
            tuple(requests),
            limit,
            batch=random.random() < 0.5,
            cancels=tuple(random.sample([each.id for each in requests], random.choice((0, 0, 1, 2)))),
            limits=random.choice(((3,), (0, 3), (1, 3), (2, 0, 3))),
            rate=random.choice((None, None, Rate(1, 30), Rate(2, 60, 2))),
            leased=random.choice((0, 0, 40)),
            rejects=tuple(random.sample([each.id for each in requests], random.choice((0, 0, 0, 1)))),
        )
    )
