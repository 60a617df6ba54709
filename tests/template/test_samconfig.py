"""samconfig.toml: SAM CLI ignores an unknown key without a message."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from dev.emulator.deployment import check_names
from dev.tools.function_folders import code_folders
from slotkeeper_cli.commands.stack import ENV_FILE

FILE = Path(__file__).parents[2] / "samconfig.toml"
CONFIG: dict[str, Any] = tomllib.loads(FILE.read_text())
ENVIRONMENTS = [name for name in CONFIG if name != "version"]
COMMANDS = {
    "build": "samcli.commands.build.command",
    "deploy": "samcli.commands.deploy.command",
    "sync": "samcli.commands.sync.command",
    "local_invoke": "samcli.commands.local.invoke.cli",
}


def _options(command: str) -> set[str]:
    command_found: click.Command = import_module(COMMANDS[command]).cli
    return {option.name for option in command_found.params if option.name}


def _settings(environment: str, command: str) -> dict[str, Any]:
    """The settings that SAM CLI reads from the file for a command."""
    from samcli.lib.config.samconfig import SamConfig

    parameters: dict[str, Any] = SamConfig(FILE.parent).get_all([command], "parameters", environment)
    return parameters


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_key_is_an_option_of_its_command(environment: str) -> None:
    for command, sections in CONFIG[environment].items():
        known = set.union(*map(_options, COMMANDS)) if command == "global" else _options(command)
        assert sections.keys() == {"parameters"}
        assert sections["parameters"].keys() <= known, (environment, command)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_parameters_are_the_templates(environment: str) -> None:
    overrides = _settings(environment, "deploy").get("parameter_overrides", "")
    check_names(re.findall(r"(\w+)=", overrides))


def test_sync_and_deploy_of_the_development_stack_do_not_undo_each_other() -> None:
    sync, deploy = (_settings("dev", command) for command in ("sync", "deploy"))
    for key in ("stack_name", "parameter_overrides", "s3_prefix"):
        assert sync[key] == deploy[key]
    assert "sync" not in CONFIG["prod"]


def test_sync_may_update_a_stack_without_a_change_set() -> None:
    """CloudFormation then requires CAPABILITY_AUTO_EXPAND for the transform; `sam deploy` makes a change set."""
    assert _settings("dev", "sync")["capabilities"].split() == ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]
    assert {_settings(each, "deploy")["capabilities"] for each in ENVIRONMENTS} == {"CAPABILITY_IAM"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # between SAM CLI's own packages
def test_a_synced_layer_reaches_every_function() -> None:
    """`sam sync` reads the Layers of each function, not those of Globals, and skips a layer without a message."""
    from samcli.lib.providers.sam_function_provider import SamFunctionProvider
    from samcli.lib.providers.sam_stack_provider import SamLocalStackProvider

    stacks, _ = SamLocalStackProvider.get_stacks(str(FILE.parent / "template.yaml"))
    functions = list(SamFunctionProvider(stacks, locate_layer_nested=True).get_all())
    assert len(functions) == len(code_folders())
    for function in functions:
        assert [layer.full_path for layer in function.layers] == ["SlotkeeperLayer"], function.full_path


def test_sam_local_invoke_reads_the_file_that_the_operator_command_writes() -> None:
    for environment in ("default", "dev"):
        assert _settings(environment, "local_invoke")["env_vars"] == str(ENV_FILE)
