"""The world of the worker whose downstream is watched, and is down for a while. It checks R5 to R7, too."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from slotkeeper.retry.downstream.downstreams import DEFAULT
from slotkeeper.retry.message import parse_message
from tests.simulation import downstream_properties as properties
from tests.simulation import retry_actors as code
from tests.simulation import retry_properties, retry_world
from tests.simulation.aws import dynamodb
from tests.simulation.downstream_properties import CLOSED, HALF_OPEN, OPEN, Asked, Work
from tests.simulation.frozen import Record
from tests.simulation.retry_actors import DEAD_LETTERS, DOWNSTREAMS, INVOCATION, LEDGER, WORK
from tests.simulation.retry_world import RetryWorld
from tests.simulation.transcript import Answer, Question
from tests.simulation.worlds import BEGINNING, LATE, TWICE, Actor, Choice, Violation

RECOVERY = 60
# The first probe comes after 1/32 of the recovery time; then the wait grows by half. Jitter takes off a fifth.
FIRST_PROBE, LEAST_JITTER = RECOVERY / 32, 0.8
BUDGET_WINDOW = 60
MAX_AGE = 900
MAX_RECEIVES = 1000  # after so many, SQS dead-letters a message without a reason
_MOST_RECEIVES_BEFORE = 800  # of a world whose messages are not about to be dead-lettered


def watching_policy(threshold: int = 1, attempts: int = 2, *, limited: bool = True, max_age: int = MAX_AGE) -> str:
    """A policy with a recovery time of a minute. `limited`: concurrency limit and budget are enabled."""
    default = {"backoff": "fixed", "jitter": "none", "base_seconds": 60, "cap_seconds": 60, "max_attempts": attempts}
    downstream = {
        "breaker": {"failure_threshold": threshold, "window_calls": threshold, "recovery_seconds": RECOVERY},
        "concurrency": {"enabled": limited, "window_seconds": 60},
        "budget": {"enabled": limited, "capacity": 1, "window_seconds": 60},
    }
    return json.dumps({"default": {**default, "max_age_seconds": max_age}, "downstream": downstream})


@dataclass(frozen=True)
class Plan(retry_world.Plan):
    """The settings of a world.

    Commands are those of the breaker only: "open" and "close".
    """

    policy: str = watching_policy()
    down: tuple[int, int] = (0, 0)  # from when to when the downstream is down, seconds since the beginning
    sudden: bool = False  # its outage may begin at any earlier time
    again: tuple[int, int] = (0, 0)  # from when to when it is down a second time
    most: int = 2  # the event source's maximum concurrency
    limited: bool = True  # the policy has a concurrency limit and a budget, whose capacity is one retry
    max_age: int = MAX_AGE  # of the policy, in seconds
    skews: tuple[int, ...] = ()  # by how many seconds the clock of each worker is ahead
    receives: int = 0  # how often each first message was received before
    fault_kinds: tuple[str, ...] = ()  # the only faults, as `how` of their choices; empty for all


class Notes(NamedTuple):
    """The world's notes on a delivery."""

    handle: str  # as in retry_world.Notes
    frozen_until: float = 0.0
    started: float = 0.0  # when its invocation started
    first: float = 0.0  # from when the request's age counts
    body: str = ""  # the message's body
    name: str = ""  # the common part of the delivery's codes
    asked: Asked | None = None  # its last call of the downstream's item
    work: Work | None = None  # its work, while under way
    is_ended: bool = False  # its work has ended
    wrote: bool = False  # it has written to the ledger
    failed_at: float = 0.0  # when its work failed at the downstream


