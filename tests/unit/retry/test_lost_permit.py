"""A permit whose answer was lost is found again, also after another container's write."""

from __future__ import annotations

from dataclasses import replace

from slotkeeper.retry.downstream.health import Health, Permit, State
from slotkeeper.retry.downstream.rules import ask
from slotkeeper.retry.downstream.settings import DownstreamSettings

NOW = 1_800_000_000.0
MOST = 3


def test_the_probe_whose_answer_was_lost_is_still_the_probe() -> None:
    settings = DownstreamSettings()
    due = replace(Health(), state=State.OPEN, epoch=1, probe_at=NOW)
    wanted = Permit("mine", NOW + 125)
    written, _ = ask(due, settings, wanted, MOST, NOW)
    changed_by_another = replace(written, seconds=1.5)
    after, granted = ask(changed_by_another, settings, wanted, MOST, NOW)
    assert isinstance(granted, Permit)
    assert (granted.epoch, after) == (written.epoch, changed_by_another)
