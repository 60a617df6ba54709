"""What the waits of a process would have been at another limit: its records, replayed by the layer's own rules.

`read_recording` reads the records of a stack. `replay` is pure: values in, values out.
"""

from __future__ import annotations

from slotkeeper_cli.what_if.recording import PastRequest, Recording, read_recording
from slotkeeper_cli.what_if.replay import CannotReplay, Course, ReplayResult, replay

__all__ = ["CannotReplay", "Course", "PastRequest", "Recording", "ReplayResult", "read_recording", "replay"]
