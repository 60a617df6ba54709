"""Instances that share one token, an API with one live token, and the token item. `check` and `end` check T1 to T4.

In a `timeless` world, time passes only when all actors wait. It moves to the next moment at which a waiting actor would
find something new. A frozen actor may continue at any moment between.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from slotkeeper.chatbot.token import timing
from slotkeeper.token import Timing
from slotkeeper.token.timing import OWN_FAILURE_PAUSE
from tests.simulation import token_actors as code
from tests.simulation.aws import dynamodb
from tests.simulation.frozen import Record, freeze, record
from tests.simulation.token_actors import NAME, OWN_FAILURE, PAUSE, TOKENS, UNAUTHORIZED, Settings
from tests.simulation.transcript import LOST as TIMED_OUT
from tests.simulation.transcript import Answer, Question
from tests.simulation.worlds import (
    DIE,
    DIE_AFTER,
    LATE,
    LOSE,
    NOT_SENT,
    THROTTLE,
    TWICE,
    Actor,
    Choice,
    Violation,
    World,
)

FREEZE, FREEZE_AFTER, REFUSE, OWN = "freeze", "freeze after", "refuse", "own failure"
SLOW, SLOW_ANSWER, NO_ANSWER = "slow", "slow answer", "no answer"
CACHED = {"live": ("t1", 1), "old": ("t0", 0), "none": None}  # token and generation in an instance's cache

# Faults of one kind, for `Plan.hows`.
DEATHS = frozenset({DIE, DIE_AFTER})
LOST = frozenset({LOSE, LATE, TWICE, NOT_SENT})
FREEZES = frozenset({FREEZE, FREEZE_AFTER})
NO_TOKEN: dict[str, Any] = {"stored": False, "revocations": 0}

# How many additional POSTs a fault may cause. Other faults may cause none: after a POST whose answer was lost, no
# instance sends another for `Timing.refusal`, which is longer than a call.
POSTS_OF_A_FAULT = {
    DIE: 1,  # if the instance has received a token and not stored it
    FREEZE: 2,  # its late POST invalidates the token of the instance that took over: that POST, and one to replace it
    FREEZE_AFTER: 1,
}


@dataclass(frozen=True)
class Plan:
    """The settings of a world.

    Attributes:
        caches: the token that each instance has cached at first: a name of CACHED.
        calls: how many calls each instance makes.
        aheads: the seconds by which each instance's clock is ahead, at most `Timing.clock_skew`.
        stored: whether a token is stored at first.
        revocations: how many times the API revokes the live token without a POST.
        scheduled: how many times its schedule invokes the refresher function.
        drops: how many times an operator drops the token.
        probes, hands_over: see Settings.
        slow: the API may take all the time that a POST allows for its answer.
        slow_probes: the same for a probe, which may also get no answer in that time.
        within: seconds for a call.
        hows: the faults that are tried; all if empty.
    """

    caches: tuple[str, ...] = ("live", "live", "live")
    calls: int = 1
    aheads: tuple[float, ...] = (0.0, 0.0, 0.0)
    stored: bool = True
    revocations: int = 1
    scheduled: int = 0
    drops: int = 0
    probes: bool = True
    hands_over: bool = False
    slow: bool = True
    slow_probes: bool = False
    timing: Timing = field(default_factory=lambda: timing(0))
    within: float = 17.0
    hows: frozenset[str] = frozenset()

    @property
    def settings(self) -> Settings:
        return Settings(self.timing, self.within, self.probes, self.hands_over)


class Notes(NamedTuple):
    """The world's notes on an actor. Times are the world's, in seconds since the epoch.

    Attributes:
        ahead: seconds by which its clock is ahead.
        behind: seconds for which its monotonic clock did not run.
        began: when its call began.
        paused: seconds since then in which it was frozen, or did not run although it could.
        seen: the item of its last read, at `read_at`.
        watched: the release code that it read, and when it first did.
        frozen: since when it is frozen, or 0.
        until: when the API will have answered, or 0.
        rests: until when it leaves the lock to other instances, after a failure of its own.
        held: the answer that it has not received yet.
    """

    ahead: float = 0.0
    behind: float = 0.0
    began: float = 0.0
    paused: float = 0.0
    seen: Any = None
    read_at: float = 0.0
    watched: tuple[str, float] = ("", 0.0)
    frozen: float = 0.0
    until: float = 0.0
    rests: float = 0.0
    held: Any = None


class Api(NamedTuple):
    """`live`: the number of the live token, or 0. `posts`: how many tokens the API has issued."""

    live: int
    posts: int


class TokenWorld(World):
    """The world of the token lock; see World."""

    def __init__(self, plan: Plan, *, timeless: bool = False) -> None:
        super().__init__(timeless=timeless)
        self.plan = plan
        item = {
            "token_name": {"S": NAME},
            "access_token": {"S": "t1"},
            "generation": {"N": "1"},
            "stored_at": {"N": f"{self.now - 60:.3f}"},
        }
        self.services = {
            "dynamodb": dynamodb.tables(tokens=[item] if plan.stored else []),
            "chat": Api(1, 1) if plan.stored else Api(0, 1),
        }
        self.revocations = plan.revocations
        self.scheduled = plan.scheduled
        self.drops = plan.drops
        self.needed = 1 + (not plan.stored)  # tokens: one for each invalidation
        self.more = 0  # additional tokens that the faults so far may cause
        self.codes: dict[str, str] = {}  # issued token that is not stored yet -> its instance's release code then
        self.locks: dict[str, str] = {}  # actor -> the release code of its last lock
        self.refreshers = 0
        self.refusals = 0
        self.own_failures = 0
        self.no_post_until = 0.0  # after a refusal
        self.died_at = 0.0  # time of the death that is the only fault so far, or 0
        self.revoked_late = False  # during a refresh or after a death: then one refresh is not enough
        for number, (cache, ahead) in enumerate(zip(plan.caches, plan.aheads, strict=True)):
            name = "abcdef"[number]
            node = code.instances.begin(name, CACHED[cache], plan.calls, plan.settings)
            self.begin(name, node, Notes(ahead=ahead))

    def copy(self) -> TokenWorld:
        other = super().copy()
        other.codes = dict(self.codes)
        other.locks = dict(self.locks)
        return other

    # Choices -------------------------------------------------------------------------------------------------------

    def steps(self) -> list[Choice]:
        choices: list[Choice] = []
        for name, actor in self.actors.items():
            question = actor.node.question
            assert question is not None
            if actor.notes.frozen or actor.notes.until > self.now:
                continue
            if actor.notes.until:
                choices.append(Choice("answer", name))
            elif question.service != "actor":
                choices.append(Choice("call", name))
                if question.operation == "post" and self.plan.slow:
                    choices += [Choice("call", name, SLOW), Choice("call", name, SLOW_ANSWER)]
                if question.operation == "probe" and self.plan.slow_probes and question.parameters["seconds"] > 0:
                    choices += [Choice("call", name, SLOW_ANSWER), Choice("call", name, NO_ANSWER)]
            elif self.may_continue(name) if self.timeless else self.now >= actor.asleep_until:
                choices.append(Choice("wake_up", name))
        idle = not choices
        choices += self._at_any_time()
        if idle and choices and self._next_moment():
            choices.append(Choice("pass_time"))
        return choices

    def _at_any_time(self) -> list[Choice]:
        """Events that may happen now or later."""
        choices = [Choice("land", str(n)) for n in range(len(self.in_transit))]
        for name, actor in self.actors.items():
            if actor.notes.frozen:
                choices.append(Choice("unfreeze", name))
                if actor.notes.frozen < self.now:
                    choices.append(Choice("unfreeze", name, "its monotonic clock did not run"))
        if self.actors:
            if self.revocations and self.services["chat"].live:
                choices.append(Choice("revoke"))
            if self.scheduled:
                choices.append(Choice("schedule"))
            if self.drops:
                choices.append(Choice("drop"))
        return choices

    def time_steps(self) -> list[Choice]:
        return [Choice("pass_time")] if self._next_moment() else []

    def slow_steps(self) -> list[Choice]:
        # The time for a POST, and the time from its answer to the store, are bounded.
        posts = any(a.node.question is not None and a.node.question.service == "chat" for a in self.actors.values())
        return [Choice("pass_time")] if not posts and not self.codes and self._next_moment() else []

    def possible_faults(self) -> list[Choice]:
        choices: list[Choice] = []
        for name, actor in self.actors.items():
            question = actor.node.question
            assert question is not None
            if actor.notes.frozen or actor.notes.until:
                continue
            match question.service, question.operation:
                case "actor", _:
                    continue
                case "chat", "get" | "probe":
                    hows: tuple[str, ...] = (DIE, FREEZE, LOSE)
                case "chat", _:
                    hows = (DIE, DIE_AFTER, FREEZE, FREEZE_AFTER, LOSE, NOT_SENT, REFUSE, OWN, LATE)
                case "dynamodb", "get_item":
                    hows = (DIE, FREEZE, FREEZE_AFTER, THROTTLE, LOSE)
                case _:
                    hows = (DIE, DIE_AFTER, FREEZE, FREEZE_AFTER, THROTTLE, LOSE, NOT_SENT, TWICE, LATE)
            choices += [Choice("call", name, how, True) for how in hows if not self.plan.hows or how in self.plan.hows]
        return choices

    # Events --------------------------------------------------------------------------------------------------------

    def take(self, choice: Choice) -> None:
        if choice.is_fault and choice.how != DIE:
            self.more += POSTS_OF_A_FAULT.get(choice.how, 0)
            # Without a probe, an instance that was frozen may report a token as dead that was refreshed meanwhile.
            self.more += choice.how in FREEZES and (self.plan.hands_over or not self.plan.probes)
        super().take(choice)

    def call(self, name: str, how: str) -> None:
        actor = self.actors[name]
        question = actor.node.question
        assert question is not None
        notes = actor.notes
        if question.service == "dynamodb" and self.timeless:
            if how in (THROTTLE, NOT_SENT, LOSE, LATE):  # then it reads again, even if the item is the same
                notes = notes._replace(seen=None)
            elif question.operation == "get_item":
                notes = self._sees(notes)
        self.actors[name] = actor = actor._replace(notes=notes)
        if how == FREEZE:
            self.log(name, "freezes before", question)
            self.actors[name] = actor._replace(notes=notes._replace(frozen=self.now))
        elif how == FREEZE_AFTER:
            answer = self.perform(question)
            self.log(name, "freezes after", question, answer)
            self.actors[name] = actor._replace(notes=notes._replace(frozen=self.now, held=answer))
        elif how in (SLOW, SLOW_ANSWER, NO_ANSWER):
            held = self.perform(question) if how == SLOW_ANSWER else TIMED_OUT if how == NO_ANSWER else None
            until = self.now + question.parameters["seconds"]
            self.log(name, f"waits {question.parameters['seconds']} s for the answer ({how}) to", question)
            self.actors[name] = actor._replace(notes=notes._replace(until=until, held=held))
        elif how == REFUSE:
            self.log(name, "is refused", question)
            self.refusals += 1
            self._check_pause_after_refusal()
            self._advance(name, actor._replace(node=actor.node.after(Answer(error="503"))))
        elif how == OWN:
            self.log(name, "fails before", question)
            # After a refresher's own failure no instance gets a token for OWN_FAILURE_PAUSE: no other can call the API.
            self.own_failures += not name.startswith("refresher")
            rests = self.now + OWN_FAILURE_PAUSE + notes.behind
            self.actors[name] = actor = actor._replace(notes=notes._replace(rests=rests))
            self._advance(name, actor._replace(node=actor.node.after(Answer(error=OWN_FAILURE))))
        else:
            super().call(name, how)

    def answer(self, name: str, _: str) -> None:
        """A slow answer of the API arrives."""
        actor = self.actors[name]
        assert actor.node.question is not None
        answer = actor.notes.held or self.perform(actor.node.question)
        self.log(name, "receives the answer to", actor.node.question, answer)
        notes = actor.notes._replace(until=0.0, held=None)
        self.actors[name] = actor = actor._replace(notes=notes)
        self._advance(name, actor._replace(node=actor.node.after(answer)))

    def unfreeze(self, name: str, how: str) -> None:
        """A frozen actor continues."""
        actor = self.actors[name]
        notes = actor.notes
        seconds = self.now - notes.frozen
        self.log(name, f"continues after {seconds:.1f} s {how}")
        answer = notes.held
        behind = notes.behind + (seconds if how else 0.0)
        notes = notes._replace(frozen=0.0, held=None, paused=notes.paused + seconds, behind=behind)
        self.actors[name] = actor = actor._replace(notes=notes)
        if answer is not None:
            self._advance(name, actor._replace(node=actor.node.after(answer)))

    def revoke(self, _: str, __: str) -> None:
        """The API revokes the live token."""
        self.log("API", f"revokes t{self.services['chat'].live}")
        self.services["chat"] = self.services["chat"]._replace(live=0)
        self.revocations -= 1
        self.revoked_late = self.revoked_late or bool(self.died_at) or "refresh_lock" in self._item()
        self.needed += 1

    def schedule(self, _: str, __: str) -> None:
        """The schedule invokes the refresher function."""
        self.scheduled -= 1
        self.needed += 1
        self._invoke(None)

    def drop(self, _: str, __: str) -> None:
        """An operator drops the token."""
        self.drops -= 1
        self.needed += 1
        name = f"operator {self.drops}"
        self.begin(name, code.operators.begin(name), Notes())

    def _invoke(self, delegated_code: str | None) -> None:
        self.refreshers += 1
        name = f"refresher {self.refreshers}"
        self.begin(name, code.refreshers.begin(name, delegated_code, self.plan.settings), Notes())

    def pass_time(self, _: str, __: str) -> None:
        """The clock moves to the next moment of interest."""
        moment = self._next_moment()
        assert moment > self.now
        for name, actor in self.actors.items():
            if not actor.notes.frozen and not actor.notes.until and not self._waits(actor):
                paused = actor.notes.paused + moment - self.now
                self.actors[name] = actor._replace(notes=actor.notes._replace(paused=paused))
        self.now = moment

    # Answers to actors ---------------------------------------------------------------------------------------------

    def own_answer(self, name: str, actor: Actor, question: Question) -> Answer | None:
        notes = actor.notes
        match question.operation:
            case "clocks":
                return Answer((self.now + notes.ahead, self.now - notes.behind))
            case "begin":
                self.actors[name] = actor._replace(notes=notes._replace(began=self.now, paused=0.0))
                return Answer()
            case "end":
                self._check_outcome(name, notes, question.parameters)
                return Answer()
        raise AssertionError(f"no service answers {question}")

    def perform(self, question: Question) -> Answer:
        if question.service == "chat":
            return self._chat(question)
        if question.service == "lambda":
            self._invoke(question.parameters["name"])
            return Answer(freeze({"StatusCode": 202}))
        before = self._item()
        answer = super().perform(question)
        after = self._item()
        if "refresh_lock" in after and after is not before:
            taken = after["refresh_lock"]["M"]["release_code"]["S"]
            self.locks[taken.rpartition("-")[0]] = taken
        if "access_token" in after and after["access_token"] is not before.get("access_token"):
            self._check_stored(before, after)
        if "refused_until" in after and after is not before:
            self.no_post_until = self.now + self.plan.timing.refusal
        return answer

    def _chat(self, question: Question) -> Answer:
        api = self.services["chat"]
        if question.operation != "post":
            token = question.parameters["name"]
            if token in self.codes:
                raise Violation("T3", f"an instance uses {token}, which was never stored")
            return Answer() if token == f"t{api.live}" else Answer(error=UNAUTHORIZED)
        self._check_pause_after_refusal()
        self.services["chat"] = Api(api.posts + 1, api.posts + 1)
        token = f"t{api.posts + 1}"
        if question.parameters["by"] in self.actors:
            self.codes[token] = self.locks.get(question.parameters["by"], "no lock")
        return Answer(token)

    def finished(self, name: str, actor: Actor) -> None:
        if actor.node.result is not None:
            raise Violation("T4", f"{name} ended in an undocumented way: {actor.node.result}")

    def died(self, name: str, actor: Actor) -> None:
        if self.locks.get(name) in self.codes.values():
            self.more += POSTS_OF_A_FAULT[DIE]
        if self.faults == 1:
            self.died_at = self.now

    # Reading the state ---------------------------------------------------------------------------------------------

    def _item(self) -> Record:
        return self.services["dynamodb"][TOKENS].get(NAME) or _NOTHING  # type: ignore[no-any-return]

    def _waits(self, actor: Actor) -> bool:
        assert actor.node.question is not None
        return actor.node.question.service == "actor" and (self.timeless or actor.asleep_until > self.now)

    def _sees(self, notes: Notes) -> Notes:
        item = self._item()
        lock = item.get("refresh_lock")
        now = lock["M"]["release_code"]["S"] if lock is not None else ""
        watched = notes.watched if notes.watched[0] == now else (now, self.now)
        return notes._replace(seen=item, read_at=self.now, watched=watched)

    def may_continue(self, name: str) -> bool:
        """A sleeping actor continues when the item has changed, or when the same item means something else."""
        notes = self.actors[name].notes
        return notes.seen is not self._item() or self.now >= self._wakes_at(notes)

    def _wakes_at(self, notes: Notes) -> float:
        """When the actor would decide differently with the same item."""
        times = self.plan.timing
        moments = [notes.began + self.plan.within + notes.paused, notes.rests]
        lock = notes.seen.get("refresh_lock")
        if lock is not None:
            moments.append(float(lock["M"]["expires"]["N"]) - notes.ahead)
            moments.append(notes.watched[1] + times.lease + notes.behind)
        elif "stored_at" in notes.seen:
            moments.append(float(notes.seen["stored_at"]["N"]) + times.min_interval - notes.ahead)
        return min((moment for moment in moments if moment > notes.read_at), default=notes.read_at + PAUSE)

    def _next_moment(self) -> float:
        """The next time at which an actor may behave differently, or 0."""
        times = self.plan.timing
        moments: list[float] = []
        for actor in self.actors.values():
            notes = actor.notes
            if notes.frozen:  # until its lock is too old for the POST, for the store, and for any instance's call
                holding = (times.api / 2, times.holding, self.plan.within + 1)
                moments += [notes.frozen + seconds for seconds in holding]
            elif notes.until:
                moments.append(notes.until)
            elif not self.timeless:
                moments.append(actor.asleep_until)
            elif notes.seen is not None:
                moments.append(self._wakes_at(notes))
        later = [moment for moment in moments if moment > self.now]
        if not later:
            return 0.0
        return min(later) if self.timeless else max(self.now + PAUSE, -(-min(later) // 1))

    # Properties ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        posts = self.services["chat"].posts
        allowed = self.needed + (self.more if self.timeless else 2 * self.faults)
        if posts > allowed:
            raise Violation("T1", f"the API received {posts} POSTs, and {allowed} would have been enough")

    def _check_pause_after_refusal(self) -> None:
        if self.now < self.no_post_until and self.faults == self.refusals:
            raise Violation("T1", "the API receives a POST during the pause after its refusal")

    def _check_stored(self, before: Record, after: Record) -> None:
        token = after["access_token"]["S"]
        older = before["access_token"]["S"] if "access_token" in before else "t0"
        if _number(token) <= _number(older):
            raise Violation("T3", f"{token} is stored over {older}")
        lock = before.get("refresh_lock")
        held = lock["M"]["release_code"]["S"] if lock is not None else "no lock"
        asked_under = self.codes.pop(token, "")
        if held != asked_under:
            raise Violation("T3", f"{token}, requested under {asked_under}, is stored under {held}")

    def _check_outcome(self, name: str, notes: Notes, outcome: str) -> None:
        times = self.plan.timing
        seconds = self.now - notes.began - notes.paused
        self.log(name, f"ends its call after {seconds:.1f} s: {outcome}")
        pauses = 0 if self.timeless else 2 * PAUSE
        if seconds > self.plan.within + times.store + pauses and name not in self.ever_suspended:
            raise Violation("T4", f"{name} waited {seconds:.1f} s, longer than its call allows")
        enough = self.died_at + times.lease + times.holding + pauses
        ends = self.plan.revocations + self.plan.scheduled + self.plan.drops
        calm = ends < 2 and not (self.revoked_late or times.min_interval)
        if outcome == "answer":
            if self.faults == 1 and self.died_at and calm and self.now > enough + notes.paused:
                raise Violation("T2", f"{name} got its token {self.now - self.died_at:.1f} s after a death, too late")
            return
        # A new token that dies is refreshed only after the interval. A call with less time left fails.
        if not self.faults and ends < 2 and not times.min_interval:
            raise Violation("T4", f"{name} ended with {outcome} although there was no fault")
        if self.faults == self.own_failures == 1 and calm and not notes.rests:
            raise Violation("T2", f"{name} ended with {outcome} after another instance's own failure")
        if self.faults == 1 and self.died_at and calm and notes.began + self.plan.within >= enough:
            raise Violation("T2", f"{name} ended with {outcome} after another instance's death")

    def check_end(self) -> None:
        """A new instance that calls much later gets a token immediately."""
        if self.plan.caches == ("none",):
            return
        plan = Plan(
            caches=("none",), aheads=(0.0,), revocations=0, timing=self.plan.timing, within=self.plan.within, slow=False
        )
        after = TokenWorld(plan, timeless=self.timeless)
        after.emit = self.emit
        after.now = self.now + self.plan.timing.longest_refusal
        after.services = dict(self.services)
        stored = self._item().get("access_token")
        api = self.services["chat"]
        after.needed = api.posts + (stored is None or stored["S"] != f"t{api.live}")
        after.actors.clear()
        after.begin("last", code.instances.begin("last", None, 1, plan.settings), Notes())
        while choices := after.steps() or after.time_steps():
            after.take(choices[0])

    def key(self) -> Hashable:
        return (
            *self.services.values(),
            frozenset(self.actors.items()),
            tuple(sorted(self.codes.items())),
            tuple(sorted(self.locks.items())),
            self.in_transit,
            self.revocations,
            self.scheduled,
            self.drops,
            self.refreshers,
            self.needed,
            self.more,
            self.faults,
            self.refusals,
            self.own_failures,
            self.no_post_until,
            self.died_at,
            self.revoked_late,
            self.now,
        )

    def summary(self) -> str:
        item = self._item()
        lock = item.get("refresh_lock")
        held = f"locked by {lock['M']['release_code']['S']}" if lock is not None else "not locked"
        refused = ", refused" if "refused_until" in item else ""
        stored = item.get("access_token", {"S": "nothing"})["S"]
        return f"stored {stored}, {held}{refused}; live t{self.services['chat'].live}"


_NOTHING = record({})


def _number(token: str) -> int:
    return int(token[1:])


def drawn(random: Random) -> TokenWorld:
    """A random world for random schedules."""
    instances = random.choice((2, 3, 3, 4, 5))
    stored = random.random() < 0.8
    caches = tuple(random.choice(("live", "live", "old", "none")) if stored else "none" for _ in range(instances))
    skewed = random.random() < 0.5
    hands_over = random.random() < 0.25
    min_interval = random.choice((0.0, 5.0))
    plan = Plan(
        caches,
        calls=random.choice((1, 2)),
        aheads=tuple(random.choice((-2.0, 0.0, 2.0)) if skewed else 0.0 for _ in range(instances)),
        stored=stored,
        revocations=random.choice((0, 1, 1, 2)),
        scheduled=1 if hands_over and random.random() < 0.5 else 0,
        drops=random.choice((0, 0, 0, 1, 2)),
        probes=random.random() < 0.7,
        hands_over=hands_over,
        timing=timing(min_interval),
    )
    return TokenWorld(plan)
