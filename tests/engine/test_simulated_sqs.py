"""The simulated SQS answers like the embedded AWS, in any order of calls.

Random sequences do not advance the time, so a message that is hidden for a minute stays hidden. The simulation follows
the engine's order among groups, because SQS defines none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from dev.emulator.aws import EmbeddedAws
from tests.simulation.aws import sqs
from tests.simulation.frozen import Record, freeze, record
from tests.simulation.transcript import Answer
from tests.support.profiles import share
from tests.support.waiting import wait_until

Step = tuple[Any, ...]
_HANDLES = st.integers(0, 5)
_SECONDS = st.sampled_from([0, 60])
_SHARED = [
    st.tuples(st.just("receive")),
    st.tuples(st.sampled_from(["receive_again", "wake_and_hide"]), _HANDLES),
    st.tuples(st.just("hide"), _HANDLES, _SECONDS),
    st.tuples(st.just("delete"), _HANDLES),
]
FIFO_BEGIN = [("send", "a", "1"), ("send", "a", "2"), ("send", "b", "1"), ("receive",)]
FIFO_STEPS = st.one_of(st.tuples(st.just("send"), st.sampled_from("ab"), st.sampled_from("123")), *_SHARED)
STANDARD_BEGIN = [("delay", 0), ("delay", 0), ("receive",)]
STANDARD_STEPS = st.one_of(st.tuples(st.just("delay"), _SECONDS), *_SHARED)


class BothQueues:
    """One queue in the engine and in the simulation. Every call is made on both, and the answers must be equal."""

    def __init__(self, client: Any, url: str, *, fifo: bool, visibility: int = 60) -> None:
        self._client = client
        self._url = url
        self._queues = record({url: sqs.queue(visibility, fifo)})
        self._fifo = fifo
        self._sent = 0
        self._handles: list[tuple[str, str]] = []  # the engine's, and the simulation's
        self._messages: dict[str, str] = {}  # id in the engine -> in the simulation
        self._sequences: dict[int, int] = {}
        self.now = 0.0
        self.met: Counter[tuple[str, str]] = Counter()  # operation, and an error's code or another outcome

    def send(self, group: str, deduplication: str) -> None:
        response, answer = self._both(
            "send_message", MessageBody=self._body(), MessageGroupId=group, MessageDeduplicationId=deduplication
        )
        sequence = int(answer.value["SequenceNumber"])
        self.met["send_message", "duplicate" if sequence in self._sequences.values() else "new"] += 1
        assert self._sequences.setdefault(int(response["SequenceNumber"]), sequence) == sequence
        assert sorted(self._sequences.values()) == [self._sequences[each] for each in sorted(self._sequences)]

    def delay(self, seconds: int) -> None:
        self._both("send_message", MessageBody=self._body(), DelaySeconds=seconds)

    def receive(self) -> bool:
        """Whether there was a message."""
        response = self._client.receive_message(QueueUrl=self._url, MessageSystemAttributeNames=["All"]).get(
            "Messages", []
        )
        receivable = {message["id"]: message for message in sqs.receivable(self._queue, self.now)}
        assert bool(response) == bool(receivable), (response, receivable)
        groups = [message["group"] for message in receivable.values()]
        assert not self._fifo or len(set(groups)) == len(groups)
        waiting = [message for message in self._queue["messages"] if message["visible_at"] <= self.now]
        self.met["receive_message", "blocked" if len(waiting) > len(receivable) else ""] += 1
        for message in response:
            known = self._messages[message["MessageId"]]
            assert known in receivable
            queue, answer = sqs.receive(self._queue, receivable[known], self.now)
            self._queues = self._queues.with_fields(**{self._url: queue})
            (taken,) = answer.value["Messages"]
            self._handles.append((message["ReceiptHandle"], taken["handle"]))
            assert message["Body"] == taken["body"]
            assert message["Attributes"]["ApproximateReceiveCount"] == str(taken["receives"])
            assert message["Attributes"].get("MessageGroupId") == taken["group"]
            if self._fifo:
                assert self._sequences[int(message["Attributes"]["SequenceNumber"])] == taken["sequence"]
        return bool(response)

    def receive_again(self, number: int) -> None:
        """Make a received message visible, and receive it: older handles are stale then."""
        self.hide(number, 0)
        self.receive()

    def wake_and_hide(self, number: int) -> None:
        """Make a received message visible, and hide it again, which a FIFO queue refuses."""
        self.hide(number, 0)
        self.hide(number, 60)

    def hide(self, number: int, seconds: int) -> None:
        """Use the handle of this receive, modulo their number."""
        self._by_handle("change_message_visibility", number, VisibilityTimeout=seconds)

    def delete(self, number: int) -> None:
        self._by_handle("delete_message", number)

    def _by_handle(self, operation: str, number: int, **fields: Any) -> None:
        if self._handles:
            real, simulated = self._handles[number % len(self._handles)]
            self._both(operation, {"ReceiptHandle": real}, ReceiptHandle=simulated, **fields)

    def _both(self, operation: str, in_engine: dict[str, Any] | None = None, **fields: Any) -> tuple[Any, Answer]:
        self._queues, answer = sqs.perform(self._queues, operation, freeze({"QueueUrl": self._url, **fields}), self.now)
        try:
            response = getattr(self._client, operation)(QueueUrl=self._url, **fields | (in_engine or {}))
            code = ""
        except ClientError as error:
            response, code = {}, error.response["Error"]["Code"].removeprefix("AWS.SimpleQueueService.")
        assert code == answer.error
        self.met[operation, code] += 1
        if operation == "send_message":
            assert (
                self._messages.setdefault(response["MessageId"], answer.value["MessageId"]) == answer.value["MessageId"]
            )
        return response, answer

    def _body(self) -> str:
        self._sent += 1
        return f"body {self._sent}"

    @property
    def _queue(self) -> Record:
        queue: Record = self._queues[self._url]
        return queue

    def after(self, seconds: float) -> None:
        """Wait until the engine has no hidden or delayed message, and advance the simulation's time."""
        names = ["ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"]

        def read() -> bool:
            attributes = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=names)["Attributes"]
            return not any(int(attributes[name]) for name in names)

        wait_until(read, "the end of the time-out")
        self.now += seconds

    def take(self, steps: list[Step]) -> None:
        """Make these steps, and then receive every message."""
        for name, *arguments in steps:
            getattr(self, name)(*arguments)
        while self.receive():
            pass


