"""The state of the token lock's world, and the checks of T1 to T4."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from slotkeeper.chatbot.token import timing
from slotkeeper.token import Timing
from tests.simulation import token_actors as code
from tests.simulation.aws import dynamodb
from tests.simulation.frozen import Record, record
from tests.simulation.token_actors import NAME, PAUSE, TOKENS, Settings
from tests.simulation.worlds import DIE, DIE_AFTER, LATE, LOSE, NOT_SENT, TWICE, Actor, Violation, World

FREEZE, FREEZE_AFTER, REFUSE, OWN = "freeze", "freeze after", "refuse", "own failure"
SLOW, SLOW_ANSWER, NO_ANSWER = "slow", "slow answer", "no answer"
CACHED = {"live": ("t1", 1), "old": ("t0", 0), "none": None}  # token and generation in an instance's cache

# Faults of one kind, for `Plan.fault_kinds`.
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
    """The settings of a world."""

    # The token that each instance has cached at first: a name of CACHED
    caches: tuple[str, ...] = ("live", "live", "live")
    calls: int = 1  # how many calls each instance makes
    # The seconds by which each instance's clock is ahead, at most `Timing.clock_skew`
    clock_leads: tuple[float, ...] = (0.0, 0.0, 0.0)
    stored: bool = True  # whether a token is stored at first
    revocations: int = 1  # how many times the API revokes the live token without a POST
    scheduled: int = 0  # how many times its schedule invokes the refresher function
    drops: int = 0  # how many times an operator drops the token
    probes: bool = True  # see Settings
    hands_over: bool = False
    slow: bool = True  # the API may take all the time that a POST allows for its answer
    slow_probes: bool = False  # the same for a probe, which may also get no answer in that time
    timing: Timing = field(default_factory=lambda: timing(0))
    within: float = 17.0  # seconds for a call
    fault_kinds: frozenset[str] = frozenset()  # the faults that are tried; all if empty

    @property
    def settings(self) -> Settings:
        return Settings(self.timing, self.within, self.probes, self.hands_over)


class Notes(NamedTuple):
    """The world's notes on an actor. Times are the world's, in seconds since the epoch."""

    ahead: float = 0.0  # seconds by which its clock is ahead
    behind: float = 0.0  # seconds for which its monotonic clock did not run
    began: float = 0.0  # when its call began
    paused: float = 0.0  # seconds since then in which it was frozen, or did not run although it could
    seen: Any = None  # the item of its last read, at `read_at`
    read_at: float = 0.0
    watched: tuple[str, float] = ("", 0.0)  # the release code that it read, and when it first did
    frozen: float = 0.0  # since when it is frozen, or 0
    answer_at: float = 0.0  # when the API will have answered, or 0
    pauses_until: float = 0.0  # until when it leaves the lock to other instances, after a failure of its own
    pending: Any = None  # the answer that it has not received yet


class Api(NamedTuple):
    """`live`: the number of the live token, or 0. `posts`: how many tokens the API has issued."""

    live: int
    posts: int


class TokenState(World):
    """The services and the world's notes."""

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
        self.needed_posts = 1 + (not plan.stored)  # tokens: one for each invalidation
        self.extra_posts = 0  # additional tokens that the faults so far may cause
        self.codes: dict[str, str] = {}  # issued token that is not stored yet -> its instance's release code then
        self.locks: dict[str, str] = {}  # actor -> the release code of its last lock
        self.refreshers = 0
        self.refusals = 0
        self.own_failures = 0
        self.no_post_until = 0.0  # after a refusal
        self.died_at = 0.0  # time of the death that is the only fault so far, or 0
        self.revoked_late = False  # during a refresh or after a death: then one refresh is not enough
        for number, (cache, ahead) in enumerate(zip(plan.caches, plan.clock_leads, strict=True)):
            name = "abcdef"[number]
            node = code.instances.begin(name, CACHED[cache], plan.calls, plan.settings)
            self.begin(name, node, Notes(ahead=ahead))

    def copy(self) -> Self:
        other = super().copy()
        other.codes = dict(self.codes)
        other.locks = dict(self.locks)
        return other

    # Reading the state ---------------------------------------------------------------------------------------------

    def _item(self) -> Record:
        return self.services["dynamodb"][TOKENS].get(NAME) or _NOTHING  # type: ignore[no-any-return]

    def _is_waiting(self, actor: Actor) -> bool:
        return actor.question.service == "actor" and (self.timeless or actor.asleep_until > self.now)

    def _note_read(self, name: str) -> None:
        item, watched = self._item(), self.actors[name].notes.watched
        lock = item.get("refresh_lock")
        now = lock["M"]["release_code"]["S"] if lock is not None else ""
        self.note(name, seen=item, read_at=self.now, watched=watched if watched[0] == now else (now, self.now))

    def may_continue(self, name: str) -> bool:
        """A sleeping actor continues when the item has changed, or when the same item means something else."""
        notes = self.actors[name].notes
        return notes.seen is not self._item() or self.now >= self._wakes_at(notes)

    def _wakes_at(self, notes: Notes) -> float:
        """When the actor would decide differently with the same item."""
        times = self.plan.timing
        moments = [notes.began + self.plan.within + notes.paused, notes.pauses_until]
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
            elif notes.answer_at:
                moments.append(notes.answer_at)
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
        allowed = self.needed_posts + (self.extra_posts if self.timeless else 2 * self.faults)
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
        if self.faults == self.own_failures == 1 and calm and not notes.pauses_until:
            raise Violation("T2", f"{name} ended with {outcome} after another instance's own failure")
        if self.faults == 1 and self.died_at and calm and notes.began + self.plan.within >= enough:
            raise Violation("T2", f"{name} ended with {outcome} after another instance's death")

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
