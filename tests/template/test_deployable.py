"""The template deploys with default answers: AWS and SAM CLI neither refuse it nor stop at a question.

Each rule names the page or the program that states it. Parameters have their defaults unless a test gives others.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.template.parsing import parsed
from tests.template.roles.resolved_template import CHATBOT, WORKER, Stack
from tests.template.test_template import TEMPLATE

ROOT = Path(__file__).parents[2]
KEY = "arn:aws:kms:us-east-1:123456789012:key/1"
TEMPLATES = {name: parsed((ROOT / name).read_text()) for name in ("template.yaml", "docs/completion-events.yaml")}


def _of_type(template: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {n: r["Properties"] for n, r in template["Resources"].items() if dict(r).get("Type") == kind}


# ------------------------------------------------------------------------------------------------------------ queues


def queue_policy_faults(policy: dict[str, Any]) -> Iterator[str]:
    """The reasons why SQS refuses a policy or changes its meaning.

    SQS guide, "Special Information for SQS Policies": each policy must cover only a single queue. `*` is the queue that
    the policy is attached to. The same guide, "Amazon SQS policy quotas": 20 statements, and seven actions in each.
    """
    statements = policy["PolicyDocument"]["Statement"]
    if len(statements) > 20:
        yield f"{len(statements)} statements"
    for statement in statements:
        resource, actions = statement["Resource"], statement["Action"]
        if isinstance(resource, list) and len(resource) > 1:
            yield f"{statement['Sid']} names {len(resource)} queues"
        elif len(policy["Queues"]) > 1 and resource != "*":
            yield f"{statement['Sid']} names one of the {len(policy['Queues'])} queues that it is attached to"
        if isinstance(actions, list) and len(actions) > 7:
            yield f"{statement['Sid']} has {len(actions)} actions"


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_statement_of_a_queues_policy_covers_that_queue_alone(name: str) -> None:
    for policy in _of_type(TEMPLATES[name], "AWS::SQS::QueuePolicy").values():
        assert list(queue_policy_faults(policy)) == []


@pytest.mark.parametrize("key", ["", KEY])
def test_a_queue_is_encrypted_by_exactly_one_kind_of_key(key: str) -> None:
    """SQS API reference, SetQueueAttributes: a queue supports one kind of encryption, SSE-KMS or SSE-SQS.

    CloudFormation ignores a property that an update omits, so a queue would keep SSE-SQS in addition to its new key.
    """
    for name, queue in Stack(KmsKeyArn=key, **WORKER).of_type("AWS::SQS::Queue").items():
        assert (queue.get("KmsMasterKeyId", ""), queue.get("SqsManagedSseEnabled")) == (key, not key), name


# ------------------------------------------------------------------------------------------------------- concurrency


@pytest.mark.parametrize("flow", ["", "Chatbot", "Worker"])
def test_concurrency_is_reserved_by_a_parameter_alone(flow: str) -> None:
    """A new account can reserve none: 100 invocations stay unreserved of its limit of 10 (Lambda API reference,
    PutFunctionConcurrency; Lambda guide, "Lambda quotas")."""
    given = {f"{flow}ReservedConcurrency": "7"} if flow else {}
    functions = Stack(**given, **CHATBOT, **WORKER).of_type("AWS::Lambda::Function")
    reserved = {name: made.get("ReservedConcurrentExecutions") for name, made in functions.items()}
    assert {name: each for name, each in reserved.items() if each} == ({f"{flow}Function": "7"} if flow else {})


SECONDS_OF_A_REFUSAL = 0.006  # a call of a warm container in the Lambda runtime, measured: 2 to 6 ms


def test_unsigned_requests_leave_a_new_account_most_of_its_concurrency() -> None:
    """The function receives them, since only it verifies signatures; every method of the API is throttled."""
    (stage,) = Stack(**CHATBOT).of_type("AWS::ApiGateway::Stage").values()
    (settings,) = stage["MethodSettings"]
    assert (settings["HttpMethod"], settings["ResourcePath"]) == ("*", "/*")
    rate, burst = (float(settings[f"Throttling{name}Limit"]) for name in ("Rate", "Burst"))
    assert rate * SECONDS_OF_A_REFUSAL < 1
    assert burst * SECONDS_OF_A_REFUSAL < 1  # one concurrent invocation handles a burst within a second


# -------------------------------------------------------------------------------------------------- sam deploy --guided


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # between SAM CLI's own packages
@pytest.mark.parametrize("flows", [{}, CHATBOT, CHATBOT | {"TokenRefreshSchedule": "rate(1 hour)"}, CHATBOT | WORKER])
def test_guided_does_not_ask_whether_a_function_may_have_no_authorization(flows: dict[str, str]) -> None:
    """By SAM CLI's own rule. Enter answers its question with no, which ends the deployment."""
    from samcli.commands.deploy.auth_utils import auth_per_resource
    from samcli.lib.providers.sam_stack_provider import SamLocalStackProvider

    template = copy.deepcopy(TEMPLATE)  # SAM changes it
    stacks, _ = SamLocalStackProvider.get_stacks(template_dictionary=template, parameter_overrides=flows)
    assert [function for function, has_auth in auth_per_resource(stacks) if not has_auth] == []


def test_guided_does_not_end_with_a_question_whose_default_is_no() -> None:
    """With `confirm_changeset`, Enter at "Deploy this changeset? [y/N]" deploys nothing."""
    from samcli.lib.config.samconfig import SamConfig

    assert SamConfig(ROOT).get_all(["deploy"], "parameters", "default")["confirm_changeset"] is False


def test_the_managed_bucket_of_guided_is_the_one_that_the_sample_job_reads() -> None:
    config = tomllib.loads((ROOT / "samconfig.toml").read_text())
    assert config["default"]["deploy"]["parameters"]["resolve_s3"] is True
    allowed = TEMPLATE["Parameters"]["ArtifactBucketName"]["Default"]
    assert allowed.startswith("aws-sam-cli-managed-default-samclisourcebucket-")
