"""Asks before each attempt whether the downstream may be called, and reports afterwards what the attempt has shown.

The health of each downstream is in DynamoDB: one item per downstream, one conditional write per change.

    downstream   S, key: the downstream's name
    version      N: increased by each write
    writer       S: the token of the last write, by which its writer recognizes it after a lost answer
    health       S: the permits and the fields of Breaker, Concurrency and Budget (health.py), JSON
    expires_at   N: when DynamoDB may delete the item, epoch seconds; absent while an operator's opening or limit holds

A change is computed from the item as it was read, and written on the condition that its version is still the same. If
another container has written in between, the change is computed again from that item. So all conditions of
rules.py hold for the item at the time of the write, although they compare numbers and count the entries of a map.
"""

from __future__ import annotations

import json
import math
import random
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.aws.dynamodb import Attributes, Item, MalformedAttribute, Table
from slotkeeper.retry.downstream import rules
from slotkeeper.retry.downstream.health import (
    Answer,
    Breaker,
    Budget,
    Call,
    Change,
    Concurrency,
    DownstreamSettings,
    Health,
    Permit,
    Refusal,
    State,
)
from slotkeeper.retry.downstream.rules import MIN_PER_SECOND
from slotkeeper.retry.errors import Failure

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from slotkeeper.retry.policy import Policy

DEFAULT = "default"
# Messages of one downstream that may return to be held back again, per second and container. Each is an invocation of
# some 50 ms. With more, a downstream that is down would take the containers from one that works.
RETURNS_PER_CONTAINER = 5.0
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

# Each lost round means that another container's write succeeded, so a round is lost at most once per write under way.
MAX_ROUNDS = 30
# A container that has lost this many rounds pauses before the next one, for a random time of up to PAUSE_SECONDS per
# round. Without pauses, some of 40 containers that write at the same instant would lose all their rounds.
ROUNDS_WITHOUT_PAUSE = 5
PAUSE_SECONDS = 0.02
# A container carries at most so many outcomes that it could not report, the newest. One has some 300 bytes.
MOST_CARRIED = 100
DAY = 86_400
# An item that was not written for so long is deleted, and its downstream then begins with a closed breaker. The report
# shows no older changes.
KEPT_DAYS = 90
# After so many items no further page is read: with 20 changes that have reasons of 200 characters, these are 16 MB.
MOST_READ = 2000


class MalformedHealth(Exception):
    """The item does not have the documented format. The message names the item and the attribute."""


class NotRead(MalformedHealth):
    """The table has more items than are read. It is found under the empty name, which no downstream has."""


class TooManyWriters(Exception):
    """Other containers have changed the item in each of MAX_ROUNDS rounds. Nothing was changed."""


