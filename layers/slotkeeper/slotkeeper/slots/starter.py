"""The starter: adds the row of each request that is received, then dispatches its process; dispatches for doorbells.

An invocation has a batch of one of the two queues, and returns the messages that must come again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.slots.dispatch import RESERVE_SECONDS, DispatchFailed, Report, Tools, dispatch
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.ending_queue import EndingQueue
from slotkeeper.slots.intake import Acceptance, Accepted, ReceivedAgain, Rejected, accept
from slotkeeper.slots.process import MalformedProcess
from slotkeeper.slots.queues import RequestDeadLetterQueue
from slotkeeper.slots.request import (
    Delivery,
    InvalidRequest,
    Request,
    RequestTooLarge,
    parse_request,
)
from slotkeeper.slots.run_report import is_outage

# Of a dispatch for messages of RequestQueue, so that none of them waits for long behind those of a large queue. A ring
# continues it.
DISPATCH_SECONDS = 5


class Observer:
    """Receives what the starter does. Each method may be overridden."""

    def accepted(self, request: Request, acceptance: Acceptance, sent_at: float) -> None:
        """A request was received. `sent_at`: seconds since the epoch."""

    def dead_lettered(self, delivery: Delivery, code: str, reason: str) -> None:
        """A message is no request."""

    def dispatched(self, process: str, report: Report) -> None:
        """A dispatch has done this, also one that has failed."""

    def failed(self, message: str, error: Exception, **details: object) -> None:
        """A step has failed, and will be repeated."""

    def rang(self, bell: Bell) -> None:
        """A doorbell was received."""


@dataclass(frozen=True)
class Starter:
    """Handles batches of RequestQueue and of DispatchQueue."""

    tools: Tools
    endings: EndingQueue
    dead_letters: RequestDeadLetterQueue
    observer: Observer

    def receive(self, deliveries: Sequence[Delivery]) -> list[str]:
        """Handle messages of RequestQueue; return the ids of those that must stay.

        After one that could not be accepted, the later ones of its message group stay too: a sender relies on their
        order. While a service fails, all others stay: each of its calls would take as long.
        """
        left: list[Delivery] = []
        ended: dict[str, list[str]] = defaultdict(list)  # process -> executions without a start
        leavers: dict[str, bool] = {}  # process -> whether one of its requests may have to leave the queue
        accepted: dict[str, list[str]] = defaultdict(list)  # process -> message ids
        for number, delivery in enumerate(deliveries):
            if delivery.group_id in (each.group_id for each in left):
                left.append(delivery)
                continue
            try:
                received = self._accept(delivery)
            except Exception as error:
                left += deliveries[number:] if is_outage(error) else [delivery]
                self.observer.failed("Left messages on the queue after an error", error, messages=len(left))
                if is_outage(error):
                    break
                continue
            if received is None:
                continue
            request, acceptance = received
            if isinstance(acceptance, Rejected):
                ended[request.process].append(acceptance.execution)
            elif isinstance(acceptance, Accepted | ReceivedAgain):
                accepted[request.process].append(delivery.message_id)
                may_leave = request.when_busy == "skip" or bool(request.start_before)
                leavers[request.process] = leavers.get(request.process, False) or may_leave
        for process, executions in ended.items():
            self._publish(process, executions)
        unrung = [process for process in accepted if not self._dispatch_received(process, leavers[process])]
        return [delivery.message_id for delivery in left] + [each for name in unrung for each in accepted[name]]

    def _accept(self, delivery: Delivery) -> tuple[Request, Acceptance] | None:
        """Add the row of a message; None if it is no request, and was dead-lettered."""
        too_large = ""
        try:
            request = parse_request(delivery)
        except RequestTooLarge as error:
            request, too_large = error.request, str(error)
        except InvalidRequest as error:
            self._dead_letter(delivery, str(error))
            return None
        sent, sequence, now = delivery.sent_at, delivery.sequence, self.tools.clock()
        acceptance = accept(self.tools.requests, request, delivery.message_id, sent, sequence, now, too_large)
        self.observer.accepted(request, acceptance, delivery.sent_at)
        return request, acceptance

    def _dead_letter(self, delivery: Delivery, reason: str) -> None:
        code = "InvalidRequest"
        self.dead_letters.add(delivery, code, reason)
        self.endings.refused(delivery, code, reason)
        self.observer.dead_lettered(delivery, code, reason)

    def _dispatch_received(self, process: str, leavers: bool) -> bool:
        """Dispatch, or ring after a failure; False if neither was possible, so that the messages must come again."""
        tools, began = self.tools, self.tools.clock()

        def seconds_left() -> float:
            return min(tools.seconds_left(), RESERVE_SECONDS + DISPATCH_SECONDS - (tools.clock() - began))

        failure = self._dispatch(replace(tools, seconds_left=seconds_left), Bell(process), leavers=leavers)
        if failure is None:
            return True
        at = tools.clock() + failure.again_after if leavers else None
        try:
            tools.doorbell.ring(Bell(process, at), failure.again_after)
        except (ClientError, BotoCoreError) as error:
            self.observer.failed("Could not ring after a dispatch that failed", error, process=process)
            return False
        return True

    def rung(self, messages: Iterable[tuple[str, str]]) -> list[str]:
        """Handle messages of DispatchQueue, each an id and a body; return the ids of those that must come again.

        The messages of one process are one dispatch, those with a time another one, which comes after the others, and
        those that continue a dispatch are another one for each place.
        """
        bells: dict[tuple[bool, str, tuple[str, ...]], list[Bell]] = defaultdict(list)
        ids: dict[tuple[bool, str, tuple[str, ...]], list[str]] = defaultdict(list)
        for message_id, body in messages:
            try:
                bell = parse_bell(body)
            except ValueError as error:  # of another sender; it will never be one
                self.observer.failed("Deleted a message that is no doorbell", error)
                continue
            self.observer.rang(bell)
            key: tuple[bool, str, tuple[str, ...]] = (bell.at is not None, bell.process, bell.passed or ())
            bells[key].append(bell)
            ids[key].append(message_id)
        again: list[str] = []
        for key in sorted(bells):
            rung = bells[key]
            latest = max((bell.at for bell in rung if bell.at is not None), default=None)
            bell = Bell(key[1], latest, max(each.count for each in rung), rung[0].passed)
            if self._dispatch(self.tools, bell) is not None:
                again += ids[key]
        return again

    def _dispatch(self, tools: Tools, bell: Bell, *, leavers: bool = False) -> DispatchFailed | None:
        failure: DispatchFailed | None = None
        try:
            report = dispatch(tools, bell, leavers=leavers)
        except MalformedProcess as error:
            # Its requests wait until an operator has repaired it, which rings. No repetition helps before.
            self.observer.failed("A process's item is malformed; its requests wait", error, process=bell.process)
            return None
        except DispatchFailed as error:
            failure, report = error, error.report
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            self.observer.failed("A dispatch has failed; it is repeated", cause, process=bell.process)
        self.observer.dispatched(bell.process, report)
        self._publish(bell.process, [leaving.execution for leaving in report.left], publish_all=report.is_homeless)
        return failure

    def _publish(self, process: str, executions: Sequence[str], *, publish_all: bool = False) -> None:
        """Let ends be published. The janitor repeats what fails."""
        try:
            if publish_all:
                self.endings.publish_all(process)
            else:
                self.endings.publish(process, executions)
        except Exception as error:
            self.observer.failed("Could not let ends of requests be published", error, process=process)


def parse_bell(body: str) -> Bell:
    """Parse the body of a message. Raises ValueError, with its kind and the expected form."""
    try:
        fields = json.loads(body)
        at, passed = fields.get("at"), fields.get("passed")
        return Bell(
            str(fields["process"]),
            None if at is None else float(at),
            int(fields.get("count", 0)),
            None if passed is None else (str(passed[0]), str(passed[1]), *map(str, passed[2:])),
        )
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise ValueError(f'must be {{"process": NAME}}, got {body[:200]!r}') from error
