"""What the run has to show, each claim held against the records. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dev.emulator.chat_service import Request, answer_to
from dev.scenarios.runner.checking import Check, counted, named

from .fates import Fate, auths
from .records import Records


def all_answered(fates: Sequence[Fate], wanted: int) -> Check:
    """Every message has the API's answer to its own text."""
    open_ = [f"{f.delivery.message.message_id} ({_last(f)})" for f in fates if f.delivery.answer is None]
    mixed = [
        f.delivery.message.message_id
        for f in fates
        if f.delivery.answer is not None and f.delivery.answer != answer_to(f.delivery.message.text)
    ]
    problems = [
        f"{what}: {named(which)}" for what, which in (("not answered", open_), ("answered wrongly", mixed)) if which
    ]
    if len(fates) < wanted:
        problems.append(f"not sent: {wanted - len(fates)}")
    return Check("every message is answered", not problems, "; ".join(problems) or f"{len(fates)} of {wanted}")


def _last(fate: Fate) -> str:
    last = fate.delivery.tries[-1]
    return f"{last.status or 'no answer'} {last.code or ''}".strip()


def one_auth_each(by_cause: Sequence[Sequence[Request]], wanted: int) -> Check:
    """T1: the first token costs one `POST /auth`, and so does each invalidation, however many instances see it."""
    counts = [len(requests) for requests in by_cause]
    made = len(counts) - 1
    problems = [f"{counts[0]} for the first token"] if counts[0] != 1 else []
    problems += [f"{count} after invalidation {i}" for i, count in enumerate(counts[1:], 1) if count != 1]
    if made < wanted:
        problems.append(f"only {made} of {wanted} invalidations could be made, since the last one never healed")
    name = "one POST /auth per invalidation"
    if not wanted and not problems:
        return Check(name, None, "one for the first token; no invalidation was asked for")
    found = f"one for the first token and one for each of {counted(made, 'invalidation')}"
    return Check(name, not problems, "; ".join(problems) or found)


def none_refused(records: Records, fates: Sequence[Fate]) -> Check:
    """Nobody is told to try again, and the API refuses nobody a token."""
    again = [f.delivery.message.message_id for f in fates if len(f.delivery.tries) > 1]
    no_token = [str(request.status or "no answer") for request in auths(records.log) if request.status != 200]
    problems = [
        f"{what}: {named(which)}"
        for what, which in (("had to be sent again", again), ("POST /auth answered", no_token))
        if which
    ]
    return Check("nobody is refused", not problems, "; ".join(problems) or "no message was sent twice")


# The cached token, the stored one, and the new one: a container that was idle for a token's whole life finds both dead.
MOST_ASKS = 3


def three_asks_at_most(fates: Sequence[Fate]) -> Check:
    """A message asks the API once for each token it can meet; where instances kill each other's, there is no bound."""
    more = [
        f"{f.delivery.message.message_id} ({len(f.asks)})"
        for f in fates
        if len(f.asks) > MOST_ASKS and len(f.delivery.tries) == 1
    ]
    most = max((len(f.asks) for f in fates), default=0)
    return Check(
        "no message asks the API more than three times", not more, named(more) or f"at most {counted(most, 'time')}"
    )


def stored_is_live(records: Records) -> Check:
    """T3: what all instances will read next is the token that the API accepts."""
    stored = records.stored
    problems = []
    if stored.token is None:
        problems.append("it is none of the API's")
    elif not stored.live:
        problems.append(f"token {stored.token} is dead")
    if stored.generation != len(records.tokens):
        problems.append(f"generation {stored.generation} after {len(records.tokens)} tokens")
    if stored.locked:
        problems.append("the refresh lock was left behind")
    found = f"token {stored.token} of {len(records.tokens)}, generation {stored.generation}, unlocked"
    return Check("the stored token is the live one", not problems, "; ".join(problems) or found)


def really_shared(containers: int | None, senders: int) -> Check:
    """One container with one cache has nothing to share, and would pass all of the above."""
    name = "several containers share the token"
    if senders == 1:
        return Check(name, None, "one sender keeps one container busy: nothing to share was asked for")
    if containers is None:
        return Check(name, False, "no container has reported its cold start")
    return Check(name, containers > 1, f"{counted(containers, 'container')} of the chatbot")
