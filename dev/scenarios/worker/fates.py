"""What became of each request, put together from records that know nothing of each other. Pure; epoch seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dev.emulator.downstream import Call

from .mix import Request
from .records import DeadLetter, Manifest, Records, Row

End = Literal["succeeded", "dead_lettered", "nowhere"]


@dataclass(frozen=True)
class Fate:
    """A request, when it was sent, and all that the records have of it."""

    request: Request
    sent: float
    calls: tuple[Call, ...]
    row: Row | None
    manifests: tuple[Manifest, ...]
    dead: tuple[DeadLetter, ...]

    @property
    def name(self) -> str:
        return self.request.request_id

    @property
    def end(self) -> End:
        if self.manifests:
            return "succeeded"
        return "dead_lettered" if self.dead else "nowhere"

    @property
    def ended(self) -> float | None:
        """When its result was published or its dead letter sent."""
        instants = [manifest.at for manifest in self.manifests] or [letter.sent for letter in self.dead]
        return min(instants, default=None)

    @property
    def attempts(self) -> int:
        """By the ledger; what it does not know has been looked at once, if it has come to an end."""
        return self.row.attempts if self.row else len(self.dead)


@dataclass(frozen=True)
class Strangers:
    """What belongs to no request of the run."""

    rows: tuple[str, ...]
    manifests: tuple[str, ...]
    dead: tuple[str, ...]


def fates(records: Records) -> tuple[list[Fate], Strangers]:
    """One for each request, in the order of sending."""
    calls: dict[str, list[Call]] = defaultdict(list)
    for call in records.calls:
        calls[call.key].append(call)
    rows = {row.request_id: row for row in records.rows}
    manifests = _by_name((manifest.request_id, manifest) for manifest in records.manifests)
    # A body that is no message has no name; nothing but itself tells whose it is.
    bodies = {each.request.body: each.request.request_id for each in records.sent if not each.request.is_message}
    dead = _by_name((letter.idempotency_key or bodies.get(letter.body, letter.body), letter) for letter in records.dead)
    found = []
    for each in records.sent:
        name = each.request.request_id
        ended = (rows.pop(name, None), tuple(manifests.pop(name, ())), tuple(dead.pop(name, ())))
        found.append(Fate(each.request, each.at, tuple(calls[each.request.key]), *ended))
    return found, Strangers(tuple(rows), tuple(manifests), tuple(dead))


def _by_name[Value](pairs: Iterable[tuple[str, Value]]) -> dict[str, list[Value]]:
    grouped: dict[str, list[Value]] = defaultdict(list)
    for name, value in pairs:
        grouped[name].append(value)
    return dict(grouped)
