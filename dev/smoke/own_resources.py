"""Resources of a check's own: a role, state machines, queues. Their names begin with the run's and the check's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from dev.smoke.check_context import CheckContext

_POLICY = "smoke"


def name_of(context: CheckContext, suffix: str) -> str:
    """A name for a resource of the check."""
    return f"{context.run}-{context.check}-{suffix}"


def chain(
    states: Mapping[str, Mapping[str, Any]], variables: Mapping[str, Any], caught: str = "States.ALL"
) -> dict[str, Any]:
    """A definition that runs Task states one after the other; its output has each one's result or `caught` error.

    The states keep their Resource, Arguments and TimeoutSeconds. What is retried, caught and assigned is replaced.
    """
    names = [*states]
    made: dict[str, Any] = {"Begin": {"Type": "Pass", "Assign": dict(variables) | {"begun": True}, "Next": names[0]}}
    for name, after in zip(names, [*names[1:], "Done"], strict=True):
        kept = {
            key: states[name][key] for key in ("Type", "Resource", "Arguments", "TimeoutSeconds") if key in states[name]
        }
        catch = {"ErrorEquals": [caught], "Assign": {f"of_{name}": "{% $states.errorOutput %}"}, "Next": after}
        result = {f"of_{name}": {"result": "{% $substring($string($states.result), 0, 2000) %}"}}
        made[name] = kept | {"Assign": result, "Catch": [catch], "Next": after}
    made["Done"] = {"Type": "Succeed", "Output": {name: f"{{% $of_{name} %}}" for name in names}}
    return {"QueryLanguage": "JSONata", "StartAt": "Begin", "States": made}


def asking(queue_url: str, body: object, **arguments: str) -> dict[str, Any]:
    """A definition in JSONata that sends a message, and waits for the answer to its task token."""
    ask = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Arguments": {"QueueUrl": queue_url, "MessageBody": body, **arguments},
        "TimeoutSeconds": 1800,
        "End": True,
    }
    return {"StartAt": "Ask", "States": {"Ask": ask}}


def machine(context: CheckContext, suffix: str, definition: Mapping[str, Any], role: str = "") -> str:
    """Create a Standard state machine and return its ARN. Its role is the workflow's, unless another one is given."""
    stepfunctions = context.stack.client("stepfunctions")

    def created() -> str | None:
        """The machine's ARN; None while Step Functions may not use a new role yet."""
        try:
            answer = stepfunctions.create_state_machine(
                name=name_of(context, suffix),
                definition=json.dumps(definition),
                roleArn=role or context.stack.machine["roleArn"],
                type="STANDARD",
            )
        except ClientError as error:
            # The role, not the user, "is not authorized to create managed-rule" or "to assume the provided role".
            if not role or not ("managed-rule" in str(error) or "assume the provided role" in str(error)):
                raise
            return None
        return str(answer["stateMachineArn"])

    arn = str(context.wait(created, "the state machine's role", context.timings.start))
    context.undo.append((f"state machine {arn}", lambda: stepfunctions.delete_state_machine(stateMachineArn=arn)))
    return arn


def start(context: CheckContext, machine_arn: str, name: str, given: Any = None) -> str:
    """Start an execution of a machine of the check, and return its ARN."""
    arn = f"{machine_arn.replace(':stateMachine:', ':execution:')}:{name}"
    context.executions.append(arn)
    fields = {"stateMachineArn": machine_arn, "name": name, "input": json.dumps({} if given is None else given)}

    def started() -> bool:
        """False while Step Functions does not find the new state machine yet."""
        try:
            context.stack.client("stepfunctions").start_execution(**fields)
        except ClientError as error:
            if error.response["Error"]["Code"] != "StateMachineDoesNotExist":
                raise
            return False
        return True

    context.wait(started, "the state machine to be available", context.timings.start)
    return arn


def ended(context: CheckContext, arn: str) -> dict[str, Any]:
    """Wait for the end of an execution, however it ends, and describe it."""
    return context.wait_for_end(arn, "SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")


def role(context: CheckContext, suffix: str, *statements: tuple[list[str], str, str]) -> str:
    """Create a role for state machines of the check and return its ARN.

    Args:
        statements: each permits actions on a resource of a service, of the stack's account and region.
    """
    iam, name = context.stack.client("iam"), name_of(context, suffix)
    trust = {"Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"}
    made = iam.create_role(
        RoleName=name, AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    )
    context.undo.append((f"role {name}", lambda: iam.delete_role(RoleName=name)))
    _, partition, _, region, account, *_ = context.stack.outputs["WorkflowArn"].split(":")
    allowed = [
        {"Effect": "Allow", "Action": actions, "Resource": f"arn:{partition}:{service}:{region}:{account}:{resource}"}
        for actions, service, resource in statements
    ]
    document = {"Version": "2012-10-17", "Statement": allowed}
    iam.put_role_policy(RoleName=name, PolicyName=_POLICY, PolicyDocument=json.dumps(document))
    context.undo.append((f"policy of {name}", lambda: iam.delete_role_policy(RoleName=name, PolicyName=_POLICY)))
    # A new role works some seconds later (IAM guide, "Troubleshoot IAM": changes are not always immediately visible).
    context.stopped.wait(context.timings.new_role)
    return str(made["Role"]["Arn"])


def queue(context: CheckContext, suffix: str, **attributes: str) -> str:
    """Create a queue and return its URL. `FifoQueue="true"` makes it a FIFO queue."""
    sqs = context.stack.client("sqs")
    name = name_of(context, suffix) + (".fifo" if attributes.get("FifoQueue") else "")
    url = str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])
    context.undo.append((f"queue {name}", lambda: sqs.delete_queue(QueueUrl=url)))
    return url


def event_queue(context: CheckContext, suffix: str, pattern: Mapping[str, Any]) -> str:
    """Create a queue that receives the events of the default bus that match a pattern, and return its URL."""
    events, name = context.stack.client("events"), name_of(context, suffix)
    rule = events.put_rule(Name=name, EventPattern=json.dumps(pattern))["RuleArn"]
    context.undo.append((f"rule {name}", lambda: events.delete_rule(Name=name)))
    queue_arn = rule.replace(":events:", ":sqs:").replace(f"rule/{name}", name)
    allowed = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
    }
    url = queue(context, suffix, Policy=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": queue_arn}])
    context.undo.append((f"target of rule {name}", lambda: events.remove_targets(Rule=name, Ids=["queue"])))
    context.stopped.wait(context.timings.new_role)  # a new rule matches some seconds later (API Reference, PutRule)
    return url


def receive(context: CheckContext, url: str, what: str) -> dict[str, Any]:
    """Wait for the next message of a queue of the check."""
    sqs = context.stack.client("sqs")

    def received() -> Any:
        return sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=1, WaitTimeSeconds=1, MessageSystemAttributeNames=["All"]
        ).get("Messages")

    (message,) = context.wait(received, what, context.timings.start)
    taken: dict[str, Any] = message
    return taken
