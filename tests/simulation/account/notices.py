"""What is published, and what is only read: SNS, EventBridge, Systems Manager and Secrets Manager."""

from __future__ import annotations

import re

from tests.simulation.account.completion_events import Bus
from tests.simulation.account.service import Parameters, Refusal, Service

LARGEST_NOTIFICATION = 262_144


class Sns(Service):
    """Any topic.

    Attributes:
        published: the parameters of Publish.
        topic_attributes, subscriptions: those of each topic.
    """

    def __init__(self) -> None:
        super().__init__()
        self.published: list[Parameters] = []
        self.topic_attributes: dict[str, str] = {}
        self.subscriptions: list[Parameters] = []

    def _Publish(self, parameters: Parameters) -> Parameters:
        """The rules of SNS (SNS API Reference, Publish)."""
        assert re.fullmatch(r"[\x20-\x7e]{1,99}", parameters["Subject"])
        assert 1 <= len(parameters["Message"].encode()) <= LARGEST_NOTIFICATION
        self.published.append(parameters)
        return {"MessageId": f"notice-{len(self.published)}"}

    def _GetTopicAttributes(self, _: Parameters) -> Parameters:
        return {"Attributes": self.topic_attributes}

    def _ListSubscriptionsByTopic(self, _: Parameters) -> Parameters:
        return {"Subscriptions": self.subscriptions}


class EventBridge(Service):
    """One bus."""

    def __init__(self) -> None:
        super().__init__()
        self.bus = Bus()

    def _PutEvents(self, parameters: Parameters) -> Parameters:
        results = self.bus.put(parameters["Entries"])
        return {"FailedEntryCount": sum("ErrorCode" in each for each in results), "Entries": results}


class Settings(Service):
    """Parameters by their names, with the policy of retries, and secrets: GetSecretValue's answers, by their ids."""

    def __init__(self) -> None:
        super().__init__()
        self.parameters = {"/policy": "{}"}
        self.secrets: dict[str, Parameters] = {}

    def _GetParameter(self, parameters: Parameters) -> Parameters:
        if parameters["Name"] not in self.parameters:
            raise Refusal("ParameterNotFound")
        return {"Parameter": {"Name": parameters["Name"], "Value": self.parameters[parameters["Name"]]}}

    def _GetSecretValue(self, parameters: Parameters) -> Parameters:
        if parameters["SecretId"] not in self.secrets:  # as one without a value
            raise Refusal("ResourceNotFoundException")
        return self.secrets[parameters["SecretId"]]
