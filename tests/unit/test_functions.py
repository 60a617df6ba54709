"""The handlers: their answers to the events of Lambda."""

from __future__ import annotations

import json
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import urllib3

from slotkeeper.settings import (
    EndingSettings,
    JanitorSettings,
    MissingSetting,
    StarterSettings,
    load_settings,
)
from tests.simulation.account.boundary import refuse
from tests.simulation.account.function_environment import OF_SLOTS
from tests.unit.conftest import CONTEXT, NOW, Account, Load


def test_the_janitor_runs_on_any_event(account: Account, load: Load) -> None:
    account.processes.set_limit("p", 0)
    account.queue("a", weight=2)
    assert load("janitor").handler({}, CONTEXT) == {"BlockedRequests": 0, "StartsOverdue": 0, "RequestsUnpublished": 0}


def _custom_resource(request_type: str, **properties: str) -> dict[str, Any]:
    return {
        "RequestType": request_type,
        "ResponseURL": "http://127.0.0.1:1/answer",
        "StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/slotkeeper/1",
        "RequestId": "request",
        "LogicalResourceId": "Process",
        "ResourceProperties": {"ProcessName": "new", "SlotLimit": "4", "Target": "job", **properties},
    }


class Registrar:
    """The function that registers processes. `handle` returns its answer to CloudFormation."""

    def __init__(self, account: Account, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.account = account
        self.module = module
        self._answers: list[dict[str, Any]] = []
        monkeypatch.setattr(urllib3.PoolManager, "request", self._put)

    def _put(self, _method: str, _url: str, body: str, **_: Any) -> Any:
        self._answers.append(json.loads(body))
        return SimpleNamespace(status=200)

    def handle(self, event: dict[str, Any]) -> dict[str, Any]:
        self.module.handler(event, CONTEXT)
        return self._answers.pop()

    def refusal(self, event: dict[str, Any]) -> str:
        """Why the deployment fails."""
        answer = self.handle(event)
        assert answer["Status"] == "FAILED"
        return str(answer["Reason"])


@pytest.fixture
def registrar(account: Account, load: Load, monkeypatch: pytest.MonkeyPatch) -> Registrar:
    return Registrar(account, load("process_registrar"), monkeypatch)


def test_the_registrar_refuses_a_job_whose_runs_glue_queues(registrar: Registrar) -> None:
    registrar.account.aws.make_job("job", JobRunQueuingEnabled=True)
    assert "JobRunQueuingEnabled; turn it off" in registrar.refusal(_custom_resource("Create"))


def test_f10_a_later_parameter_does_not_overwrite_what_operators_set(registrar: Registrar) -> None:
    registrar.account.aws.make_job("job")
    registrar.handle(_custom_resource("Create"))
    registrar.account.processes.set_limit("new", 9)
    assert registrar.handle(_custom_resource("Update", SlotLimit="5"))["Status"] == "SUCCESS"
    assert registrar.account.item("new").slot_limit == 9


@pytest.mark.parametrize(
    ("set_by_an_operator", "afterwards"), [(None, "mine"), ("theirs", "theirs")], ids=["unchanged", "changed"]
)
def test_the_job_of_a_process_follows_the_stack_unless_an_operator_changed_it(
    registrar: Registrar, set_by_an_operator: str | None, afterwards: str
) -> None:
    """A change of GlueJobName deletes the sample job. A process that kept it could not run."""
    registrar.account.aws.make_job("job")
    registrar.account.aws.make_job("mine")
    created = _custom_resource("Create")
    registrar.handle(created)
    if set_by_an_operator:
        registrar.account.processes.change_target("new", set_by_an_operator, before="job")
    registrar.handle(
        _custom_resource("Update", Target="mine") | {"OldResourceProperties": created["ResourceProperties"]}
    )
    assert registrar.account.item("new").target == afterwards


JOB_ARN = "arn:aws:glue:us-east-1:123456789012:job/"
MACHINE_ARN = "arn:aws:states:us-east-1:123456789012:stateMachine:"


def _permitted(*jobs: str, before: dict[str, Any] | None = None, sample: str = "") -> dict[str, Any]:
    """The event before a deployment limits the roles to these jobs."""
    asked = _custom_resource("Update") | {"LogicalResourceId": "PermittedJobs", "ResourceType": "Custom::PermittedJobs"}
    asked["ResourceProperties"] = {
        "JobArns": [JOB_ARN + job for job in jobs],
        "StateMachineArns": [MACHINE_ARN + "nightly"],
        "SampleJob": sample,
    }
    return asked | ({"OldResourceProperties": before} if before else {})


@pytest.mark.parametrize("holder", ["runs", "is reserved"])
def test_a_job_for_which_a_slot_is_held_cannot_be_taken_from_the_roles(registrar: Registrar, holder: str) -> None:
    """Neither its workflow nor the janitor could read its Glue run any more."""
    if holder == "runs":
        registrar.account.slots.adopt("p", "p-1", NOW, "job")
    else:
        registrar.account.hold("p-1")
    answer = registrar.handle(_permitted("new"))
    assert (answer["Status"], answer["PhysicalResourceId"]) == ("FAILED", "permitted-jobs")
    assert "p-1 holds a slot of process p for Glue job job, which this update would remove" in answer["Reason"]


@pytest.mark.parametrize("jobs", [("new", "job"), ("new", "j?*")], ids=" ".join)
def test_a_job_that_stays_permitted_may_be_in_use(registrar: Registrar, jobs: tuple[str, ...]) -> None:
    registrar.account.slots.adopt("p", "p-1", NOW, "job")
    assert registrar.handle(_permitted(*jobs))["Status"] == "SUCCESS"


def test_the_sample_job_counts_as_removed_even_if_a_pattern_permits_it(registrar: Registrar) -> None:
    registrar.account.slots.adopt("p", "p-1", NOW, "sample-job")
    before = _permitted("sample-job", sample="sample-job")["ResourceProperties"]
    assert registrar.handle(_permitted("new", "*", before=before))["Status"] == "FAILED"
    kept = _permitted("sample-job", "*", before=before, sample="sample-job")
    assert registrar.handle(kept)["Status"] == "SUCCESS"


def test_no_job_can_be_removed_while_a_process_cannot_be_read(registrar: Registrar) -> None:
    registrar.account.write("holders", {"S": "p-1"})
    reason = registrar.handle(_permitted("new"))["Reason"]
    assert "cannot read which targets are in use: process p: holders must be" in reason


def test_the_permitted_jobs_can_always_be_deleted_with_their_stack(registrar: Registrar) -> None:
    registrar.account.slots.adopt("p", "p-1", NOW, "job")
    assert registrar.handle(_permitted("new") | {"RequestType": "Delete"})["Status"] == "SUCCESS"


def test_a_process_can_run_a_state_machine(registrar: Registrar) -> None:
    target = registrar.account.aws.make_machine("nightly")
    assert registrar.handle(_custom_resource("Create", Target=target))["Status"] == "SUCCESS"
    assert registrar.account.item("new").target == target


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("arn:aws:states:us-east-1:123456789012:stateMachine:missing", "missing does not exist; create it before"),
        ("arn:aws:states:us-east-1:123456789012:stateMachine:nightly:1", "without version or alias"),
        ("arn:aws:states:us-east-1:999999999999:stateMachine:nightly", "must be in the stack's account 123456789012"),
        ("arn:aws:states:eu-west-1:123456789012:stateMachine:nightly", "must be in the stack's account 123456789012"),
        ("arn:aws:states:us-east-1:123456789012:stateMachine:quick", "is of type EXPRESS; it must be STANDARD"),
        ("arn:aws:states:us-east-1:123456789012:stateMachine:secret", "is encrypted with arn:aws:kms:other"),
    ],
    ids=["missing", "qualified", "another account", "another Region", "express", "encrypted"],
)
def test_a_state_machine_that_cannot_run_in_a_slot_is_refused_with_the_reason(
    registrar: Registrar, target: str, reason: str
) -> None:
    registrar.account.aws.make_machine("nightly")
    registrar.account.aws.make_machine("quick", "EXPRESS")
    encryption = {"type": "CUSTOMER_MANAGED_KMS_KEY", "kmsKeyId": "arn:aws:kms:other"}
    registrar.account.aws.make_machine("secret", encryptionConfiguration=encryption)
    assert reason in registrar.refusal(_custom_resource("Create", Target=target))
    assert registrar.account.item("new") is None


