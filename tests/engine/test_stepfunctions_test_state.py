"""stepfunctions_test_state: one state is run with variables, a context and a mock."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from dev.emulator.aws import EmbeddedAws
from dev.emulator.local_clients import local_client

STATE: dict[str, Any] = {
    "Type": "Task",
    "QueryLanguage": "JSONata",
    "Resource": "arn:aws:states:::dynamodb:getItem",
    "Arguments": {"TableName": "{% $table %}", "Key": {"id": {"S": "{% $states.context.Execution.Name %}"}}},
    "Assign": {"n": "{% $states.result.Item.n.N %}"},
    "TimeoutSeconds": "{% $seconds %}",
    "Retry": [{"ErrorEquals": ["Again"], "MaxAttempts": 2}, {"ErrorEquals": ["Never"], "MaxAttempts": 0}],
    "Catch": [
        {"ErrorEquals": ["States.QueryEvaluationError", "Never"], "Assign": {"n": "none"}, "Next": "Caught"},
        {"ErrorEquals": ["Again"], "Next": "GivenUp"},
    ],
    "Next": "Found",
}
VARIABLES = {"table": "t", "seconds": 3}


class OneState:
    """TestState of a Task of a definition."""

    def __init__(self, aws: EmbeddedAws) -> None:
        settings = Config(inject_host_prefix=False)  # AWS has another host for this action
        self._client = local_client("stepfunctions", aws.endpoint, settings=settings)

    def __call__(self, mock: dict[str, Any], variables: dict[str, Any] = VARIABLES, **fields: Any) -> dict[str, Any]:
        definition = {"StartAt": "Read", "States": {"Read": STATE, "Found": {"Type": "Pass", "End": True}}}
        context = {"Execution": {"Name": "e"}}
        answer: dict[str, Any] = self._client.test_state(
            definition=json.dumps(definition),
            stateName="Read",
            inspectionLevel="DEBUG",
            context=json.dumps(context),
            variables=json.dumps(variables),
            mock=mock,
            **fields,
        )
        return answer

    def alone(self, state: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """TestState of a definition that is one state."""
        answer: dict[str, Any] = self._client.test_state(definition=json.dumps(state), **fields)
        return answer


@pytest.fixture
def one_state(aws: EmbeddedAws) -> OneState:
    return OneState(aws)


def test_a_mocked_result_is_assigned_and_no_service_is_called(one_state: OneState) -> None:
    answer = one_state({"result": json.dumps({"Item": {"n": {"N": "1"}}})})
    assert (answer["status"], answer["nextState"]) == ("SUCCEEDED", "Found")
    inspection = answer["inspectionData"]
    assert json.loads(inspection["afterArguments"]) == {"TableName": "t", "Key": {"id": {"S": "e"}}}
    assert json.loads(inspection["variables"]) == VARIABLES | {"n": "1"}


@pytest.mark.parametrize(
    ("mock", "variables"),
    [
        pytest.param({"result": "{}"}, VARIABLES, id="in Assign"),
        pytest.param({"result": '{"Item":{"n":{"N":"1"}}}'}, {"seconds": 3}, id="in Arguments"),
        pytest.param({"result": '{"Item":{"n":{"N":"1"}}}'}, {"table": "t"}, id="in TimeoutSeconds"),
    ],
)
def test_an_undefined_value_is_caught(one_state: OneState, mock: dict[str, Any], variables: dict[str, Any]) -> None:
    answer = one_state(mock, variables)
    assert (answer["status"], answer["error"], answer["nextState"]) == (
        "CAUGHT_ERROR",
        "States.QueryEvaluationError",
        "Caught",
    )
    assert json.loads(answer["inspectionData"]["variables"])["n"] == "none"


@pytest.mark.parametrize(
    ("error", "retries", "expected"),
    [
        ("Again", 1, ("RETRIABLE", None)),
        ("Again", 2, ("CAUGHT_ERROR", "GivenUp")),
        ("Never", 0, ("CAUGHT_ERROR", "Caught")),
        ("Other", 0, ("FAILED", None)),
    ],
)
def test_a_mocked_error_is_retried_caught_or_fails(
    one_state: OneState, error: str, retries: int, expected: tuple[str, str | None]
) -> None:
    mock = {"errorOutput": {"error": error, "cause": "why"}}
    answer = one_state(mock, stateConfiguration={"retrierRetryCount": retries})
    assert (answer["status"], answer.get("nextState")) == expected
    assert (answer["error"], answer["cause"]) == (error, "why")


def test_a_state_without_a_mock_has_the_variables(one_state: OneState) -> None:
    wait = {"Type": "Wait", "QueryLanguage": "JSONata", "Seconds": "{% $seconds %}", "Next": "After"}
    assert one_state.alone(wait, variables='{"seconds": 0}')["nextState"] == "After"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"mock": {"result": "{}"}}, "State type 'Pass' is not supported when a mock is specified"),
        ({"context": "{}"}, "A context needs a mock"),
    ],
)
def test_what_aws_refuses_is_refused(one_state: OneState, fields: dict[str, Any], reason: str) -> None:
    """The first as recorded by LocalStack's snapshot test test_state_type_does_not_accept_mock."""
    with pytest.raises(ClientError, match=reason):
        one_state.alone({"Type": "Pass", "QueryLanguage": "JSONata", "End": True}, **fields)
