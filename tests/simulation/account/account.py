"""The AWS account of a test, in the process: it answers every call of every boto3 client, without HTTP.

    aws = AwsAccount().use()
    boto3.client("sqs").send_message(QueueUrl=aws.make_queue("work"), MessageBody="{}")
    aws.sent_to("work")

Tables, queues, executions, job runs, schedules, tasks and objects are those of the simulation (tests/simulation/aws),
which tests/facts compares with AWS and with the embedded AWS. A call that AWS refuses is refused; an operation without
a method here raises NotSimulated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock
from types import SimpleNamespace
from typing import Any, ClassVar, Self

from botocore.handlers import BUILTIN_HANDLERS, REGISTER_LAST

from tests.simulation.account.boundary import note_parameters
from tests.simulation.account.executions import StepFunctions
from tests.simulation.account.items import DynamoDb
from tests.simulation.account.notices import EventBridge, Settings, Sns
from tests.simulation.account.queues import Sqs
from tests.simulation.account.service import Parameters, Refusal
from tests.simulation.account.stack import CloudFormation, CloudWatch, Lambda
from tests.simulation.account.work import S3, Glue, Scheduler

Answer = tuple[Any, Parameters]
Stubs = Mapping[str, Callable[[Parameters], Parameters | None]]
_ITEMS = ("BatchGetItem", "DeleteItem", "GetItem", "PutItem", "Query", "Scan", "TransactWriteItems", "UpdateItem")


class NotSimulated(BaseException):
    """The account has no such operation. A BaseException, so that no `except Exception` of the code catches it."""


class AwsAccount(
    *(DynamoDb, Sqs, StepFunctions, Glue, Scheduler, S3, Sns, EventBridge, Settings),
    *(CloudFormation, Lambda, CloudWatch),
):
    """One small account.

    Attributes:
        made: the name of each operation, in order.
        refuse: operation -> the error code with which each call is refused.
        stubs: (service, operation -> function of its parameters). The last stub of a call whose function returns an
            answer, which may be an error, answers instead of the account.
    """

    current: ClassVar[AwsAccount | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []
        self.refuse: dict[str, str] = {}
        self.stubs: list[tuple[str, Stubs]] = []
        self._lock = RLock()

    def use(self) -> Self:
        """Answer the calls of all clients from now on, instead of the account before."""
        AwsAccount.current = self
        return self

    def answer(self, model: Any, parameters: Parameters) -> Answer:
        """The answer to an operation with these parameters."""
        self.made.append(model.name)
        try:
            if model.name in self.refuse:
                raise Refusal(self.refuse[model.name])
            answer = self._stubbed(model, parameters)
            if answer is None:
                with self._lock:
                    answer = self._perform_operation(model, parameters)
        except Refusal as refusal:
            answer = refusal.answer
        return SimpleNamespace(status_code=400 if "Error" in answer else 200, headers={}), answer

    def _stubbed(self, model: Any, parameters: Parameters) -> Parameters | None:
        asked = model.service_model.service_name
        found = [stubs[model.name] for service, stubs in self.stubs if service == asked and model.name in stubs]
        answers = (stub(parameters) for stub in reversed(found))
        return next((answer for answer in answers if answer is not None), None)

    def _perform_operation(self, model: Any, parameters: Parameters) -> Parameters:
        work = getattr(self, f"_{model.name}", None)
        if work is not None:
            answer: Parameters = work(parameters)
            return answer
        if model.name in _ITEMS:
            return self.tables.perform(model.name, parameters)
        raise NotSimulated(f"{model.name} of {model.service_model.service_name}")


def install() -> None:
    """Let the account in use answer the clients of all sessions that are created later."""
    BUILTIN_HANDLERS.append(("before-parameter-build", note_parameters))
    BUILTIN_HANDLERS.append(("before-call", _answer, REGISTER_LAST))  # after the hooks of a test


def _answer(model: Any, params: Any, context: dict[str, Any], **_: Any) -> Answer | None:
    account, is_local = AwsAccount.current, params["url"].startswith("http://127.0.0.1")
    return None if account is None or is_local else account.answer(model, context["parameters"])
