"""The containers of the deployed functions."""

import signal

from dev.emulator import processes
from dev.emulator.aws import EmbeddedAws


def kill_containers(aws: EmbeddedAws) -> None:
    """Kill all containers during their work, as Lambda can do."""
    for pid in processes.session_members(aws.pid):
        if pid != aws.pid:
            processes.send_signal(pid, signal.SIGKILL)
