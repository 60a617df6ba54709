"""The first failure in a Map or a Parallel state stops the other iterations or branches.

AWS: "Map workflow state" and "Parallel workflow state": after an unhandled error in one, the whole state has failed,
and the others are stopped. "Discover service integration patterns in Step Functions" (Run a Job): their tasks are
aborted, so Step Functions makes a best-effort attempt to cancel their jobs. The state's error is that of the failure.
MiniStack waits until all have ended.
"""

from collections.abc import Callable
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.drives import Branch, ExecutionClosed
from dev.emulator.engine.emulator import stepfunctions as sfn
from dev.emulator.engine.emulator import wrap


def apply() -> None:
    """Note the first failure, and end the others with it."""
    wrap(sfn, "_run_map_items", _run_all)
    wrap(sfn, "_run_parallel_branches", _run_all)
    wrap(sfn, "_run_sub_machine", _run_one)


def _run_all(original: Callable[..., Any], *arguments: Any) -> Any:
    before = drives.branch.set(Branch(drives.branch.get()))
    try:
        return original(*arguments)  # its threads copy this context
    finally:
        drives.branch.reset(before)


def _run_one(original: Callable[..., Any], *arguments: Any) -> Any:
    branch = drives.branch.get()
    if branch is None:
        return original(*arguments)
    try:
        drives.check()
        return original(*arguments)
    except sfn._ExecutionError as error:
        with drives.lock:
            branch.failure = branch.failure or error
        raise
    except ExecutionClosed:
        if branch.failure is None:  # the execution was closed, or an outer state has failed
            raise
        raise branch.failure from None
