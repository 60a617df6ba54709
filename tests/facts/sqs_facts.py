"""Facts of SQS."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.facts.facts import DEPLOYED, EVERYWHERE, Facts, code_of, documented, localstack, localstack_validated
from tests.facts.queues import Queue

MODULE = "sqs/test_sqs.py"
type MakeQueue = Callable[..., Queue]  # with `fifo` and `visibility` in seconds
FACTS = Facts("sqs", EVERYWHERE, given=lambda aws: partial(Queue, aws))


@FACTS.row(
    "A standard queue hides a message by a handle whose visibility timeout has ended.",
    source=localstack(MODULE, "test_change_message_visibility_after_visibility_timeout_expiration"),
    expected="accepted",
)
def standard_hides_after_the_timeout(make: MakeQueue) -> str:
    queue = make(visibility=1)
    queue.send("a")
    handle = queue.receive_one()
    queue.let_expire()
    return queue.hide(handle, 60)


@FACTS.row(
    "On a standard queue the handle of an earlier receive makes visible what a later receive has hidden.",
    source=localstack_validated(MODULE, "test_terminate_visibility_timeout_after_receive"),
    expected=("accepted", ["a"]),
)
def standard_accepts_an_earlier_handle(make: MakeQueue) -> tuple[str, list[str]]:
    queue = make()
    queue.send("a")
    earlier = queue.receive_one()
    queue.hide(earlier, 0)
    queue.receive_one()
    return queue.hide(earlier, 0), [*queue.receive()]


@FACTS.row(
    "One receive from a FIFO queue may return several messages of a group, in their order.",
    source=localstack_validated(MODULE, "test_fifo_receive_message_group_id_ordering"),
    expected=["a1", "a2", "a3"],
)
def fifo_returns_several_of_a_group(make: MakeQueue) -> list[str]:
    queue = make(fifo=True)
    for body in ("a1", "a2", "a3"):
        queue.send(body)
    return [*queue.receive(10)]


@FACTS.row(
    "A hidden head of a group of a FIFO queue blocks its group, and no other group.",
    source=localstack_validated(MODULE, "test_fifo_receive_message_visibility_timeout_shared_in_group"),
    expected=[["a1"], ["b1"], []],
)
def fifo_blocks_one_group(make: MakeQueue) -> list[list[str]]:
    queue = make(fifo=True)
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        queue.send(body, group)
    return [[*queue.receive()] for _ in range(3)]


@FACTS.row(
    "A FIFO queue does not delete a message by a handle whose visibility timeout has ended, nor by that of an earlier "
    "receive; a standard queue does.",
    source=localstack(MODULE, "test_fifo_delete_after_visibility_timeout and test_delete_after_visibility_timeout")
    + "; documented: re:Post, How do I resolve the ReceiptHandleIsInvalid or InvalidParameterValue error",
    expected={"fifo": ["InvalidParameterValue", "InvalidParameterValue", "accepted"], "standard": ["accepted", []]},
)
def delete_after_the_timeout(make: MakeQueue) -> Any:
    queues = {"fifo": make(fifo=True, visibility=1), "standard": make(visibility=1)}
    handles = {}
    for name, queue in queues.items():
        queue.send("a")
        handles[name] = queue.receive_one()
        queue.let_expire()
    fifo, earlier = queues["fifo"], handles["fifo"]
    codes = [fifo.delete(earlier)]
    newest = fifo.receive_one()
    codes += [fifo.delete(earlier), fifo.delete(newest)]
    standard = queues["standard"]
    return {"fifo": codes, "standard": [standard.delete(handles["standard"]), [*standard.receive()]]}


@FACTS.row(
    "A deleted message can be deleted again, but not be hidden.",
    source=(
        localstack_validated(MODULE, "test_delete_message_with_deleted_receipt_handle"),
        localstack_validated(MODULE, "test_change_visibility_on_deleted_message_raises_invalid_parameter_value"),
    ),
    expected=["accepted", "accepted", "InvalidParameterValue"],
)
def calls_about_a_deleted_message(make: MakeQueue) -> list[str]:
    queue = make()
    queue.send("a")
    handle = queue.receive_one()
    return [queue.delete(handle), queue.delete(handle), queue.hide(handle, 0)]


@FACTS.row(
    "A deduplication id counts after its message was deleted; with the scope messageGroup, in its group only.",
    source=localstack(
        MODULE, "test_fifo_deduplication_arrives_once_after_delete and test_fifo_high_throughput_ordering"
    ),
    expected=[[], ["same"]],
)
def deduplication(make: MakeQueue) -> list[list[str]]:
    queue = make(fifo=True)
    queue.send("same", "a")
    queue.delete(queue.receive_one())
    received = []
    for group in "ab":
        queue.send("same", group)
        received.append([*queue.receive()])
    return received


@FACTS.row(
    "A delayed message is delivered after its delay, and one without a delay before it.",
    source=documented("Amazon SQS Developer Guide, Amazon SQS message timers"),
    expected=[["now"], [], ["later"]],
    depends="a timed ring comes at its time. A later one delays starts by a rate and ends by a deadline; the janitor's "
    "next run does both",
)
def delayed_message(make: MakeQueue) -> list[list[str]]:
    queue = make()
    queue.send("later", delay=queue.longer_than_two_receives)
    queue.send("now")
    early = queue.receive()
    queue.delete(early["now"])
    none = queue.receive()
    queue.let_expire()
    return [[*early], [*none], [*queue.receive()]]


@FACTS.row(
    "A message may have a delay of 900 seconds and not more.",
    source=documented("Amazon SQS API Reference, SendMessage, DelaySeconds"),
    expected=["accepted", "InvalidParameterValue"],
)
def longest_delay(make: MakeQueue) -> list[str]:
    queue = make()
    return [queue.send("a", delay=seconds) for seconds in (900, 901)]


WITH_CODE = {"code": {"DataType": "String", "StringValue": "Poison"}}  # 16 bytes


@FACTS.row(
    "Body and attributes together may have MaximumMessageSize, the body alone too.",
    source=documented("Amazon SQS Developer Guide, Message metadata for Amazon SQS"),
    expected=["accepted", "InvalidParameterValue", "accepted", "InvalidParameterValue", "InvalidParameterValue"],
    on=DEPLOYED,
)
def attributes_count_as_size(make: MakeQueue) -> list[str]:
    queue = make(MaximumMessageSize="1024")
    sizes: list[tuple[int, Any]] = [(1024, {}), (1025, {}), (1008, WITH_CODE), (1009, WITH_CODE)]
    messages = [{"MessageBody": "x" * size, "MessageAttributes": attributes} for size, attributes in sizes]
    codes = [code_of(partial(queue.client.send_message, QueueUrl=queue.url, **message)) for message in messages]
    entries = [{"Id": "1", **messages[-1]}]
    (failed,) = queue.client.send_message_batch(QueueUrl=queue.url, Entries=entries)["Failed"]
    return [*codes, failed["Code"]]


@FACTS.row(
    "A message may have 1,048,576 bytes and not more.",
    source=documented("Amazon SQS API Reference, SendMessage"),
    expected=["accepted", "InvalidParameterValue"],
    on=DEPLOYED,
)
def largest_message(make: MakeQueue) -> list[str]:
    size = 1_048_576
    queue = make(MaximumMessageSize=str(size))
    return [queue.send("x" * each) for each in (size, size + 1)]
