"""What the run has to show of its requests, each claim held against the records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dev.scenarios.runner.checking import Check, counted, named

from .fates import Fate, Strangers
from .mix import Poison
from .records import DeadLetter, Records, Row

NO_POISON = "no poison was sent"
FINAL = ("SUCCEEDED", "DEAD_LETTERED")


def _check(name: str, problems: Mapping[str, Sequence[str]], found: str, *, shown: bool = True) -> Check:
    """Without anything to be seen (`shown`), what is no problem is no proof either."""
    told = [f"{what}: {named(which)}" for what, which in problems.items() if which]
    return Check(name, False if told else True if shown else None, "; ".join(told) or found)


def _able(fates: Iterable[Fate]) -> list[Fate]:
    return [fate for fate in fates if fate.request.kind != "poison"]


def _poison(fates: Iterable[Fate]) -> list[Fate]:
    return [fate for fate in fates if fate.request.kind == "poison"]


def all_succeeded(fates: Sequence[Fate], strangers: Strangers) -> Check:
    """R1, R2: a manifest is the effect, and it is one."""
    able = _able(fates)
    problems = {
        "not published": [fate.name for fate in able if not fate.manifests],
        "published more than once": [fate.name for fate in able if len(fate.manifests) > 1],
        "dead-lettered": [f"{fate.name} ({_why(fate)})" for fate in able if fate.dead],
        "published, though poison": [fate.name for fate in _poison(fates) if fate.manifests],
        "published, though nobody asked": strangers.manifests,
    }
    return _check("whatever can succeed has, once", problems, f"{len(able)} of {len(able)} published, once each")


def _why(fate: Fate) -> str:
    return ", ".join(letter.code or "no code" for letter in fate.dead)


def results_whole(fates: Sequence[Fate], records: Records) -> Check:
    """All or none: the manifest's parts hold the input's lines, each in its place, and nothing else was left behind."""
    wrong: list[str] = []
    named_parts: set[str] = set()
    for fate in fates:
        for manifest in fate.manifests:
            named_parts.update(manifest.parts.values())
            published = {
                value: tuple(records.parts.get(key, b"").decode().splitlines()) for value, key in manifest.parts.items()
            }
            if published != fate.request.parts:
                wrong.append(fate.name)
    problems = {
        "not the input's lines": wrong,
        "left behind, named by no manifest": sorted(set(records.parts) - named_parts),
    }
    name = "each result is whole, and nothing else is left"
    return _check(name, problems, counted(len(named_parts), "part"), shown=bool(named_parts))


def poison_set_aside(fates: Sequence[Fate], strangers: Strangers) -> Check:
    """R4: one dead letter for each, which says why, when and how often."""
    poison = _poison(fates)
    problems = {
        "not one dead letter": [f"{fate.name} ({len(fate.dead)})" for fate in poison if len(fate.dead) != 1],
        "without its story": [
            f"{fate.name} ({what})"
            for fate in poison
            for letter in fate.dead
            if fate.request.poison and (what := _missing(fate.request.poison, fate.request.is_message, letter))
        ],
        "dead letters of nobody": strangers.dead,
    }
    name = "each poison one has one dead letter with its story"
    found = counted(len(poison), "dead letter") if poison else NO_POISON
    return _check(name, problems, found, shown=bool(poison))


def _missing(poison: Poison, is_message: bool, letter: DeadLetter) -> str:
    """What the letter should say and does not. Of a body that is no message, nobody knows attempts or times."""
    wanted = {"code": letter.code == poison.code, "reason": poison.reason in (letter.reason or "")}
    if is_message:
        told = [(each.get("attempt"), poison.reason in each.get("error", "")) for each in letter.history or []]
        wanted |= {
            "attempts": letter.retry_count == 1,
            "first time": bool(letter.first_attempt_at),
            "last time": bool(letter.last_attempt_at),
            "history": told == [(1, True)],
        }
    return ", ".join(what for what, so in wanted.items() if not so)


def poison_leaves_at_once(fates: Sequence[Fate]) -> Check:
    """R3: the worker has had it once, and the downstream at most once."""
    poison = _poison(fates)
    problems = {
        "tried again": [f"{fate.name} ({fate.attempts})" for fate in poison if fate.attempts > 1],
        "read again": [f"{fate.name} ({len(fate.calls)})" for fate in poison if len(fate.calls) > 1],
    }
    calls = sum(len(fate.calls) for fate in poison)
    found = f"{counted(len(poison), 'attempt')}, {counted(calls, 'call')} of the downstream" if poison else NO_POISON
    return _check("poison leaves after one attempt", problems, found, shown=bool(poison))


def ledger_agrees(fates: Sequence[Fate], strangers: Strangers) -> Check:
    """The ledger against S3, the dead letters and the downstream, none of which reads it."""
    wrong = [f"{fate.name} ({what})" for fate in fates if (what := _disagreement(fate))]
    problems = {"disagree": wrong, "rows of nobody": strangers.rows}
    rows = sum(fate.row is not None for fate in fates)
    return _check("the ledger agrees with S3, the dead letters and the downstream", problems, counted(rows, "row"))


def _disagreement(fate: Fate) -> str:
    row = fate.row
    if row is None or not fate.request.is_message:
        return "" if (row is None) == (not fate.request.is_message) else "has a row" if row else "no row"
    status = {"succeeded": "SUCCEEDED", "dead_lettered": "DEAD_LETTERED", "nowhere": "neither"}[fate.end]
    failed = row.attempts - 1 if fate.manifests else row.attempts
    agrees = {
        f"{row.status}, {fate.end}": row.status == status,
        f"{counted(row.attempts, 'attempt')}, {counted(len(fate.calls), 'call')}": len(fate.calls) <= row.attempts,
        f"{counted(row.attempts, 'attempt')}, failed {row.history}": row.history == tuple(range(1, failed + 1)),
        "another attempt published": all(manifest.attempt == row.attempts for manifest in fate.manifests),
        "the dead letter's attempts or times": all(_same(letter, row) for letter in fate.dead),
    }
    return ", ".join(what for what, so in agrees.items() if not so)


def _same(letter: DeadLetter, row: Row) -> bool:
    told = (letter.retry_count, letter.first_attempt_at, letter.last_attempt_at)
    return told == (row.attempts, row.first_attempt_at, row.last_attempt_at)


def nothing_left(fates: Sequence[Fate], records: Records) -> Check:
    """R1: nobody waits for ever, and nothing will fire later."""
    unsettled = [f"{fate.name} ({fate.row.status})" for fate in fates if fate.row and fate.row.status not in FINAL]
    problems = {
        "still there": [f"{count} {what}" for what, count in records.left.items() if count],
        "unsettled": unsettled,
    }
    return _check("nothing is left waiting", problems, f"0 {', 0 '.join(records.left)}")