class DownstreamTable:
    """The items. Errors of DynamoDB itself pass through as ClientError or BotoCoreError.

    Args:
        sleep: receives the seconds of a pause.
    """

    def __init__(
        self, dynamodb: DynamoDBClient, table_name: str, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._table = Table(dynamodb, table_name, "downstream")
        self._sleep = sleep

    def read(self, downstream: str) -> Health:
        """Read the health consistently; without an item, that of a new downstream. Raises MalformedHealth."""
        return _parse(downstream, self._table.read(downstream))

    def read_all(self) -> dict[str, Health | MalformedHealth]:
        """Read the health of the downstreams, by name: about MOST_READ, and NotRead if there are more.

        A malformed item does not prevent reading the others.
        """
        pages = self._table.dynamodb.get_paginator("scan").paginate(TableName=self._table.name, ConsistentRead=True)
        found: dict[str, Health | MalformedHealth] = {}
        for page in pages:
            found |= {item["downstream"]["S"]: _parse_or_report(item) for item in page["Items"]}
            if len(found) >= MOST_READ and "LastEvaluatedKey" in page:
                found[""] = NotRead(
                    f"the downstreams after the first {len(found):,} of {self._table.name} are not read"
                )
                break
        return found

    def change[R](self, downstream: str, decide: Callable[[Health], tuple[Health, R]]) -> tuple[Health, Health, R]:
        """Replace the health by a decision about it; return the health before and after, and the decision's result.

        Args:
            decide: returns the new health and a result. It is called again if another container has changed the item.
                If it returns an equal health, nothing is written.

        Raises:
            MalformedHealth: the item cannot be read.
            TooManyWriters: see there.
        """
        item = self._table.read(downstream)
        for lost in range(MAX_ROUNDS):
            if lost >= ROUNDS_WITHOUT_PAUSE:
                self._sleep(random.uniform(0, PAUSE_SECONDS * lost))  # noqa: S311 - no secret
                item = self._table.read(downstream)
            before = _parse(downstream, item)
            after, result = decide(before)
            if after == before:
                return before, after, result
            version, writer = int(item["version"]["N"]) if item else 0, uuid.uuid4().hex
            new = {
                "downstream": {"S": downstream},
                "version": {"N": str(version + 1)},
                "writer": {"S": writer},
                "health": {"S": _to_json(after)},
                **_expiry(after),
            }
            seen = {":seen": {"N": str(version)}} if item else None
            write = self._table.put(new, "version = :seen" if item else "attribute_not_exists(downstream)", seen)
            # Some local engines never return the item of a refused write.
            item = write.item or ({} if write.held else self._table.read(downstream))
            if write.held or item.get("writer") == {"S": writer}:
                return before, after, result
        raise TooManyWriters(f"the state of downstream {downstream!r} was changed in each of {MAX_ROUNDS} rounds")


@dataclass
class Admission:
    """A permitted attempt. As a context manager it gives the permit back, unless the attempt's answer was reported.

    Args:
        report: reports the call, or None to give the permit back; returns whether a failure may count.
        is_permitted: False for a message that is only deleted or dead-lettered: its work may not be called.
        death_counts: whether the death of an earlier attempt may count. It does not while the downstream fails: it may
            have kept the call until the function was stopped.
    """

    settings: DownstreamSettings
    report: Callable[[Call | None], bool]
    _: KW_ONLY
    is_permitted: bool = True
    death_counts: bool = True

    def __post_init__(self) -> None:
        self._is_reported = False

    def __enter__(self) -> Admission:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_reported:
            self.report(None)

    def succeeded(self, seconds: float) -> None:
        """Report a success. `seconds`: the duration of the call."""
        self._is_reported = True
        self.report(Call(Answer.SUCCEEDED, seconds))

    def failed(self, failure: Failure, seconds: float) -> bool:
        """Report a failure; return whether it may count as one of the request's attempts."""
        self._is_reported = True
        answer = answer_of(failure, self.settings)
        may_count = self.report(Call(answer, seconds))
        return may_count or answer == Answer.UNKNOWN


# For a worker that does not watch its downstream.
UNWATCHED = Admission(DownstreamSettings(), lambda _: True)


@dataclass(frozen=True)
class Rejection:
    """An attempt that may not begin now.

    Args:
        per_second: how many messages should return in a second after `not_before`.
        most_per_second: how many may, so that the containers have time for other messages of the queue.
        death_counts: as in Admission.
    """

    name: str
    reason: str
    not_before: float
    per_second: float
    most_per_second: float = math.inf
    death_counts: bool = True

    def without_work(self) -> Admission:
        """The admission of a message whose work is not called, and that need not wait."""
        return Admission(DownstreamSettings(), lambda _: True, is_permitted=False, death_counts=self.death_counts)


@dataclass(frozen=True)
class _Carried:
    """An outcome that could not be reported. Without a call: a permit that was not used.

    Args:
        at: when it should have been reported, epoch seconds.
    """

    name: str
    permit: Permit
    call: Call | None
    at: float


@dataclass
class Downstreams:
    """The downstreams of one worker, whose state all containers share. Reporting to them never raises.

    An outcome that could not be reported is carried into the container's next write of that downstream's state. If the
    container makes none until the permit's lease ends, the permit ends as that of a container that died.

    Args:
        most: the event source's maximum concurrency, the upper bound of the concurrency limit.
        on_health: receives the downstream's name and its state before and after a change or refusal.
        on_unreported: receives the reason why an outcome could not be reported.
        clock: seconds since the epoch.
    """

    table: DownstreamTable
    _: KW_ONLY
    most: int
    on_health: Callable[[str, Health, Health, int | None], None] = lambda *_: None
    on_unreported: Callable[[str], None] = lambda _reason: None
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._carried: list[_Carried] = []

    def ask(self, name: str, policy: Policy, *, is_retry: bool, lease: float) -> Admission | Rejection:
        """Ask whether an attempt may begin. An Admission must be used as a context manager.

        Args:
            lease: seconds after which the attempt no longer counts as under way if it is not reported.

        Raises:
            MalformedHealth: the downstream's state could not be read.
            ClientError, BotoCoreError: DynamoDB failed.
        """
        settings = replace(policy.downstream_settings(name), most=self.most)
        wanted = Permit(uuid.uuid4().hex[:12], self.clock() + lease, is_retry=is_retry)

        def decide(health: Health, now: float) -> tuple[Health, Permit | Refusal]:
            return rules.ask(health, settings, wanted, now)

        try:
            before, after, answer = self._change(name, settings, decide)
        except (ClientError, BotoCoreError):
            self._carry(name, wanted, None)  # the permit may have been written
            raise
        except TooManyWriters:
            # The others have written meanwhile. As an error this would hide the message for minutes.
            return Rejection(name, "too many containers ask at the same time", self.clock(), MIN_PER_SECOND)
        self.on_health(name, before, after, after.callers(settings))
        death_counts = not settings.breaker.enabled or (after.breaker.healthy and after.breaker.state == State.CLOSED)
        if isinstance(answer, Refusal):
            most_per_second = RETURNS_PER_CONTAINER * self.most
            return Rejection(name, answer.reason, answer.not_before, answer.per_second, most_per_second, death_counts)
        return Admission(settings, partial(self._report, name, settings, answer), death_counts=death_counts)

    def _report(self, name: str, settings: DownstreamSettings, permit: Permit, call: Call | None) -> bool:
        def decide(health: Health, now: float) -> tuple[Health, bool]:
            if call is None:
                return rules.give_back(health, permit, now), True
            return rules.report(health, settings, permit, call, now)

        try:
            before, after, counts = self._change(name, settings, decide)
        except (ClientError, BotoCoreError, MalformedHealth, TooManyWriters) as error:
            self._carry(name, permit, call)
            self.on_unreported(f"{type(error).__name__}: {error}")
            # The downstream may be down. If the failure counted, an outage could use up a second attempt.
            return not settings.breaker.enabled
        self.on_health(name, before, after, after.callers(settings))
        return counts

    def _change[R](
        self, name: str, settings: DownstreamSettings, decide: Callable[[Health, float], tuple[Health, R]]
    ) -> tuple[Health, Health, R]:
        """Change the state by the outcomes that are carried, then by a decision about it at a time."""
        carried = [each for each in self._carried if each.name == name]

        def decide_after(health: Health) -> tuple[Health, R]:
            now = self.clock()
            for each in carried:
                call = each.call and replace(each.call, late=now - each.at)
                health = rules.carry(health, settings, each.permit, call, now)
            return decide(health, now)

        changed = self.table.change(name, decide_after)
        self._carried = [each for each in self._carried if each not in carried]
        return changed

    def _carry(self, name: str, permit: Permit, call: Call | None) -> None:
        now = self.clock()
        kept = [each for each in self._carried if each.permit.until > now]
        self._carried = [*kept, _Carried(name, permit, call, now)][-MOST_CARRIED:]


def answer_of(failure: Failure, settings: DownstreamSettings) -> Answer:
    """Return what a failure shows about the downstream."""
    if failure.final:
        return Answer.UNKNOWN
    if any(name in settings.concurrency.errors for name in failure.types):
        return Answer.THROTTLED
    if any(name in settings.breaker.errors for name in failure.types):
        return Answer.FAILED
    return Answer.UNKNOWN


def name_of(named: str | Callable[[Any], str], request: Any) -> str:
    """Return the downstream's name of a request, DEFAULT if the function fails or returns no valid name.

    A request must not stay on the queue forever because its payload does not name a downstream.
    """
    if isinstance(named, str):
        return named
    try:
        name = named(request)
    except Exception:
        return DEFAULT
    return name if isinstance(name, str) and NAME.fullmatch(name) else DEFAULT


def check_name(name: str) -> str:
    """Return the name. Raises ValueError if it is not 1 to 64 characters of A-Z, a-z, 0-9, _, . and -."""
    if not NAME.fullmatch(name):
        raise ValueError(f"a downstream's name is 1 to 64 characters of A-Z, a-z, 0-9, _, . and -, got {name!r}")
    return name


def names(policy: Policy, known: Iterable[str]) -> list[str]:
    """Return the names of all downstreams that a policy or the table has, and DEFAULT."""
    return sorted({DEFAULT, *policy.downstreams, *known})


def _expiry(health: Health) -> Item:
    """Settings of operators never expire."""
    if health.breaker.forced or health.concurrency.limit_set is not None:
        return {}
    return {"expires_at": {"N": str((int(time.time()) // DAY + KEPT_DAYS) * DAY)}}


def _parse(downstream: str, item: Item) -> Health:
    if not item:
        return Health()
    row = Attributes(item)
    try:
        row.whole("version"), row.text("writer")
        return row.parsed("health", _health)
    except MalformedAttribute as error:
        raise MalformedHealth(
            f"item {downstream!r} of the downstream table: {error.attribute} is missing or not of its documented type. "
            "Delete the item to start with a closed breaker"
        ) from None


def _parse_or_report(item: Item) -> Health | MalformedHealth:
    try:
        return _parse(item["downstream"]["S"], item)
    except MalformedHealth as error:
        return error


def _to_json(health: Health) -> str:
    changes = [vars(change) for change in health.breaker.changes]
    fields = vars(health.breaker) | vars(health.concurrency) | vars(health.budget)
    return json.dumps(fields | {"permits": dict(health.permits), "changes": changes}, separators=(",", ":"))


def _health(text: str) -> Health:
    """Decode the health. During a deployment, another version may have written fields that this one does not have."""
    given: dict[str, Any] = dict(json.loads(text))
    breaker = _known(Breaker, given)
    if not isinstance(breaker.outcomes, str):
        raise TypeError("outcomes must be text")
    state, changes = State(given["state"]), tuple(_known(Change, change) for change in given["changes"])
    permits = {code: (float(until), int(epoch)) for code, (until, epoch) in dict(given["permits"]).items()}
    return Health(
        replace(breaker, state=state, changes=changes), _known(Concurrency, given), _known(Budget, given), permits
    )


def _known[P: (Breaker, Concurrency, Budget, Change)](part: type[P], given: Mapping[str, Any]) -> P:
    fields = part.__dataclass_fields__
    for name, field in fields.items():
        if type(field.default) in (int, float) and not isinstance(given.get(name, 0), int | float):
            raise TypeError(f"{name} must be a number")
    return part(**{name: given[name] for name in fields if name in given})
