"""The events of the token lock's world: instances that share one token, an API with one live token, and the token item.

In a `timeless` world, time passes only when all actors wait. It moves to the next moment at which a waiting actor would
find something new. A frozen actor may continue at any moment between.
"""

from __future__ import annotations

from random import Random
from typing import Any

from slotkeeper.chatbot.token import timing
from slotkeeper.token.timing import OWN_FAILURE_PAUSE
from tests.simulation import token_actors as code
from tests.simulation.frozen import freeze
from tests.simulation.token_actors import OWN_FAILURE, UNAUTHORIZED
from tests.simulation.token_state import (
    FREEZE,
    FREEZE_AFTER,
    FREEZES,
    NO_ANSWER,
    OWN,
    POSTS_OF_A_FAULT,
    REFUSE,
    SLOW,
    SLOW_ANSWER,
    Api,
    Notes,
    Plan,
    TokenState,
)
from tests.simulation.transcript import LOST as TIMED_OUT
from tests.simulation.transcript import Answer, Question
from tests.simulation.worlds import DIE, DIE_AFTER, LATE, LOSE, NOT_SENT, THROTTLE, TWICE, Actor, Choice, Violation


class TokenWorld(TokenState):
    """The world of the token lock; see World."""

    # Choices -------------------------------------------------------------------------------------------------------

    def steps(self) -> list[Choice]:
        choices: list[Choice] = []
        for name, actor in self.actors.items():
            question = actor.question
            if actor.notes.frozen or actor.notes.answer_at > self.now:
                continue
            if actor.notes.answer_at:
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
        choices = self.arrivals()
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
        posts = any(a.question.service == "chat" for a in self.actors.values())
        return [Choice("pass_time")] if not posts and not self.codes and self._next_moment() else []

    def possible_faults(self) -> list[Choice]:
        choices: list[Choice] = []
        for name, actor in self.actors.items():
            question = actor.question
            if actor.notes.frozen or actor.notes.answer_at:
                continue
            match question.service, question.operation:
                case "actor", _:
                    continue
                case "chat", "get":
                    kinds: tuple[str, ...] = (DIE, FREEZE, LOSE)
                case "chat", "probe":
                    kinds = (DIE, FREEZE, LOSE, REFUSE)
                case "chat", _:
                    kinds = (DIE, DIE_AFTER, FREEZE, FREEZE_AFTER, LOSE, NOT_SENT, REFUSE, OWN, LATE)
                case "dynamodb", "get_item":
                    kinds = (DIE, FREEZE, FREEZE_AFTER, THROTTLE, LOSE)
                case _:
                    kinds = (DIE, DIE_AFTER, FREEZE, FREEZE_AFTER, THROTTLE, LOSE, NOT_SENT, TWICE, LATE)
            tried = self.plan.fault_kinds or kinds
            choices += [Choice("call", name, how, True) for how in kinds if how in tried]
        return choices

    # Events --------------------------------------------------------------------------------------------------------

    def take(self, choice: Choice) -> None:
        if choice.is_fault and choice.how != DIE:
            self.extra_posts += POSTS_OF_A_FAULT.get(choice.how, 0)
            # Without a probe, an instance that was frozen may report a token as dead that was refreshed meanwhile.
            self.extra_posts += choice.how in FREEZES and (self.plan.hands_over or not self.plan.probes)
        super().take(choice)

    def call(self, name: str, how: str) -> None:
        actor = self.actors[name]
        question = actor.question
        if question.service == "dynamodb" and self.timeless:
            if how in (THROTTLE, NOT_SENT, LOSE, LATE):  # then it reads again, even if the item is the same
                actor = self.note(name, seen=None)
            elif question.operation == "get_item":
                self._note_read(name)
        if how == FREEZE:
            self.log(name, "freezes before", question)
            self.note(name, frozen=self.now)
        elif how == FREEZE_AFTER:
            answer = self.perform(question)
            self.log(name, "freezes after", question, answer)
            self.note(name, frozen=self.now, pending=answer)
        elif how in (SLOW, SLOW_ANSWER, NO_ANSWER):
            held = self.perform(question) if how == SLOW_ANSWER else TIMED_OUT if how == NO_ANSWER else None
            self.log(name, f"waits {question.parameters['seconds']} s for the answer ({how}) to", question)
            self.note(name, answer_at=self.now + question.parameters["seconds"], pending=held)
        elif how == REFUSE:
            self.log(name, "is refused", question)
            self.refusals += 1
            self._check_pause_after_refusal()
            self._advance(name, actor.after(Answer(error="503")))
        elif how == OWN:
            self.log(name, "fails before", question)
            # After a refresher's own failure no instance gets a token for OWN_FAILURE_PAUSE: no other can call the API.
            self.own_failures += not name.startswith("refresher")
            actor = self.note(name, pauses_until=self.now + OWN_FAILURE_PAUSE + actor.notes.behind)
            self._advance(name, actor.after(Answer(error=OWN_FAILURE)))
        else:
            super().call(name, how)

    def answer(self, name: str, _: str) -> None:
        """A slow answer of the API arrives."""
        actor = self.actors[name]
        answer = actor.notes.pending or self.perform(actor.question)
        self.log(name, "receives the answer to", actor.question, answer)
        self._advance(name, self.note(name, answer_at=0.0, pending=None).after(answer))

    def unfreeze(self, name: str, how: str) -> None:
        """A frozen actor continues."""
        notes: Notes = self.actors[name].notes
        seconds, answer = self.now - notes.frozen, notes.pending
        self.log(name, f"continues after {seconds:.1f} s {how}")
        behind = notes.behind + (seconds if how else 0.0)
        actor = self.note(name, frozen=0.0, pending=None, paused=notes.paused + seconds, behind=behind)
        if answer is not None:
            self._advance(name, actor.after(answer))

    def revoke(self, _: str, __: str) -> None:
        """The API revokes the live token."""
        self.log("API", f"revokes t{self.services['chat'].live}")
        self.services["chat"] = self.services["chat"]._replace(live=0)
        self.revocations -= 1
        self.revoked_late = self.revoked_late or bool(self.died_at) or "refresh_lock" in self._item()
        self.needed_posts += 1

    def schedule(self, _: str, __: str) -> None:
        """The schedule invokes the refresher function."""
        self.scheduled -= 1
        self.needed_posts += 1
        self._invoke(None)

    def drop(self, _: str, __: str) -> None:
        """An operator drops the token."""
        self.drops -= 1
        self.needed_posts += 1
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
            if not actor.notes.frozen and not actor.notes.answer_at and not self._is_waiting(actor):
                self.note(name, paused=actor.notes.paused + moment - self.now)
        self.now = moment

    # Answers to actors ---------------------------------------------------------------------------------------------

    def clock_of(self, name: str, actor: Actor) -> Any:
        """Its clock and its monotonic clock."""
        return (self.now + actor.notes.ahead, self.now - actor.notes.behind)

    def own_answer(self, name: str, actor: Actor, question: Question) -> Answer | None:
        notes = actor.notes
        match question.operation:
            case "begin":
                self.actors[name] = actor  # its first question is this one
                self.note(name, began=self.now, paused=0.0)
                return Answer()
            case "end":
                self._check_outcome(name, notes, question.parameters)
                return Answer()
        return super().own_answer(name, actor, question)

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
            self.extra_posts += POSTS_OF_A_FAULT[DIE]
        if self.faults == 1:
            self.died_at = self.now

    def check_end(self) -> None:
        """A new instance that calls much later gets a token immediately."""
        if self.plan.caches == ("none",):
            return
        own = self.plan
        plan = Plan(("none",), clock_leads=(0.0,), revocations=0, timing=own.timing, within=own.within, slow=False)
        after = TokenWorld(plan, timeless=self.timeless)
        after.emit = self.emit
        after.now = self.now + self.plan.timing.longest_refusal
        after.services = dict(self.services)
        stored = self._item().get("access_token")
        api = self.services["chat"]
        after.needed_posts = api.posts + (stored is None or stored["S"] != f"t{api.live}")
        after.actors.clear()
        after.begin("last", code.instances.begin("last", None, 1, plan.settings), Notes())
        while choices := after.steps() or after.time_steps():
            after.take(choices[0])


def random_world(random: Random) -> TokenWorld:
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
        clock_leads=tuple(random.choice((-2.0, 0.0, 2.0)) if skewed else 0.0 for _ in range(instances)),
        stored=stored,
        revocations=random.choice((0, 1, 1, 2)),
        scheduled=1 if hands_over and random.random() < 0.5 else 0,
        drops=random.choice((0, 0, 0, 1, 2)),
        probes=random.random() < 0.7,
        hands_over=hands_over,
        timing=timing(min_interval),
    )
    return TokenWorld(plan)
