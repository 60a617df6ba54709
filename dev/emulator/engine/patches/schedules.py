"""Schedules and scheduled rules fire within a second of their time.

AWS: "EventBridge: Creating a scheduled rule" and "EventBridge Scheduler: Schedule types": the precision is one minute,
so a target is called within the minute, usually in its first seconds.
MiniStack checks schedules every ten seconds, which would prolong a test of a one-minute schedule.
"""

from dev.emulator.engine.emulator import eventbridge, replace, scheduler

SWEEP_SECONDS = 0.5


def apply() -> None:
    """Shorten both intervals."""
    replace(scheduler, "_SCHEDULE_TICK_INTERVAL", lambda _seconds: SWEEP_SECONDS)
    replace(eventbridge, "_SCHEDULER_TICK_INTERVAL", lambda _seconds: SWEEP_SECONDS)