class DownstreamWorld(RetryWorld):
    """The world of the worker with a downstream; see World."""

    plan: Plan
    NOT_IN_KEY = RetryWorld.NOT_IN_KEY | {"item", "_payloads", "_opens_at_one"}

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.services["dynamodb"] = dynamodb.tables(ledger=[], downstreams=[])
        self._rows = self.services["dynamodb"][LEDGER]
        self.put_messages(WORK, [message.with_fields(receives=plan.receives) for message in self.messages(WORK)])
        self._payloads = {request_id: json.loads(payload) for request_id, payload in plan.requests}
        self.is_broken = not plan.sudden
        self.item = properties.Stored()  # as it was checked last
        self.probe = ("", "")  # the delivery of the last probe, and how its work ended
        self.not_before = 0.0  # the earliest time of the next probe
        self.carried: tuple[tuple[str, tuple[Any, ...]], ...] = ()  # container -> what it could not report
        self.late: frozenset[str] = frozenset()  # deliveries whose permit may be written after they gave up
        self.failures = 0  # of the downstream, besides its outage
        self.failed_probes = 0  # since the breaker opened
        self.spent_at = 0.0  # when a retry failed, if no call has succeeded since
        self.hung: tuple[tuple[int, float], ...] = ()  # epoch and end of the permits of workers that died
        self._opens_at_one = json.loads(plan.policy)["downstream"]["breaker"]["failure_threshold"] == 1

    # Events --------------------------------------------------------------------------------------------------------

    def _subjects(self) -> Iterable[str]:
        return ("",)

    def command(self, request_id: str, _: str) -> None:
        """An operator opens or closes the breaker."""
        step, self.commands = self.commands[0], self.commands[1:]
        self.commanded += 1
        name = f"operator {self.commanded}"
        self.log(name, f"{step}s the breaker")
        self.begin(name, code.breaker_operator.begin(self.now, step, name), retry_world.Notes(""))

    def _invoke(self, worker: str, taken: Record, token: str) -> None:
        receives = taken["receives"]
        if receives >= MAX_RECEIVES and not self.slow:
            raise Violation("R7", f"{taken['id']} is received {receives} times, and SQS dead-letters it")
        message = parse_message(taken["body"])
        first = message.retries[0] if message.retries else BEGINNING
        if taken["sent_at"] - first > self.plan.max_age - self._spread():
            first = taken["sent_at"]  # an operator has redriven it, and it has its whole age again
        arguments = (
            self.now + self._skew(worker),
            None if self.plan.reads_policy else self.plan.policy,
            self.plan.max_delay,
            token,
            taken["body"],
            taken["attributes"],
            receives if receives > _MOST_RECEIVES_BEFORE else min(2, receives),
            code.Watching(self.plan.most, taken["sent_at"], taken["handle"], dict(self.carried).get(worker, ())),
        )
        notes = Notes(taken["handle"], 0.0, self.now, first, taken["body"], code.code_of(token))
        self.begin(worker, code.worker.begin(*arguments), notes)

    def steps(self) -> list[Choice]:
        choices = super().steps()
        if choices and all(choice.kind == "command" for choice in choices):
            choices += self.slow_steps()  # the operator may wait
        if choices and not self.is_broken:
            choices.append(Choice("break_down"))
        return choices

    def break_down(self, _: str, __: str) -> None:
        """The downstream's outage begins."""
        self.log("downstream", "is down")
        self.is_broken = True

    def possible_faults(self) -> list[Choice]:
        kinds = self.plan.fault_kinds
        return [choice for choice in super().possible_faults() if not kinds or choice.how in kinds]

    def call(self, name: str, how: str) -> None:
        question = self.actors[name].question
        is_downstream = question.service == "s3"
        self.failures += bool(how) and is_downstream
        is_down = is_downstream and (self.is_down() or (bool(how) and how != TWICE))
        if is_downstream:
            self._end_work(name, "failed" if is_down else "succeeded")
        if how == LATE and self._is_of_item(question) and not name.startswith("operator"):
            self.late |= {self.actors[name].notes.name}
        if question.operation == "update_item":
            self.note(name, wrote=True)
        super().call(name, how)
        if name not in self.actors or name.startswith("operator"):
            return
        notes: Notes = self.actors[name].notes
        if question.operation in ("get_item", "put_item") and not notes.is_ended and self._is_of_item(question):
            item = self._item()
            is_spent = bool(self.spent_at) and self.now - self.spent_at < BUDGET_WINDOW - self._spread()
            hung = any(epoch == item.epoch and self.now >= end + self._spread() for epoch, end in self.hung)
            self.note(name, asked=Asked(item, item.writer == notes.name, is_spent, hung))

    def is_down(self) -> bool:
        """Whether the downstream is down."""
        began, ended = self.plan.down
        since = self.now - BEGINNING
        if self.plan.again[0] <= since < self.plan.again[1]:
            return True
        return since < ended and (since >= began or (self.plan.sudden and self.is_broken))

    # Answers to actors ---------------------------------------------------------------------------------------------

    def clock_of(self, name: str, actor: Actor) -> float:
        return self.now + self._skew(name)

    def own_answer(self, name: str, actor: Actor, question: Question) -> Answer | None:
        answer = super().own_answer(name, actor, question)
        if question.operation != "work":
            return answer
        request_id, attempt = question.parameters
        notes: Notes = actor.notes
        allowed = self.plan.attempts + self.redriven.count(request_id)
        properties.check_counted(notes.body, allowed)
        if "to" in self._payloads[request_id]:
            return answer  # another downstream
        asked = notes.asked
        limit = min(asked.item.limit or self.plan.most, self.plan.most) if asked and self.plan.limited else 0
        mine = Work(asked is not None and asked.item.state == HALF_OPEN, limit)
        properties.check_begin(asked, self._under_way(name), mine)
        if asked and asked.is_spent and attempt > 1 and self.plan.limited and not mine.is_probe:
            raise Violation("R6", f"attempt {attempt} begins less than a window after a retry failed")
        self.actors[name] = actor
        self.note(name, work=mine)
        if "poison" in self._payloads[request_id]:
            self._end_work(name, "failed by itself")
        elif attempt <= self._payloads[request_id].get("fails", 0):
            self._end_work(name, "failed")
        return answer

    def _end_work(self, name: str, how: str) -> None:
        if self.actors[name].notes.name == self.probe[0]:
            self.probe = (self.probe[0], how)
        self.note(name, work=None, is_ended=True, failed_at=self.now if how == "failed" else 0.0)

    def finished(self, name: str, actor: Actor) -> None:
        super().finished(name, actor)
        if name.startswith("operator"):
            return
        notes: Notes = actor.notes
        _is_consumed, last, carried = actor.node.result
        self._carry(name, carried)
        if last == "Held the message back":
            if "to" in self._payloads[retry_properties.read(notes.body).request_id]:
                raise Violation("R5", f"{notes.name} is held back, and its downstream works")
            if notes.wrote:
                raise Violation("R5", f"{notes.name} is held back, and has written to the ledger")
            age = notes.started - notes.first
            if age > self.plan.max_age + self._spread():
                raise Violation("R7", f"{notes.name} is held back {age:.0f} s after its first start")
        ended = {notes.name} | code.names_of(actor.node.arguments[-1].carried)
        for held, until in self._item().permits:
            if held in ended - code.names_of(carried) - self.late and self.now + self._spread() < until:
                raise Violation("R6", f"{held} has ended, and neither its permit nor its container's memory of it has")

    def _carry(self, name: str, carried: tuple[Any, ...]) -> None:
        others = [each for each in self.carried if each[0] != name]
        self.carried = tuple(sorted([*others, (name, carried)] if carried else others))

    def _carried_by(self, writer: str) -> frozenset[str]:
        """The deliveries whose outcomes a running delivery writes, too."""
        actors = [actor for name, actor in self.actors.items() if name.startswith("worker")]
        carried = [actor.node.arguments[-1].carried for actor in actors if actor.notes.name == writer]
        return code.names_of(carried[0]) if carried else frozenset()

    def died(self, name: str, actor: Actor) -> None:
        super().died(name, actor)
        self._carry(name, ())
        asked: Asked | None = getattr(actor.notes, "asked", None)
        if asked and asked.item.state == CLOSED and self.plan.limited and self._opens_at_one:
            ends = dict(self._item().permits).get(actor.notes.name)
            self.hung += ((asked.item.epoch, ends),) if ends else ()

    def perform(self, question: Question) -> Answer:
        if question.service == "s3" and self.is_down():
            return Answer(error=code.DOWN)
        return super().perform(question)

    # Reading the state ---------------------------------------------------------------------------------------------

    def _item(self) -> properties.Stored:
        return properties.read(self.services["dynamodb"][DOWNSTREAMS].get(DEFAULT))

    def _is_of_item(self, question: Question) -> bool:
        parameters = question.parameters
        if question.service != "dynamodb" or parameters["TableName"] != DOWNSTREAMS:
            return False
        return bool(parameters.get("Key", parameters.get("Item"))["downstream"]["S"] == DEFAULT)

    def _skew(self, name: str) -> int:
        kind, _, number = name.partition(" ")
        return self.plan.skews[int(number) - 1] if kind == "worker" and self.plan.skews else 0

    def _spread(self) -> int:
        return max(self.plan.skews) - min(self.plan.skews) if self.plan.skews else 0

    def _under_way(self, but: str) -> list[Work]:
        """The works of the other deliveries whose invocations have not ended."""
        others = [actor.notes for name, actor in self.actors.items() if name.startswith("worker") and name != but]
        return [notes.work for notes in others if notes.work and self.now < notes.started + INVOCATION]

    # Properties ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        item = self._item()
        if item is not self.item:
            by_carrier = self.probe[0] in self._carried_by(item.writer)
            probe = (item.writer, self.probe[1]) if by_carrier else self.probe
            properties.check_change(self.item, item, probe, self.not_before, self.now)
            self._note_change(item)
            self.item = item
        super().check()
        # Each request was sent at the beginning, and the next attempt would begin a minute after a failure.
        is_old = self.now - BEGINNING + RECOVERY + self._spread() > self.plan.max_age
        for dead in self.messages(DEAD_LETTERS):
            payload = self._payloads[retry_properties.read(dead["body"]).request_id]
            excuses = payload.get("fails", 0) + self.failures + (self.plan.again != (0, 0))
            properties.check_dead_letter(dead, self.plan.attempts, excuses, is_old=is_old)

        if not self.faults and not self.slow and not self.copied and len(self.plan.requests) == len(self.sent):
            for request_id, row in self._rows.fields.items():
                properties.check_no_attempt_spent(request_id, row)

    def _note_change(self, item: properties.Stored) -> None:
        writers = [actor.notes for name, actor in self.actors.items() if name.startswith("worker")]
        writer: Notes | None = next((notes for notes in writers if notes.name == item.writer), None)
        failed = writer if writer and writer.failed_at else None
        if item.state == HALF_OPEN and item.epoch != self.item.epoch:
            self.probe, self.not_before = (item.writer, ""), 0.0
        elif item.state == OPEN != self.item.state:
            self.failed_probes = self.failed_probes + 1 if failed and self.item.state == HALF_OPEN else 0
            least = LEAST_JITTER * min(RECOVERY, FIRST_PROBE * 1.5**self.failed_probes)
            # A permit that ended before its report was written has counted as a failure from its end on.
            is_late = failed and dict(self.item.permits).get(failed.name, math.inf) <= self.now + self._spread()
            self.not_before = failed.failed_at + least - self._spread() if failed and not is_late else 0.0
        if failed and item.state == CLOSED and retry_properties.read(failed.body).attempt > 1:
            assert failed.asked is not None
            if failed.asked.item.epoch == item.epoch:
                self.spent_at = failed.failed_at
        elif writer and ((writer.is_ended and not failed) or self._carried_by(item.writer)):
            self.spent_at = 0.0

    def _check_attempts(self) -> None:
        """`own_answer` checks the attempts that count."""

    def check_end(self) -> None:
        super().check_end()
        properties.check_end(self._item(), self.now)

    def summary(self) -> str:
        item = self._item()
        down = ", down" if self.is_down() else ""
        return f"{super().summary()}  breaker {item.state} limit {item.limit} permits {len(item.permits)}{down}"


