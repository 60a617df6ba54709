"""The permissions that each role needs, from recorded calls and the services' own use of roles."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache

import boto3

from tests.http_servers import Listener
from tests.template.roles import cases, needs, workflow_calls
from tests.template.roles.policies import Need
from tests.template.roles.recording import Call, Recorded, recorder
from tests.template.roles.resolved_template import CHATBOT, ROOT, WORKER, Stack

JOB_SCRIPT = ROOT / "jobs" / "monthly_weather.py"
WEATHER = b"date,precipitation,temp_max,temp_min,wind,weather\n2012/01/01,0.0,12.8,5.0,4.7,drizzle\n"
KEY_ARN = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
MACHINES = "arn:aws:states:us-east-1:123456789012:stateMachine"
FLOWS = CHATBOT | WORKER
# The parameters that change permissions, each alone and all together, with every flow deployed.
VARIANTS: dict[str, dict[str, str]] = {
    "default": FLOWS,
    "token refresher": FLOWS | {"TokenRefreshSchedule": "rate(30 minutes)"},
    "retry report": FLOWS | {"RetryReportSchedule": "rate(7 days)"},
    "own jobs": FLOWS
    | {
        "GlueJobName": "own-job",
        "MoreGlueJobArns": ",".join(f"arn:aws:glue:us-east-1:123456789012:job/{name}" for name in ("second", "third")),
    },
    "state machines": FLOWS
    | {
        "TargetStateMachineArn": f"{MACHINES}:child",
        "MoreStateMachineArns": f"{MACHINES}:second,{MACHINES}:third",
    },
    "callers": FLOWS | {"CallerStateMachineArns": f"{MACHINES}:caller,{MACHINES}:another-caller"},
    "own key": FLOWS | {"KmsKeyArn": KEY_ARN, "RetryReportSchedule": "rate(7 days)"},
    "in a VPC": FLOWS | {"SubnetIds": "subnet-1,subnet-2", "SecurityGroupIds": "sg-1"},
}
VARIANTS["all"] = {name: value for variant in VARIANTS.values() for name, value in variant.items()}


@cache
def stack(variant: str) -> Stack:
    return Stack(**VARIANTS[variant])


def jobs(made: Stack) -> list[str]:
    """The Glue jobs that the stack's processes may run: GlueJobName or the sample job, and MoreGlueJobArns."""
    return [arn.rpartition("/")[2] for arn in made.properties("PermittedJobs")["JobArns"]]


def machines(made: Stack) -> list[str]:
    """The state machines that the stack's processes may run."""
    listed = f"{made.parameters['TargetStateMachineArn']},{made.parameters['MoreStateMachineArns']}"
    return [arn for arn in listed.split(",") if arn]


def callers(made: Stack) -> list[str]:
    """State machines whose tasks may wait for answers."""
    return (made.parameters["CallerStateMachineArns"] or f"{MACHINES}:any").split(",")


@cache
def calls(variant: str) -> dict[str, list[Call]]:
    """One call of each kind of every function, the workflow and the sample job, by logical id."""
    made = stack(variant)
    work = jobs(made), machines(made), callers(made)
    with recorder(made) as running, Listener() as api:
        for case in cases.of_stack(made, *work, api):
            running.run(case, api)
    recorded = {function: _one_of_each(each) for function, each in running.calls.items()}
    recorded["Workflow"] = list(workflow_calls.calls(made, *work))
    return recorded | ({"SampleJob": _sample_job_calls(made)} if "SampleJob" in made.resources else {})


def _sample_job_calls(made: Stack) -> list[Call]:
    specification = importlib.util.spec_from_file_location("monthly_weather", JOB_SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    with recorder(made):
        account = Recorded().use()
        account.objects["input"] = WEATHER
        script.run(boto3.client("s3"), made.properties("SampleJob")["DefaultArguments"]["--bucket"], "input", "output")
    return account.calls


def _one_of_each(made: list[Call]) -> list[Call]:
    key = lambda call: (call.operation, call.site, *needs.asked(call), *needs.context(call).values())  # noqa: E731
    return list({key(call): call for call in made}.values())


@cache
def needed(variant: str) -> dict[str, set[Need]]:
    """The permissions that each role needs."""
    made, recorded = stack(variant), calls(variant)
    all_calls = [call for each in recorded.values() for call in each]
    return {role: set(_of_role(made, role, recorded, all_calls)) for role in made.of_type("AWS::IAM::Role")}


def _of_role(made: Stack, role: str, recorded: dict[str, list[Call]], all_calls: list[Call]) -> Iterator[Need]:
    yield from needs.of_schedules(made, all_calls, role)
    for user in made.users_of(role):
        for call in recorded[user]:
            yield from needs.of_call(call, made)
        match made.resources[user]["Type"]:
            case "AWS::Lambda::Function":
                yield from needs.of_function(made, user)
            case "AWS::StepFunctions::StateMachine":
                yield from needs.of_state_machine(made, user)
            case "AWS::Glue::Job":
                yield from needs.of_glue_job(made, user)
            case other:
                raise NotImplementedError(f"{other}: add its use of {role} to tests/template/roles/needs.py")
