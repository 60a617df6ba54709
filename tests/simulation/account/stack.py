"""What commands read of a deployed stack: CloudFormation, Lambda and CloudWatch."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.account.service import ACCOUNT_ID, Parameters, Refusal, Service


class CloudFormation(Service):
    """One stack, if it has a name.

    Attributes:
        outputs, stack_parameters: by name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stack_name = ""
        self.outputs: dict[str, str] = {}
        self.stack_parameters: dict[str, str] = {}

    def _DescribeStacks(self, parameters: Parameters) -> Parameters:
        if parameters["StackName"] != self.stack_name:
            raise Refusal("ValidationError", f"Stack with id {parameters['StackName']} does not exist")
        given, outputs = self.stack_parameters.items(), self.outputs.items()
        described = {
            "StackName": self.stack_name,
            "StackStatus": "UPDATE_COMPLETE",
            "Parameters": [{"ParameterKey": name, "ParameterValue": value} for name, value in given],
            "Outputs": [{"OutputKey": name, "OutputValue": value} for name, value in outputs],
        }
        return {"Stacks": [described]}

    def _ListStackResources(self, _: Parameters) -> Parameters:
        return {"StackResourceSummaries": []}

    def _GetCallerIdentity(self, _: Parameters) -> Parameters:
        return {"Account": ACCOUNT_ID, "Arn": f"arn:aws:iam::{ACCOUNT_ID}:user/operator", "UserId": "operator"}


class Lambda(Service):
    """Functions by their names or ARNs: from the parameters of Invoke to its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: dict[str, Callable[[Parameters], Parameters]] = {}

    def _Invoke(self, parameters: Parameters) -> Parameters:
        if parameters["FunctionName"] not in self.functions:
            raise Refusal("ResourceNotFoundException", f"Function not found: {parameters['FunctionName']}")
        return self.functions[parameters["FunctionName"]](parameters)


class CloudWatch(Service):
    """Alarms, and the events of each log group in the order in which they were put."""

    def __init__(self) -> None:
        super().__init__()
        self.alarms: list[Parameters] = []
        self.log_groups: dict[str, list[Parameters]] = {}

    def _DescribeAlarms(self, _: Parameters) -> Parameters:
        return {"MetricAlarms": self.alarms}

    def _CreateLogStream(self, parameters: Parameters) -> Parameters:
        self._log_group(parameters)
        return {}

    def _PutLogEvents(self, parameters: Parameters) -> Parameters:
        self._log_group(parameters).extend(parameters["logEvents"])
        return {}

    def _FilterLogEvents(self, parameters: Parameters) -> Parameters:
        first = parameters.get("startTime", 0)
        return {"events": [each for each in self._log_group(parameters) if each["timestamp"] >= first]}

    def _log_group(self, parameters: Parameters) -> list[Parameters]:
        if parameters["logGroupName"] not in self.log_groups:
            raise Refusal("ResourceNotFoundException", "The specified log group does not exist.")
        return self.log_groups[parameters["logGroupName"]]
