"""`slotkeeper stack env` and `sam local invoke` on the deployed stack, with SAM CLI's own code and without Docker."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dev.emulator.environment import ROOT
from tests.deployed.deployed_stack import DeployedStack

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the engine has an address for containers on Linux only"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # between SAM CLI's own packages
]
DEPLOYED = {"Starter", "Janitor", "Ending", "ProcessRegistrar", "Chatbot", "Worker"}
Variables = dict[str, dict[str, str]]


@pytest.fixture
def file(slotkeeper: Callable[..., Any], tmp_path: Path) -> Variables:
    """The file that the command writes."""
    functions = slotkeeper("stack", "env", "--output", "env.json")["functions"]
    assert set(functions) == {f"{name}Function" for name in DEPLOYED}
    variables: Variables = json.loads((tmp_path / "env.json").read_text())
    return variables


@pytest.fixture(scope="module")
def provider() -> Any:
    """The functions as SAM CLI reads them from the template, with the variables that it declares."""
    from samcli.lib.providers.sam_function_provider import SamFunctionProvider
    from samcli.lib.providers.sam_stack_provider import SamLocalStackProvider

    stacks, _ = SamLocalStackProvider.get_stacks(str(ROOT / "template.yaml"))
    return SamFunctionProvider(stacks)


@pytest.fixture
def passed(file: Variables, provider: Any, monkeypatch: pytest.MonkeyPatch) -> Variables:
    """The variables that SAM CLI gives to each function, with the dummy keys of the documented command."""
    from samcli.commands.local.lib.local_lambda import LocalLambdaRunner

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    runner = LocalLambdaRunner(None, provider, str(ROOT), str(ROOT), env_vars_values=file, aws_region="us-east-1")
    return {each.name: runner._make_env_vars(each).resolve() for each in provider.get_all()}


def test_sam_cli_passes_every_variable_of_the_file(file: Variables, passed: Variables) -> None:
    """It passes only variables that the template declares."""
    for name in DEPLOYED:
        function = f"{name}Function"
        assert file[function].items() - passed[function].items() == set(), function


def test_no_function_calls_an_account_not_even_one_that_is_not_deployed(
    file: Variables, passed: Variables, stack: DeployedStack
) -> None:
    endpoint = stack.aws.endpoint.replace("127.0.0.1", "127.0.0.2")
    assert {name: each["AWS_ENDPOINT_URL"] for name, each in passed.items()} == dict.fromkeys(passed, endpoint)
    assert passed.keys() - file.keys() == {"RetryReportFunction", "TokenRefresherFunction"}
