"""dynamodb_writes: simultaneous conditional writes of many executions and clients."""

from concurrent.futures import ThreadPoolExecutor

from dev.emulator.aws import EmbeddedAws
from tests.engine.conftest import MachineMaker
from tests.support.tables import create_table
from tests.support.waiting import wait_until

EXECUTIONS = 12
STEPS = 5


def test_no_count_of_concurrent_executions_and_clients_is_lost(aws: EmbeddedAws, machine: MachineMaker) -> None:
    dynamodb = aws.client("dynamodb")
    create_table(dynamodb, "counters", "name")
    # A large item: the longer a write takes, the likelier is another one during it.
    ballast = {"M": {f"entry{number}": {"S": "x"} for number in range(3000)}}
    dynamodb.put_item(TableName="counters", Item={"name": {"S": "c"}, "taken": {"N": "0"}, "ballast": ballast})
    update = {
        "TableName": "counters",
        "Key": {"name": {"S": "c"}},
        "UpdateExpression": "SET taken = taken + :one",
        "ConditionExpression": "taken < :limit",
        "ExpressionAttributeValues": {":one": {"N": "1"}, ":limit": {"N": "10000"}},
    }
    task = {"Type": "Task", "Resource": "arn:aws:states:::dynamodb:updateItem", "Arguments": update}
    states = {f"Add{step}": task | {"Next": f"Add{step + 1}"} for step in range(STEPS)}
    states[f"Add{STEPS}"] = {"Type": "Succeed"}
    arn = machine(states)
    with ThreadPoolExecutor(EXECUTIONS) as pool:
        executions = list(pool.map(lambda _: machine.start(arn), range(EXECUTIONS)))
        list(pool.map(lambda _: dynamodb.update_item(**update), range(EXECUTIONS)))
    wait_until(lambda: all(machine.closed(execution) for execution in executions), "the executions' end")
    item = dynamodb.get_item(TableName="counters", Key={"name": {"S": "c"}}, ConsistentRead=True)["Item"]
    assert item["taken"] == {"N": str(EXECUTIONS * STEPS + EXECUTIONS)}
