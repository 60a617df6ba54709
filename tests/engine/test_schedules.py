"""schedules: a due schedule and a rule for an execution's end call their targets."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dev.emulator.aws import EmbeddedAws
from tests.engine.conftest import ROLE, MachineMaker, lines, queue_arn
from tests.support.waiting import wait_until

NOTE = """
import json, os
def handler(event, context):
    with open(os.environ["FILE"], "a") as notes:
        notes.write(json.dumps(event) + "\\n")
"""


def test_a_schedule_fires_when_it_is_due(
    aws: EmbeddedAws, fifo: Callable[..., str], unique: Callable[[str], str]
) -> None:
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName=unique("scheduled"))["QueueUrl"]
    due = datetime.now(UTC) + timedelta(seconds=1)
    aws.client("scheduler").create_schedule(
        Name=unique("schedule"),
        ScheduleExpression=f"at({due:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": queue_arn(aws, url), "RoleArn": ROLE, "Input": "due"},
    )
    wait_until(lambda: "Messages" in sqs.receive_message(QueueUrl=url), "the schedule's message")
    assert datetime.now(UTC) >= due.replace(microsecond=0)


def test_the_event_of_a_failed_execution_reaches_a_rules_function(
    aws: EmbeddedAws, machine: MachineMaker, function: Callable[..., str], unique: Callable[[str], str], tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    name = function(NOTE, Environment={"Variables": {"FILE": str(notes)}})
    arn = aws.client("lambda").get_function(FunctionName=name)["Configuration"]["FunctionArn"]
    events, rule = aws.client("events"), unique("rule")
    wait = {"Wait": {"Type": "Wait", "Seconds": 60, "End": True}}
    machines = [machine({"Fail": {"Type": "Fail"}}), machine(wait, TimeoutSeconds=1), machine(wait)]
    detail = {"status": ["FAILED", "TIMED_OUT", "ABORTED"], "stateMachineArn": machines}
    pattern = {"source": ["aws.states"], "detail-type": ["Step Functions Execution Status Change"], "detail": detail}
    events.put_rule(Name=rule, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=rule, Targets=[{"Id": "one", "Arn": arn}])
    executions = [machine.start(each, {"n": 1}) for each in machines]
    machine.client.stop_execution(executionArn=executions[2])
    wait_until(lambda: len(lines(notes)) == 3, "three events")
    details = {event["executionArn"]: event for event in (json.loads(line)["detail"] for line in lines(notes))}
    assert [details[execution]["status"] for execution in executions] == ["FAILED", "TIMED_OUT", "ABORTED"]
    assert {json.dumps(event["input"]) for event in details.values()} == {json.dumps(json.dumps({"n": 1}))}
