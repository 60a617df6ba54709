"""Facts of SQS."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.emulator.aws import EmbeddedAws
from tests.facts.facts import Fact, Facts, code_of, documented, localstack, localstack_validated
from tests.facts.queues import EngineQueue, MakeQueue, SimulatedQueue
from tests.facts.workflows import Workflows, unique
from tests.profiles import share

MODULE = "sqs/test_sqs.py"
FACTS: Facts[MakeQueue] = Facts()


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
    "A FIFO queue does not delete a message by a handle whose visibility timeout has ended; a standard queue does.",
    source=localstack(MODULE, "test_fifo_delete_after_visibility_timeout and test_delete_after_visibility_timeout"),
    expected=("InvalidParameterValue", "accepted", {"fifo": ["a"], "standard": []}),
)
def delete_after_the_timeout(make: MakeQueue) -> Any:
    queues = {"fifo": make(fifo=True, visibility=1), "standard": make(visibility=1)}
    codes = []
    for queue in queues.values():
        queue.send("a")
        handle = queue.receive_one()
        queue.let_expire()
        codes.append(queue.delete(handle))
    return *codes, {name: [*queue.receive()] for name, queue in queues.items()}


@FACTS.row(
    "The visibility of a deleted message cannot be changed.",
    source=localstack_validated(MODULE, "test_change_visibility_on_deleted_message_raises_invalid_parameter_value"),
    expected="InvalidParameterValue",
)
def deleted_cannot_be_hidden(make: MakeQueue) -> str:
    queue = make()
    queue.send("a")
    handle = queue.receive_one()
    queue.delete(handle)
    return queue.hide(handle, 0)


@FACTS.row(
    "A FIFO queue does not delete a message by the handle of an earlier receive.",
    source=documented("re:Post, How do I resolve the ReceiptHandleIsInvalid or InvalidParameterValue error"),
    expected=["InvalidParameterValue", "accepted"],
)
def fifo_refuses_an_earlier_handle(make: MakeQueue) -> list[str]:
    queue = make(fifo=True, visibility=1)
    queue.send("a")
    earlier = queue.receive_one()
    queue.let_expire()
    newest = queue.receive_one()
    return [queue.delete(earlier), queue.delete(newest)]


@FACTS.row(
    "A deletion of a deleted message succeeds.",
    source=localstack_validated(MODULE, "test_delete_message_with_deleted_receipt_handle"),
    expected=["accepted", "accepted"],
)
def delete_twice(make: MakeQueue) -> list[str]:
    queue = make(fifo=True)
    queue.send("a")
    handle = queue.receive_one()
    return [queue.delete(handle), queue.delete(handle)]


@FACTS.row(
    "A deduplication id counts after its message was deleted.",
    source=localstack(MODULE, "test_fifo_deduplication_arrives_once_after_delete"),
    expected=[],
)
def deduplication_after_a_deletion(make: MakeQueue) -> list[str]:
    queue = make(fifo=True)
    queue.send("same")
    queue.delete(queue.receive_one())
    queue.send("same")
    return [*queue.receive()]


@FACTS.row(
    "With the deduplication scope messageGroup, a deduplication id counts in its group only.",
    source=localstack(MODULE, "test_fifo_high_throughput_ordering"),
    expected=["same"],
)
def deduplication_per_group(make: MakeQueue) -> list[str]:
    queue = make(fifo=True)
    queue.send("same", "a")
    queue.delete(queue.receive_one())
    queue.send("same", "b")
    return [*queue.receive()]


@FACTS.row(
    "A delayed message is delivered after its delay.",
    source=documented("Amazon SQS Developer Guide, Amazon SQS message timers"),
    expected=[[], ["a"]],
)
def delayed_message(make: MakeQueue) -> list[list[str]]:
    queue = make()
    queue.send("a", delay=1)
    early = [*queue.receive()]
    queue.let_expire()
    return [early, [*queue.receive()]]


@FACTS.row(
    "A message may have a delay of 900 seconds and not more.",
    source=documented("Amazon SQS API Reference, SendMessage, DelaySeconds"),
    expected=["accepted", "InvalidParameterValue"],
)
def longest_delay(make: MakeQueue) -> list[str]:
    queue = make()
    return [queue.send("a", delay=seconds) for seconds in (900, 901)]


@pytest.mark.parametrize("fact", FACTS, ids=attrgetter("name"))
def test_sqs(fact: Fact[MakeQueue], aws: EmbeddedAws) -> None:
    fact.check(embedded=partial(EngineQueue, aws), simulated=SimulatedQueue)


HANDLES = st.integers(0, 5)  # modulo their number
RECEIVE = st.tuples(st.just("receive"), st.sampled_from([1, 10]))
CALLS = (
    st.tuples(st.tuples(st.just("send"), st.sampled_from("123"), st.sampled_from("ab"))),
    st.tuples(RECEIVE),
    st.tuples(st.tuples(st.just("delete"), HANDLES)),
)
# Only of a standard queue: no message of a FIFO queue is hidden by itself.
HIDES = (
    st.tuples(st.tuples(st.just("hide"), HANDLES, st.just(0)), RECEIVE),  # older handles are outdated then
    st.tuples(st.tuples(st.just("hide"), HANDLES, st.sampled_from([0, 60]))),
)
BEGIN: list[Any] = [("send", "1", "a"), ("send", "2", "a"), ("send", "1", "b"), ("receive", 1)]


@pytest.mark.parametrize("fifo", [True, False])
def test_the_simulated_queue_answers_as_the_embedded_aws_in_any_order_of_calls(aws: EmbeddedAws, fifo: bool) -> None:
    """The simulation follows the engine's order among groups, because SQS defines none."""
    met: Counter[tuple[str, str]] = Counter()

    @share(0.2)
    @given(calls=st.lists(st.one_of(*CALLS, *(() if fifo else HIDES)), min_size=6, max_size=14))
    def answered_alike(calls: list[Any]) -> None:
        embedded, simulated = EngineQueue(aws, fifo=fifo), SimulatedQueue(fifo=fifo)
        handles: list[tuple[str, str]] = []
        for name, *arguments in [*BEGIN, *chain(*calls), ("receive", 10)]:
            if name == "send":
                body, group = arguments
                embedded.send(group + body, group)
                simulated.send(group + body, group)
            elif name == "receive":
                received = [queue.receive(*arguments) for queue in (embedded, simulated)]
                assert [*received[0]] == [*received[1]], calls
                handles += zip(received[0].values(), received[1].values(), strict=True)
            else:
                number, *seconds = arguments
                pair = zip((embedded, simulated), handles[number % len(handles)], strict=True)
                codes = [getattr(queue, name)(handle, *seconds) for queue, handle in pair]
                assert codes[0] == codes[1], calls
                met[name, codes[0]] += 1

    answered_alike()
    hidden = set() if fifo else {("hide", "accepted"), ("hide", "InvalidParameterValue")}
    assert met.keys() >= {("delete", "accepted")} | hidden


