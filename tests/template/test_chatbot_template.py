"""The chatbot in the template: relations between its numbers, and the roles that may read each secret."""

from __future__ import annotations

import json
import re

import pytest

from slotkeeper.aws import custom_resource
from slotkeeper.chatbot.service import ANSWER_SECONDS
from slotkeeper.chatbot.signatures import WINDOW
from slotkeeper.chatbot.token import timing
from slotkeeper.token.timing import LONGEST_POLL_SECONDS
from tests.template.test_template import FUNCTIONS, RESOURCES, ROOT, TEMPLATE

# API Gateway guide, "Quotas for configuring and running a REST API in API Gateway": integration timeout.
API_GATEWAY_SECONDS = 29

TIMING = timing(min_interval=5)


def _app(function: str) -> str:
    return (ROOT / "functions" / function / "app.py").read_text()


def _spare_seconds() -> float:
    match = re.search(r"^ANSWER_MARGIN_SECONDS = ([\d.]+)$", _app("chatbot"), re.MULTILINE)
    assert match is not None
    return float(match[1])


def test_the_function_ends_before_the_timeout_of_api_gateway() -> None:
    assert FUNCTIONS["ChatbotFunction"]["Timeout"] < API_GATEWAY_SECONDS


def test_two_answers_and_the_longest_wait_between_them_fit_the_functions_timeout() -> None:
    longest = ANSWER_SECONDS + TIMING.patience + ANSWER_SECONDS
    assert longest + _spare_seconds() <= FUNCTIONS["ChatbotFunction"]["Timeout"]


def test_the_longest_wait_covers_a_dead_lock_holder_and_the_refresh_of_its_successor() -> None:
    # A waiting instance checks at most a pause after the lease's end, and may have begun slightly before the holder.
    assert TIMING.patience >= TIMING.lease + LONGEST_POLL_SECONDS + TIMING.holding + 1


def test_the_alarm_on_waits_is_between_the_lease_and_the_longest_wait() -> None:
    threshold = RESOURCES["TokenWaitAlarm"]["Properties"]["Threshold"]
    assert TIMING.lease <= threshold < TIMING.patience


def test_the_refresher_has_time_to_wait_and_to_answer_cloudformation() -> None:
    resource = RESOURCES["TokenAtDeployment"]["Properties"]
    timeout = FUNCTIONS["TokenRefresherFunction"]["Timeout"]
    longest = custom_resource.ROLE_SECONDS + TIMING.patience + custom_resource.ANSWER_SECONDS
    assert longest < timeout < resource["ServiceTimeout"]


def test_a_token_that_becomes_invalid_immediately_can_be_refreshed_before_the_longest_wait_ends() -> None:
    """By the slowest clock too, with the check at the end of the longest pause."""
    longest = TEMPLATE["Parameters"]["TokenMinRefreshSeconds"]["MaxValue"] + TIMING.spread + LONGEST_POLL_SECONDS
    assert longest + TIMING.holding <= TIMING.patience


def test_f34_signatures_are_deleted_by_the_attribute_that_the_code_writes() -> None:
    ttl = RESOURCES["SeenSignatureTable"]["Properties"]["TimeToLiveSpecification"]
    assert ttl == {"AttributeName": "expires_at", "Enabled": True}
    assert WINDOW == 300


def test_no_resource_of_the_refresher_exists_without_a_schedule() -> None:
    named = {name for name in RESOURCES if name.startswith("TokenRefresher") or name == "TokenAtDeployment"}
    assert len(named) == 6
    assert all(RESOURCES[name]["Condition"] == "HasRefresher" for name in named)
    assert TEMPLATE["Parameters"]["TokenRefreshSchedule"]["Default"] == ""


def test_an_invocation_of_the_refresher_is_not_repeated_after_its_lock_has_expired() -> None:
    config = FUNCTIONS["TokenRefresherFunction"]["EventInvokeConfig"]
    assert config == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}


def test_a_deployment_does_not_overwrite_a_secrets_value() -> None:
    credentials = RESOURCES["ApiCredentialsSecret"]["Properties"]
    assert not {"SecretString", "GenerateSecretString"} & credentials.keys()
    assert "SecretString" not in RESOURCES["SigningKeySecret"]["Properties"]


def test_the_signing_key_is_generated_under_the_name_that_the_code_reads() -> None:
    made = RESOURCES["SigningKeySecret"]["Properties"]["GenerateSecretString"]
    assert (made["GenerateStringKey"], json.loads(made["SecretStringTemplate"])) == ("signing_key", {})
    assert made["PasswordLength"] >= 32


def test_no_secret_value_is_in_an_environment_variable() -> None:
    """Every reader of a function's configuration would see it."""
    for name in ("ChatbotFunction", "TokenRefresherFunction"):
        variables = FUNCTIONS[name]["Environment"]["Variables"]
        assert not [key for key in variables if re.search("TOKEN$|PASSWORD|CLIENT_SECRET|SIGNING_KEY$", key)]
        assert "resolve:secretsmanager" not in str(variables)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://api.example.com", True),
        ("https://api.example.com/v2", True),
        ("http://127.0.0.1:8080", True),
        ("http://api.example.com", False),
        ("http://127.0.0.1.example.com", False),
        ("https://user:password@api.example.com", False),
        ("https://api.example.com?x=1", False),
        ("", True),  # no chatbot
        ("https://", False),
    ],
)
def test_credentials_are_sent_over_https_only(url: str, allowed: bool) -> None:
    pattern = TEMPLATE["Parameters"]["ChatApiUrl"]["AllowedPattern"]
    assert (re.fullmatch(pattern, url) is not None) == allowed


def test_the_answers_of_api_gateway_have_the_form_of_the_chatbots() -> None:
    for response in RESOURCES["ChatbotApi"]["Properties"]["GatewayResponses"].values():
        template = response["ResponseTemplates"]["application/json"]
        # API Gateway guide, "Variables for data models": messageString comes with its quotes.
        rendered = template.replace("$context.error.messageString", '"said"')
        assert json.loads(rendered).keys() == {"code", "reason", "request_id"}
