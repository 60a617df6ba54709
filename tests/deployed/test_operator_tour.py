"""The tour of docs/operator.md, unchanged, on the deployed stack."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dev.emulator.sample_data import read_dataset, split_by_month
from slotkeeper_cli.app import app
from tests.deployed.deployed_stack import DeployedStack

PAGE = (Path(__file__).parents[2] / "docs" / "operator.md").read_text()
((EXPORT, TOUR),) = re.findall(r"^    (export .*SLOTKEEPER_LOCAL=1)\n((?:    slotkeeper .*\n)+)", PAGE, re.MULTILINE)


def test_the_tours_shell_finds_the_command_that_make_cli_installs_and_its_local_stack(tmp_path: Path) -> None:
    command = tmp_path / "build" / "cli" / "bin" / "slotkeeper"  # the Makefile's place
    command.parent.mkdir(parents=True)
    command.write_text('#!/bin/sh\necho "$0 $SLOTKEEPER_LOCAL"\n')
    command.chmod(0o755)
    ran = subprocess.run(
        ["bash", "-c", f"{EXPORT}\nslotkeeper"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"{command} 1\n"


@pytest.mark.usefixtures("slotkeeper")
def test_every_command_of_the_tour_succeeds(stack: DeployedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTKEEPER_LOCAL", "1")
    month = split_by_month(read_dataset())["2012-01"]
    stack.s3.put_object(Bucket=stack.outputs["DataBucketName"], Key="input/2012-01.csv", Body=month)

    outputs: dict[str, str] = {}
    for line in TOUR.splitlines():
        _, *arguments = shlex.split(line)
        ended = CliRunner().invoke(app, arguments)
        assert ended.exit_code == 0, (line, ended.output, ended.exception)
        outputs[" ".join(arguments)] = ended.stdout

    assert outputs["status"].startswith("slotkeeper in ")  # it names few of many idle processes
    assert "succeeded" in outputs["explain tour"]
    (shown,) = (one for one in json.loads(outputs["status --json"])["processes"] if one["name"] == "sample")
    assert (shown["slot_limit"], shown["paused"], shown["holders"]) == (5, False, [])
    written = stack.s3.get_object(Bucket=stack.outputs["DataBucketName"], Key="output/tour.json")["Body"].read()
    assert json.loads(written)
    (later,) = (row for row in stack.requests.rows("sample").rows if row.request_id == "later")
    assert later.state == "CANCELLED"