WITH_CODE = {"code": {"DataType": "String", "StringValue": "Poison"}}  # 16 bytes
ENGINE: Facts[Workflows] = Facts()


@ENGINE.row(
    "Body and attributes together may have MaximumMessageSize, the body alone too.",
    source=documented("Amazon SQS Developer Guide, Message metadata for Amazon SQS"),
    expected=["accepted", "InvalidParameterValue", "accepted", "InvalidParameterValue", "InvalidParameterValue"],
)
def attributes_count_as_size(workflows: Workflows) -> list[str]:
    sqs, name = workflows.client("sqs"), unique("small")
    url = sqs.create_queue(QueueName=name, Attributes={"MaximumMessageSize": "1024"})["QueueUrl"]
    sizes: list[tuple[int, Any]] = [(1024, {}), (1025, {}), (1008, WITH_CODE), (1009, WITH_CODE)]
    messages = [{"MessageBody": "x" * size, "MessageAttributes": attributes} for size, attributes in sizes]
    codes = [code_of(partial(sqs.send_message, QueueUrl=url, **message)) for message in messages]
    (failed,) = sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "1", **messages[-1]}])["Failed"]
    return [*codes, failed["Code"]]


@ENGINE.row(
    "A message may have 1,048,576 bytes and not more.",
    source=documented("Amazon SQS API Reference, SendMessage"),
    expected=["accepted", "InvalidParameterValue"],
)
def largest_message(workflows: Workflows) -> list[str]:
    sqs, size = workflows.client("sqs"), 1_048_576
    url = sqs.create_queue(QueueName=unique("large"), Attributes={"MaximumMessageSize": str(size)})["QueueUrl"]
    return [code_of(partial(sqs.send_message, QueueUrl=url, MessageBody="x" * each)) for each in (size, size + 1)]


@ENGINE.row(
    "A workflow's sqs:sendMessage sends an object as JSON to a standard queue, after a delay, and returns its id.",
    source=documented("AWS Step Functions Developer Guide, Send messages to an Amazon SQS queue with Step Functions"),
    expected=({"process": "p"}, True),
)
def message_of_a_workflow(workflows: Workflows) -> Any:
    url, _ = workflows.queue()
    arguments = {"QueueUrl": url, "MessageBody": {"process": "{% $states.input.process %}"}, "DelaySeconds": 1}
    ring = {"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage", "Arguments": arguments, "End": True}
    output = workflows.output({"Ring": ring}, {"process": "p"})
    return workflows.receive(url), bool(output["MessageId"])


@pytest.mark.parametrize("fact", ENGINE, ids=attrgetter("name"))
def test_queues_of_the_engine(fact: Fact[Workflows], aws: EmbeddedAws) -> None:
    fact.check(embedded=Workflows(aws))
