"""The containers of the deployed functions."""

import signal

from dev.emulator import processes
from dev.emulator.aws import EmbeddedAws


def kill_containers(aws: EmbeddedAws) -> None:
    """As Lambda ends a container: from outside, in the middle of what it does."""
    for pid in processes.session_members(aws.pid):
        if pid != aws.pid:
            processes.send_signal(pid, signal.SIGKILL)
