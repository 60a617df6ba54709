"""SQS over the simulated queues, with its rules for characters, sizes and counts (API Reference, SendMessage)."""

from __future__ import annotations

import re
from collections.abc import Callable

from slotkeeper.aws import sqs as message_attributes
from tests.simulation.account.service import ACCOUNT_ID, REGION, Parameters, Refusal, Service, arn, unfrozen
from tests.simulation.aws import sqs
from tests.simulation.frozen import Record, freeze, record, thaw

# The characters that SQS allows in a body or a text attribute.
ALLOWED = re.compile("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")
LARGEST_MESSAGE = 1_048_576
MOST_ATTRIBUTES = 10
GROUP = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
# Receipt handles of messages that a test delivers, which no queue has, begin so.
DELIVERED_BY_A_TEST = "handle-"
# Each account has these queues, empty at first.
PRODUCT_QUEUES = ("bells", "dead.fifo", "endings", "work", "work-dead")
_MISSING = "AWS.SimpleQueueService.NonExistentQueue"


class Sqs(Service):
    """The queues of the product and others that are made, by their names.

    Attributes:
        sent: each message as (queue's name, parameters of SendMessage).
    """

    def __init__(self) -> None:
        super().__init__()
        self._queues = record({})
        self._attributes: dict[str, dict[str, str]] = {}
        self.sent: list[tuple[str, Parameters]] = []
        for name in PRODUCT_QUEUES:
            self.make_queue(name)

    def make_queue(self, name: str, visibility: int = 30, **attributes: str) -> str:
        """Create a queue; return its URL."""
        queue = sqs.queue(visibility, fifo=name.endswith(".fifo"))
        self._queues = self._queues.with_fields(**{name: queue})
        self._attributes[name] = {"MaximumMessageSize": str(LARGEST_MESSAGE), **attributes}
        return f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT_ID}/{name}"

    def sent_to(self, queue: str) -> list[Parameters]:
        """The parameters of the messages so far."""
        return [parameters for name, parameters in self.sent if name == queue]

    def _GetQueueAttributes(self, parameters: Parameters) -> Parameters:
        name, now = self._existing(parameters["QueueUrl"]), self.clock()
        queue = self._queues[name]
        known = self._attributes[name] | {"QueueArn": arn("sqs", name), "VisibilityTimeout": str(queue["visibility"])}
        counted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        known |= unfrozen(self._ask_queue("get_queue_attributes", name, {"AttributeNames": counted}))["Attributes"]
        delayed = sum(each["visible_at"] > now and not each["handle"] for each in queue["messages"])
        known["ApproximateNumberOfMessagesDelayed"] = str(delayed)
        names = parameters["AttributeNames"]
        return {"Attributes": {each: value for each, value in known.items() if each in names or "All" in names}}

    def _SendMessage(self, parameters: Parameters) -> Parameters:
        name, body = self._existing(parameters["QueueUrl"]), parameters["MessageBody"]
        attributes = parameters.get("MessageAttributes", {})
        texts = [body, *(value["StringValue"] for value in attributes.values())]
        assert all(text and ALLOWED.fullmatch(text) for text in texts), f"SQS would have refused {texts!r}"
        assert message_attributes.size(body, attributes) <= LARGEST_MESSAGE
        assert len(attributes) <= MOST_ATTRIBUTES
        assert name.endswith(".fifo") == ("MessageGroupId" in parameters) == ("MessageDeduplicationId" in parameters)
        assert "MessageGroupId" not in parameters or GROUP.fullmatch(parameters["MessageGroupId"])
        if message_attributes.size(body, attributes) > int(self._attributes[name]["MaximumMessageSize"]):
            raise Refusal("InvalidParameterValue", "One or more parameters are invalid: message too long")
        answer = unfrozen(self._ask_queue("send_message", name, parameters))
        self.sent.append((name, parameters))
        return answer

    def _SendMessageBatch(self, parameters: Parameters) -> Parameters:
        return self._batch(self._SendMessage, parameters)

    def _ChangeMessageVisibilityBatch(self, parameters: Parameters) -> Parameters:
        return self._batch(self._ChangeMessageVisibility, parameters)

    def _batch(self, work: Callable[[Parameters], Parameters], parameters: Parameters) -> Parameters:
        """The results of several calls, of which none is refused."""
        url, entries = parameters["QueueUrl"], parameters["Entries"]
        return {"Successful": [{"Id": each["Id"], **work(each | {"QueueUrl": url})} for each in entries]}

    def _ReceiveMessage(self, parameters: Parameters) -> Parameters:
        name, now = self._existing(parameters["QueueUrl"]), self.clock()
        queue = self._queues[name]
        visibility = queue["visibility"]
        found = sqs.receivable(queue, now, together=True)[: parameters.get("MaxNumberOfMessages", 1)]
        queue = queue.with_fields(visibility=parameters.get("VisibilityTimeout", visibility))
        received = []
        for message in found:
            queue, answer = sqs.receive(queue, message, now)
            received += answer.value["Messages"]
        self._queues = self._queues.with_fields(**{name: queue.with_fields(visibility=visibility)})
        return {"Messages": [_shown(each, parameters) for each in received]} if received else {}

    def _ChangeMessageVisibility(self, parameters: Parameters) -> Parameters:
        assert 0 <= parameters["VisibilityTimeout"] <= 43_200
        if parameters["ReceiptHandle"].startswith(DELIVERED_BY_A_TEST):
            return {}
        return self._on_queue("change_message_visibility", parameters)

    def _DeleteMessage(self, parameters: Parameters) -> Parameters:
        return self._on_queue("delete_message", parameters)

    def _on_queue(self, operation: str, parameters: Parameters) -> Parameters:
        return dict(unfrozen(self._ask_queue(operation, self._existing(parameters["QueueUrl"]), parameters)))

    def _ask_queue(self, operation: str, name: str, parameters: Parameters) -> sqs.Answer:
        asked = freeze(parameters | {"QueueUrl": name})
        self._queues, answer = sqs.perform(self._queues, operation, asked, self.clock())
        return answer

    def _existing(self, url: str) -> str:
        name = url.rpartition("/")[2]
        if name not in self._queues:
            raise Refusal(_MISSING, "The specified queue does not exist.")
        return name


def _shown(message: Record, parameters: Parameters) -> Parameters:
    """A message as ReceiveMessage returns it, with the attributes that the call asks for."""
    attributes = {
        "SentTimestamp": str(int(message["sent_at"] * 1000)),
        "ApproximateReceiveCount": str(message["receives"]),
        "ApproximateFirstReceiveTimestamp": str(int(message["first_received"] * 1000)),
    }
    if message["group"] is not None:
        attributes |= {"MessageGroupId": message["group"], "SequenceNumber": str(message["sequence"])}
    wanted = parameters.get("AttributeNames", []) + parameters.get("MessageSystemAttributeNames", [])
    chosen = parameters.get("MessageAttributeNames", [])
    shown = {"MessageId": message["id"], "ReceiptHandle": message["handle"], "Body": message["body"]}
    parts = {
        "Attributes": {name: value for name, value in attributes.items() if name in wanted or "All" in wanted},
        "MessageAttributes": {
            name: value for name, value in thaw(message["attributes"]).items() if name in chosen or "All" in chosen
        },
    }
    return shown | {name: part for name, part in parts.items() if part}