_WORK = ("{}", "{}", "{}", '{"fails": 1}', '{"fails": 9}', '{"poison": "no such thing"}')
_DOWN = ((0, 0), (0, 90), (0, 90), (0, 400), (60, 200))
_AGAIN = ((0, 0), (0, 0), (240, 300), (500, 620))
_COMMANDS = ((), (), (), ("open",), ("open", "close"), ("close",))
_SKEWS = ((), (0, 5, 0), (-5, 0, -3))


def random_world(random: Random) -> DownstreamWorld:
    """A random world for random schedules."""
    requests = [("a", random.choice(_WORK))]
    requests += [(name, random.choice(_WORK[:4])) for name in "bc"[: random.choice((0, 1, 1, 2))]]
    if random.random() < 0.2:
        requests.append(requests[0])
    limited = random.random() < 0.6
    attempts = random.choice((2, 2, 3))
    return DownstreamWorld(
        Plan(
            tuple(requests),
            watching_policy(random.choice((1, 1, 2)), attempts, limited=limited),
            attempts,
            workers=random.choice((2, 3)),
            max_delay=random.choice((900, 900, 0)),
            copies=random.choice((0, 0, 1)),
            redrives=random.choice((0, 0, 1)),
            commands=random.choice(_COMMANDS),
            step=random.choice((5, 60, 60)),
            down=random.choice(_DOWN),
            sudden=random.random() < 0.3,
            again=random.choice(_AGAIN),
            most=random.choice((1, 2, 3)),
            limited=limited,
            skews=random.choice(_SKEWS),
            receives=random.choice((0, 0, 898, 988)),
            lax=random.random() < 0.75,
            fault_kinds=random.choice(((), (), (), ("throttle", "lose", "late"))),
        )
    )