def test_a_state_machine_for_which_a_slot_is_held_cannot_be_taken_from_the_roles(registrar: Registrar) -> None:
    registrar.account.slots.adopt("p", "p-1", NOW, MACHINE_ARN + "nightly")
    assert registrar.handle(_permitted("new"))["Status"] == "SUCCESS"
    registrar.account.slots.adopt("p", "p-2", NOW, MACHINE_ARN + "removed")
    reason = registrar.handle(_permitted("new"))["Reason"]
    assert f"p-2 holds a slot of process p for state machine {MACHINE_ARN}removed, which this update" in reason
    assert "Either keep it in MoreStateMachineArns, or let its runs end" in reason


def test_f12_a_job_that_retries_by_itself_is_refused(registrar: Registrar) -> None:
    registrar.account.aws.make_job("job", MaxRetries=1)
    assert "MaxRetries 1; it must be 0" in registrar.refusal(_custom_resource("Create"))
    assert registrar.account.item("new") is None


@pytest.mark.parametrize(
    ("properties", "reason"), [({"SlotLimit": "100001"}, "0 to 100000"), ({"Target": "missing"}, "missing")]
)
def test_a_process_that_could_not_work_fails_the_deployment_with_the_reason(
    registrar: Registrar, properties: dict[str, str], reason: str
) -> None:
    assert reason in registrar.refusal(_custom_resource("Create", **properties))


def test_the_registrar_waits_until_its_role_is_effective(registrar: Registrar, monkeypatch: pytest.MonkeyPatch) -> None:
    registrar.account.aws.make_job("job")
    refuse(registrar.module._glue, "GetJob", "AccessDeniedException", times=3)
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert registrar.handle(_custom_resource("Create"))["Status"] == "SUCCESS"


def test_deleting_the_stack_leaves_the_process(registrar: Registrar) -> None:
    assert registrar.handle(_custom_resource("Delete", ProcessName="p"))["Status"] == "SUCCESS"
    assert registrar.account.item("p") is not None


OF_ENDS = ["FAILURE_TOPIC_ARN", "REQUEST_RETENTION_DAYS", "FAILED_RETENTION_DAYS", "REQUEST_DEAD_LETTER_QUEUE_URL"]
SHARED = ["SLOT_TABLE_NAME", "REQUEST_TABLE_NAME", "DISPATCH_QUEUE_URL", "WORKFLOW_ARN"]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        *((StarterSettings, name) for name in (*SHARED, "ENDING_QUEUE_URL", "REQUEST_DEAD_LETTER_QUEUE_URL")),
        *((JanitorSettings, name) for name in (*SHARED, *OF_ENDS)),
        (EndingSettings, "ENDING_QUEUE_URL"),
    ],
)
def test_a_missing_setting_is_named(
    settings: Any, name: str, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in OF_SLOTS.items():
        monkeypatch.setenv(variable, value)
    load_settings(settings)
    monkeypatch.delenv(name)
    with pytest.raises(MissingSetting, match=f"lacks {name}"):
        load_settings(settings)
