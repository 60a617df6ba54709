"""What the waits of a process would have been at another limit: its records, replayed by the layer's own rules.

`read_recording` reads the records of a stack. `replay` is pure: values in, values out.
"""

from __future__ import annotations

from slotkeeper_cli.what_if.recording import PastRequest, Recording, read_recording
from slotkeeper_cli.what_if.replay import MIN_SAMPLES, CannotReplay, Course, Result, replay

__all__ = ["MIN_SAMPLES", "CannotReplay", "Course", "PastRequest", "Recording", "Result", "read_recording", "replay"]
