"""The downstreams of a stack's worker: their items, and their settings in the retry policy."""

from __future__ import annotations

from functools import cached_property

from slotkeeper.retry.downstream.downstreams import DownstreamTable, MalformedHealth, names
from slotkeeper.retry.downstream.health import DownstreamSettings, Health
from slotkeeper.retry.policy import BUILT_IN, InvalidPolicy, Policy, parse_policy
from slotkeeper_cli.retry_control import policy_text
from slotkeeper_cli.stack_connection import StackConnection


class DownstreamControl:
    """The layer's objects for downstreams, made for a stack. `most`: the event source's concurrency."""

    def __init__(self, stack: StackConnection) -> None:
        self.table = DownstreamTable(stack.client("dynamodb"), stack.outputs["DownstreamTableName"])
        self.most = int(stack.parameters["WorkerConcurrency"])
        self._stack = stack

    @cached_property
    def all(self) -> dict[str, Health | MalformedHealth]:
        """The health of every downstream that the table or the policy has, and of `default`, by name."""
        read = self.table.read_all()
        return {name: read.get(name, Health()) for name in names(self.policy, read)}

    def find(self, downstream: str) -> None:
        """Add a downstream to `all` that has an item, and is beyond those that are read together."""
        if "" in self.all and downstream not in self.all:
            health = self.table.read(downstream)
            if health != Health():
                self.all[downstream] = health

    def settings(self, downstream: str) -> DownstreamSettings:
        return self.policy.downstream_settings(downstream)

    @property
    def policy(self) -> Policy:
        """The policy in the stack's parameter; the built-in one if that is missing or invalid."""
        return self._policy[0]

    @property
    def policy_problem(self) -> str:
        """Why the policy is the built-in one, if it is only because the parameter is missing or invalid."""
        return self._policy[1]

    @cached_property
    def _policy(self) -> tuple[Policy, str]:
        text = policy_text(self._stack)
        if text is None:
            return BUILT_IN, "the parameter of the retry policy does not exist"
        try:
            return parse_policy(text), ""
        except InvalidPolicy as error:
            return BUILT_IN, f"the retry policy is invalid: {error}"