@pytest.fixture
def fifo_queue(aws: EmbeddedAws, fifo: Callable[..., str]) -> Callable[..., BothQueues]:
    """Creates a FIFO queue with the template's properties."""

    def make(visibility: int = 60) -> BothQueues:
        attributes = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
        url = fifo(ContentBasedDeduplication="false", VisibilityTimeout=str(visibility), **attributes)
        return BothQueues(aws.client("sqs"), url, fifo=True, visibility=visibility)

    return make


@pytest.fixture
def standard_queue(aws: EmbeddedAws, unique: Callable[[str], str]) -> Callable[..., BothQueues]:
    """Creates a standard queue."""

    def make(visibility: int = 60) -> BothQueues:
        client = aws.client("sqs")
        url = client.create_queue(QueueName=unique("queue"), Attributes={"VisibilityTimeout": str(visibility)})
        return BothQueues(client, url["QueueUrl"], fifo=False, visibility=visibility)

    return make


BY_HANDLE = {
    ("change_message_visibility", ""),
    ("change_message_visibility", "InvalidParameterValue"),
    ("delete_message", ""),
}


def test_the_simulated_fifo_queue_answers_like_the_engine(fifo_queue: Callable[..., BothQueues]) -> None:
    met: Counter[tuple[str, str]] = Counter()

    @share(0.2)
    @given(steps=st.lists(FIFO_STEPS, min_size=6, max_size=14))
    def answered_alike(steps: Any) -> None:
        queue = fifo_queue()
        queue.take(FIFO_BEGIN + steps)
        met.update(queue.met)

    answered_alike()
    assert met.keys() >= BY_HANDLE | {
        ("change_message_visibility", "MessageNotInflight"),
        ("send_message", "duplicate"),
        ("receive_message", "blocked"),
        ("delete_message", "InvalidParameterValue"),
    }


def test_the_simulated_standard_queue_answers_like_the_engine(standard_queue: Callable[..., BothQueues]) -> None:
    met: Counter[tuple[str, str]] = Counter()

    @share(0.2)
    @given(steps=st.lists(STANDARD_STEPS, min_size=6, max_size=14))
    def answered_alike(steps: Any) -> None:
        queue = standard_queue()
        queue.take(STANDARD_BEGIN + steps)
        met.update(queue.met)

    answered_alike()
    assert met.keys() >= BY_HANDLE


def test_a_message_is_delivered_again_after_its_visibility_timeout_and_its_handle_has_expired(
    fifo_queue: Callable[..., BothQueues],
) -> None:
    queue = fifo_queue(visibility=1)
    queue.send("a", "1")
    assert queue.receive()
    queue.after(1.0)
    queue.hide(0, 60)
    queue.delete(0)
    assert queue.receive()
    queue.delete(0)
    queue.delete(1)


def test_a_delayed_message_is_delivered_after_its_delay(standard_queue: Callable[..., BothQueues]) -> None:
    queue = standard_queue()
    queue.delay(1)
    assert not queue.receive()
    queue.after(1.0)
    assert queue.receive()
