"""What the pages let their reader try on the stack of `make local-up`, in a shell.

The tests share one stack. The last one stops it, as its page does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

from dev.emulator.aws import EngineError
from dev.emulator.environment import ROOT
from dev.tools.function_folders import own_module
from tests.deployed.page_reader import PageReader, commands
from tests.waiting import wait_until

SETUP, ASK, _ACCOUNT = commands("try-it.md", "5. Your own code")
((UP_MACHINE, MACHINE),) = [block.split("\n", 1) for block in commands("state-machines.md", "Try it here")]
JOB_PAGE = "your-glue-job.md"
TRY_JOB, REDRIVE_JOB, SHOW_JOB = commands(JOB_PAGE, "Try your job here")
((BEFORE, UP_JOB, AFTER),) = re.findall(r"(.*\n)(make local-up [^\n]*)\n(.*)", TRY_JOB, re.DOTALL)
# One deployment has the parameters of all pages, since each takes seconds.
UP = f'{UP_JOB.removesuffix('"')} {UP_MACHINE.partition("PARAMETERS=")[2]}"'
(JOB_SCRIPT,) = re.findall(
    r"## Try your job here\n.*?```python\n(.*?)```", (ROOT / "docs" / JOB_PAGE).read_text(), re.DOTALL
)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageReader]:
    """A reader whose shell has the variables of the running stack."""
    made = PageReader(tmp_path_factory.mktemp("reader"))
    script = made.checkout.parent / "sales" / "load.py"
    script.parent.mkdir()
    script.write_text(JOB_SCRIPT)
    try:
        shown = made.carry_out(SETUP.replace("make local-up", UP))
        assert 'eval "$(slotkeeper' in shown
        assert f"Glue job load runs {script}" in shown
        yield made
    finally:
        with suppress(EngineError):
            made.engine().stop()


def test_boto3_in_the_readers_shell_asks_the_local_stack(reader: PageReader) -> None:
    shown = reader.carry_out(ASK)
    queue = reader.engine().outputs["RequestQueueArn"]
    assert re.search(rf"^RequestQueueArn +{queue}$", shown, re.MULTILINE)
    assert shown.endswith(f"{queue}\n")


def test_a_block_of_ones_own_holds_a_slot_and_a_second_one_is_refused(reader: PageReader) -> None:
    (block,) = commands("leases.md", "Try it here")
    shown = reader.carry_out(block)
    held, refused = shown.split("a slot for 60 s\n")[1:]
    assert re.search(r"\blease\b", held), held
    assert "SlotUnavailable: " in refused


def test_a_rate_spaces_the_starts_of_ones_own_code(reader: PageReader) -> None:
    (block,) = commands("rates.md", "Try it here")
    starts = [float(at) for at in re.findall(r"call \d at (\S+) s", reader.carry_out(block))]
    assert len(starts) == 3
    assert starts[2] - starts[0] > 2  # 4 s, less how long the first one took from its grant to its print


def test_a_new_key_has_the_next_turn_before_the_backlog_of_another(reader: PageReader) -> None:
    (block,) = commands("fair-limits.md", "Try it here")
    shown = reader.carry_out(block)
    assert re.findall(r"^ *\d+ +(\w+-\d)\b", shown, re.MULTILINE)[:3] == ["acme-1", "bolt-7", "acme-2"], shown
    runs = partial(reader.engine().client("glue").get_job_runs, JobName="load")  # the newest first
    wait_until(lambda: [run["JobRunState"] for run in runs()["JobRuns"]] == ["FAILED"] * 7, "each request to have run")
    started = {run["Arguments"]["--output_key"] for run in runs()["JobRuns"][-3:]}
    assert started == {"output/acme-1.json", "output/bolt-7.json", "output/acme-2.json"}


def test_a_request_is_skipped_and_another_waits_until_its_time(reader: PageReader) -> None:
    (block,) = commands("nightly-jobs.md", "Try it here")
    shown = reader.carry_out(block)
    assert re.search(r"monday  \S+  skipped: it could not start when it was received", shown), shown
    assert re.search(r"tuesday  \S+  to start before 20", shown)
    assert "monday in reports: skipped" in shown


def test_a_state_machine_of_ones_own_runs_and_fails_in_a_slot(reader: PageReader) -> None:
    shown = reader.carry_out(MACHINE)
    assert re.search(r"monday  \S+  succeeded", shown), shown
    assert re.search(r"nothing  \S+  failed", shown), shown
    assert "StateMachine.ExecutionNotSucceeded" in shown


def test_the_chatbot_answers_with_the_next_token_after_an_invalidation(reader: PageReader) -> None:
    (block,) = commands("shared-token.md", "Try it here")
    shown = reader.carry_out(block)
    assert shown.count("You said 2 words") == 2, shown
    first, second = (int(each) for each in re.findall(r"[Gg]eneration +(\d+)", shown))
    assert second == first + 1


@pytest.mark.skipif(own_module("worker", "sample") is None, reason="the shipped work is replaced")
def test_work_is_dead_lettered_corrected_and_redriven(reader: PageReader) -> None:
    send, correct, show = commands("retries.md", "Try it here")
    shown = reader.carry_out(send)
    assert "orders is dead-lettered after 1 attempt: Poison" in shown
    reader.carry_out(correct)
    ledger = reader.engine().outputs["RequestLedgerTableName"]

    def status() -> str:
        row = reader.engine().client("dynamodb").get_item(TableName=ledger, Key={"request_id": {"S": "orders"}})["Item"]
        return str(row["status"]["S"])

    wait_until(lambda: status() == "SUCCEEDED", "the second attempt to succeed")
    assert "attempt 2" in reader.carry_out(show)


def test_a_job_of_ones_own_runs_fails_is_corrected_and_redriven(reader: PageReader) -> None:
    aws = reader.engine()
    assert aws.outputs["GlueJobName"] == "load"
    shown = reader.carry_out(BEFORE + AFTER)
    eu = re.search(r"sent: eu  (\S+)  succeeded", shown)
    assert eu, shown
    logs = reader.checkout / "build" / "local" / "glue"
    assert (logs / f"{eu[1]}.output.log").read_text() == f"{eu[1]}: 2026-11-22\n"
    assert re.search(r"sent: us  \S+  failed", shown), shown
    assert "GlueArgumentError: the following arguments are required: --day" in shown

    (reader.checkout.parent / "sales" / "load.py").write_text("print('without a day')\n")
    reader.carry_out(REDRIVE_JOB)

    def states() -> list[str]:
        newest = aws.client("glue").get_job_runs(JobName="load")["JobRuns"][:3]
        return [run["JobRunState"] for run in newest]

    wait_until(lambda: states() == ["SUCCEEDED", "FAILED", "SUCCEEDED"], "the second attempt to succeed")
    assert "attempt 2: succeeded" in reader.carry_out(SHOW_JOB)
    with pytest.raises(EngineError):
        reader.engine()
