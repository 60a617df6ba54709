"""The states of a request, as the command prints them."""

from enum import StrEnum


class RequestState(StrEnum):
    """The state of a request or of one of its attempts."""

    PERHAPS_QUEUED = "perhaps queued"  # it may be on RequestQueue, which cannot be searched
    QUEUED = "queued"  # a redrive has sent it to RequestQueue, and it has not been received since
    WAITING = "waiting"  # refused a slot, as the head of its queue; a work request: its next attempt is scheduled
    STARTING = "starting"  # holds a slot that its workflow has not confirmed
    RUNNING = "running"
    STOPPED = "stopped"  # its execution has ended, and it still holds its slot
    FINISHING = "finishing"  # has released its slot, and its execution has not ended
    RETURNED = "returned"  # its workflow found its reservation gone, and sent it back to RequestQueue
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD_LETTERED = "dead-lettered"
    CANCELLED = "cancelled"
    LOST = "lost"  # its message has left RequestQueue, and nothing has handled it


ALL_STATES = f"{', '.join(list(RequestState)[:-1])} or {list(RequestState)[-1]}"
