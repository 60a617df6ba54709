"""apigateway_responses: an imported API has its document's gateway responses."""

import json
from collections.abc import Callable
from typing import Any

import urllib3

from dev.emulator.aws import EmbeddedAws
from tests.support.waiting import wait_until

TEMPLATE: dict[str, Any] = {
    "Resources": {
        "Api": {
            "Type": "AWS::ApiGateway::RestApi",
            "Properties": {
                "Body": {
                    "openapi": "3.0.1",
                    "info": {"title": "api", "version": "1"},
                    "paths": {"/there": {"get": {"x-amazon-apigateway-integration": {"type": "mock"}}}},
                    "x-amazon-apigateway-gateway-responses": {
                        "MISSING_AUTHENTICATION_TOKEN": {
                            "statusCode": "404",
                            "responseTemplates": {"application/json": '{"reason": $context.error.messageString}'},
                        }
                    },
                }
            },
        },
        "Deployment": {"Type": "AWS::ApiGateway::Deployment", "Properties": {"RestApiId": {"Ref": "Api"}}},
        "Stage": {
            "Type": "AWS::ApiGateway::Stage",
            "Properties": {"RestApiId": {"Ref": "Api"}, "DeploymentId": {"Ref": "Deployment"}, "StageName": "v1"},
        },
    },
    "Outputs": {"Api": {"Value": {"Ref": "Api"}}},
}


def test_an_imported_api_has_the_gateway_responses_of_its_document(
    aws: EmbeddedAws, unique: Callable[[str], str]
) -> None:
    stacks, name = aws.client("cloudformation"), unique("api")
    stacks.create_stack(StackName=name, TemplateBody=json.dumps(TEMPLATE))

    def outputs() -> list[dict[str, str]] | None:
        listed: list[dict[str, str]] | None = stacks.describe_stacks(StackName=name)["Stacks"][0].get("Outputs")
        return listed

    (output,) = wait_until(outputs, "the stack")
    url = f"{aws.endpoint}/restapis/{output['OutputValue']}/v1/_user_request_/not-there"
    answer = urllib3.request("GET", url)
    assert (answer.status, answer.json()) == (404, {"reason": "Missing Authentication Token"})
