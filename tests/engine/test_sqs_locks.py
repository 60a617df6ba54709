"""sqs_locks: a message sent from one thread while another changes the queue is not lost."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from local.aws import EmbeddedAws
from tests.engine.conftest import MachineMaker
from tests.support.waiting import wait_until

EXECUTIONS = 6
STEPS = 15


def test_what_executions_send_while_clients_delete_is_kept(
    aws: EmbeddedAws, machine: MachineMaker, unique: Callable[[str], str]
) -> None:
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName=unique("busy"))["QueueUrl"]
    send: dict[str, Any] = {"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage"}
    send["Arguments"] = {"QueueUrl": url, "MessageBody": "{% $states.context.Execution.Name %}"}
    states = {f"Send{step}": send | {"Next": f"Send{step + 1}"} for step in range(STEPS)}
    arn = machine(states | {f"Send{STEPS}": {"Type": "Succeed"}})
    received: set[str] = set()

    def take() -> bool:
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            received.add(message["MessageId"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return len(received) == EXECUTIONS * STEPS

    with ThreadPoolExecutor(EXECUTIONS) as pool:
        list(pool.map(lambda _: machine.start(arn), range(EXECUTIONS)))
    wait_until(take, "every message", interval=0)
