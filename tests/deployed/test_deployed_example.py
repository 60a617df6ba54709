"""examples/shared-token as a user has it: its README's commands in a copy, on the embedded AWS."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dev.emulator.chat_service import ChatService, answer_to
from dev.emulator.environment import ACCESS_KEY, REGION, ROOT, child_environment
from tests.deployed.deployed_stack import DeployedStack
from tests.deployed.page_reader import CLI
from tests.unit.test_pages import blocks_of

EXAMPLE = ROOT / "examples" / "shared-token"
COPY, LOCAL, DEPLOY, CALL, INVALIDATE, TEST = blocks_of(EXAMPLE / "README.md")
# Replaced: the AWS CLI, which is no requirement of the project, and programs whose effect a test cannot have.
AWS = f"""#!{sys.executable}
import sys
import boto3, jmespath
service, operation, *options = sys.argv[1:]
named = dict(zip(options[::2], options[1::2], strict=True))
query, _ = named.pop("--query", "@"), named.pop("--output", "")
asked = {{"".join(word.title() for word in name[2:].split("-")): value for name, value in named.items()}}
print(*jmespath.search(query, getattr(boto3.client(service), operation.replace("-", "_"))(**asked)))
"""
NOTHING = "#!/bin/sh\n"
MARK = "---- next block ----"


@dataclass(frozen=True)
class Outcome:
    """The effects of the README's commands: the API that the function called, and the output of each block."""

    service: ChatService
    answers: list[str]
    tests: str


@pytest.fixture(scope="module")
def outcome(deployed: DeployedStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    checkout = tmp_path_factory.mktemp("user") / "slotkeeper"
    (checkout / "build" / "local").mkdir(parents=True)
    for name in ("examples", "layers"):
        (checkout / name).symlink_to(ROOT / name)
    replaced = {"venv/bin/aws": AWS, "venv/bin/make": NOTHING, "venv/bin/mypy": NOTHING}
    for name, script in (replaced | {"cli/bin/slotkeeper": CLI["slotkeeper"]}).items():
        program = checkout / "build" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(script)
        program.chmod(0o755)
    with ChatService() as service:
        api = {"url": service.url, "client_id": service.client_id, "client_secret": service.client_secret}
        keys = {"access_key_id": ACCESS_KEY, "secret_access_key": ACCESS_KEY}
        local = {"endpoint": deployed.aws.endpoint, "region": REGION, "chat_service": api} | keys
        (checkout / "build" / "local" / "outputs.json").write_text(json.dumps(local))
        blocks = [COPY, LOCAL, DEPLOY, CALL, INVALIDATE, TEST]
        script = "".join(f"{block}\necho '{MARK}'\n" for block in blocks)
        environment = child_environment("", {"SAM_CLI_POLL_DELAY": "0.2"})
        environment["PATH"] = f"{checkout / 'build' / 'venv' / 'bin'}:{environment['PATH']}"
        ran = subprocess.run(
            ["bash", "-euc", script], cwd=checkout, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        _, _, _, first, second, tests, _ = ran.stdout.split(MARK)
        yield Outcome(service, [first, second], tests)
    deployed.aws.client("cloudformation").delete_stack(StackName="greeter")


def test_the_deployed_function_answers_also_after_its_token_was_invalidated(outcome: Outcome) -> None:
    answer = json.dumps({"answer": answer_to("Good morning")}, ensure_ascii=False)
    assert [answer in printed for printed in outcome.answers] == [True, True]
    assert outcome.service.auths == 2


def test_the_examples_own_tests_pass_in_the_copy(outcome: Outcome) -> None:
    assert re.search(r"\b\d+ passed", outcome.tests), outcome.tests
    assert "failed" not in outcome.tests
