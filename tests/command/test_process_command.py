"""`slotkeeper process`: each change with its guard and its audit line."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper.slots.processes import MAX_KEY_LIMITS
from slotkeeper.slots.protocol import Slots
from slotkeeper_cli.commands import process
from tests.command.account_contents import edit, waiting
from tests.command.operator_account import Operator
from tests.module_time import replace_time


def test_list_without_processes_names_the_command_to_add_one(operator: Operator) -> None:
    operator.run("process", "remove", "sample", "--yes")

    assert "slotkeeper process add" in operator.run("process", "list").stdout


def test_set_limit_rings(operator: Operator) -> None:
    operator.hold("a")
    ended = operator.run("process", "set-limit", "sample", "3", "--json")

    effects = {"in_use": 1, "blocked": [], "holders_above_limit": {}}
    assert ended.json == {"process": "sample", "before": 1, "after": 3, "holders": 1, **effects}
    assert operator.process().slot_limit == 3
    assert operator.rings() == [{"process": "sample"}]
    (line,) = operator.audited()
    assert (line["action"], line["before"], line["after"]) == ("process set-limit", 1, 3)


@pytest.fixture
def weighted(operator: Operator) -> str:
    """The execution of a holder of weight 5, of a limit of 6 with a default weight of 2."""
    operator.processes.create("weighted", 6, "sample-job", default_weight=2)
    return operator.hold("a", "weighted", weight=5)


def test_set_key_limit_of_each_key_and_of_one_is_audited_and_rings(operator: Operator) -> None:
    for arguments, key, after in ((("5",), None, 5), (("0", "--key", "acme", "--yes"), "acme", 0)):
        changed = {"process": "sample", "key": key, "before": None, "after": after}
        answer = operator.run("process", "set-key-limit", "sample", *arguments, "--json").json
        assert answer == {**changed, "blocked": []}
        assert operator.audited()[-1].items() >= {"action": "process set-key-limit", **changed}.items()
        assert operator.rings() == [{"process": "sample"}]
    assert (operator.process().limit_of("acme"), operator.process().limit_of("b")) == (0, 5)
    assert operator.run("process", "set-key-limit", "sample", "none", "--key", "acme").exit_code == 0
    assert operator.process().key_limits == {}


def test_one_more_key_than_may_have_a_limit_is_refused(operator: Operator) -> None:
    limits = {f"-{number}": {"N": "1"} for number in range(MAX_KEY_LIMITS)}
    edit(operator, "key_limits", {"M": limits})
    reason = operator.refuses("process", "set-key-limit", "sample", "1", "--key", "acme")
    assert "slotkeeper process set-key-limit sample none --key -" in reason
    assert operator.run("process", "set-key-limit", "sample", "2", "--key", "-7").exit_code == 0


def test_list_shows_default_weights_where_one_is_not_1(operator: Operator, weighted: str) -> None:
    operator.processes.pause("sample")
    (sample, listed) = operator.run("process", "list", "--json").json["processes"]
    assert (sample["name"], sample["paused"], listed["paused"]) == ("sample", True, False)
    numbers = [listed[name] for name in ("slot_limit", "slots_in_use", "holders", "default_weight")]
    assert numbers == [6, 5, 1, 2]
    assert "default weight" in operator.run("process", "list").stdout
    operator.release(weighted, "weighted")
    operator.processes.pause("weighted")
    operator.processes.remove("weighted")
    assert "default weight" not in operator.run("process", "list").stdout


def test_set_limit_names_the_holders_and_waiting_requests_above_it(
    operator: Operator, weighted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_time(monkeypatch, process, time=lambda: 1_790_000_060.0)
    operator.hold("b", "weighted", weight=1)
    operator.wait("c", "weighted", weight=6, priority="high")
    operator.wait("d", "weighted")

    ended = operator.run("process", "set-limit", "weighted", "4", "--json", "--yes").json

    assert (ended["in_use"], ended["holders_above_limit"]) == (6, {weighted: 5})
    assert [(one["request_id"], one["weight"]) for one in ended["blocked"]] == [("c", 6)]
    shown = operator.run("process", "set-limit", "weighted", "4").stdout
    assert "6 in use by 2 holders: no request is admitted until enough of them have ended." in shown
    assert "Above the limit alone: a (weight 5)." in shown
    assert "Blocked: c (priority high, weight 6); it waits until the limit is raised." in shown
    assert len(operator.run("process", "set-limit", "weighted", "6").stdout.splitlines()) == 1


def test_set_limit_below_the_default_weight_warns(operator: Operator, weighted: str) -> None:
    warned = operator.run("process", "set-limit", "weighted", "1").stderr
    assert "the default weight 2 is above the limit 1" in warned
    assert "slotkeeper process set-limit weighted 2" in warned
    assert operator.run("process", "set-limit", "weighted", "2").stderr == ""


def test_a_limit_in_units_is_compared_by_the_holders_that_it_allows(operator: Operator) -> None:
    """500 runs of weight 1, or 40 of 25: Glue's concurrency and the item's size depend on the number of holders."""
    operator.aws.make_job("few", ExecutionProperty={"MaxConcurrentRuns": 41})
    operator.processes.create("units", 1, "few", default_weight=25)

    assert operator.run("process", "set-limit", "units", "1000").stderr == ""
    above = operator.run("process", "set-limit", "units", "100000").stderr
    assert "with 500 holders is an item" in above
    assert "allows 41 concurrent runs (MaxConcurrentRuns) for 500" in above
    assert operator.process("units").slot_limit == 100_000


def test_set_limit_compares_the_starts_a_second_with_the_times_of_the_newest_runs(operator: Operator) -> None:
    for seconds in (2, 3, 400):
        operator.run_glue("sample-1", "SUCCEEDED", seconds)
    operator.run_glue("sample-1", "FAILED", 9999)
    assert "(they usually take 3 s)" in operator.run("process", "set-limit", "sample", "125").stderr
    assert "usually take" not in operator.run("process", "set-limit", "sample", "100").stderr


def test_pause_and_resume_one_process_and_all(operator: Operator) -> None:
    operator.processes.create("second", 1, "sample-job")
    assert operator.run("process", "pause", "sample", "--json").json == {"paused": ["sample"], "running": {"sample": 0}}
    assert [operator.process(name).paused for name in ("sample", "second")] == [True, False]
    assert operator.run("process", "pause", "--all").exit_code == 0
    assert operator.process("second").paused
    assert operator.run("process", "resume", "--all", "--json").json["resumed"] == ["sample", "second"]
    assert not operator.process().paused
    assert operator.rings() == [{"process": "sample"}, {"process": "second"}]
    assert [line["action"] for line in operator.audited()] == ["process pause"] * 3 + ["process resume"] * 2


def test_resume_is_refused_while_executions_run_without_a_slot(operator: Operator) -> None:
    """As after a restore of the table, whose holders are outdated."""
    execution = operator.hold("a")
    operator.release(execution)
    operator.processes.pause("sample")

    assert "reconcile" in operator.refuses("process", "resume", "sample")
    assert operator.run("process", "resume", "sample", "--force").exit_code == 0
    assert not operator.process().paused


def test_add_stores_its_settings_and_rings(operator: Operator) -> None:
    """Requests that were sent before it existed may be queued."""
    options = ("--target", "sample-job", "--default-weight", "2", "--paused")
    added = operator.run("process", "add", "q", "--limit", "40", *options)
    assert added.stdout == "q has 40 slots for Glue job sample-job and is paused.\n"
    made, line = operator.process("q"), operator.audited()[-1]
    assert (made.slot_limit, made.default_weight, made.paused) == (40, 2, True)
    assert (line["default_weight"], line["stack"]) == (2, "slotkeeper")
    assert line["by"].startswith("arn:aws:")
    assert operator.rings() == [{"process": "q"}]


def test_a_process_without_a_target_is_for_leases_only(operator: Operator) -> None:
    added = operator.run("process", "add", "licence", "--limit", "2")
    assert (added.exit_code, added.stdout) == (0, "licence has 2 slots for leases only.\n")
    assert "leases only" in operator.run("status", "licence").stdout
    refused = operator.run("request", "submit", "--process", "licence", "--request-id", "a")
    assert (refused.exit_code, "a: process licence is for leases only" in refused.stderr) == (2, True)
    assert waiting(operator, "RequestQueue") == []


def test_add_refuses_an_existing_process_and_a_job_with_all_its_problems(operator: Operator) -> None:
    operator.hold("a")
    operator.refuses("process", "add", "sample", "--limit", "5", "--target", "sample-job")
    operator.aws.make_job("retrying", MaxRetries=2)

    reason = operator.refuses("process", "add", "second", "--limit", "2", "--target", "retrying")
    assert "MaxRetries 2" in reason
    assert "MoreGlueJobArns" in reason
    assert operator.run("process", "add", "second", "--limit", "2", "--target", "retrying", "--force").exit_code == 0
    assert operator.audited()[-1]["forced"] is True


def test_add_accepts_a_job_of_the_parameters_and_refuses_an_unknown_job(operator: Operator) -> None:
    operator.aws.make_job("other", ExecutionProperty={"MaxConcurrentRuns": 9})
    operator.parameters["MoreGlueJobArns"] = "arn:aws:glue:us-east-1:123456789012:job/other"

    assert operator.run("process", "add", "second", "--limit", "2", "--target", "other").exit_code == 0
    assert "does not exist" in operator.run("process", "add", "third", "--limit", "2", "--target", "nowhere").stderr


def test_remove_rings_so_that_queued_requests_are_rejected(operator: Operator) -> None:
    operator.wait("a")

    ended = operator.run("process", "remove", "sample", "--yes", "--json")

    assert ended.json == {"removed": "sample", "queued": 1, "is_cut": False}
    assert operator.rings() == [{"process": "sample"}]


def test_remove_waits_for_running_requests(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    execution = operator.hold("a")

    def end(_: float) -> None:
        assert operator.process().paused
        operator.release(execution)

    replace_time(monkeypatch, process, sleep=end)

    assert operator.run("process", "remove", "sample", "--yes").exit_code == 0
    assert operator.slots.read("sample") is None


def test_remove_leaves_the_process_paused_when_the_timeout_has_passed(operator: Operator) -> None:
    operator.hold("a")

    ended = operator.run("process", "remove", "sample", "--yes", "--timeout", "0")

    assert ended.exit_code == 1
    assert "stays paused" in ended.stderr
    assert operator.process().paused
    assert operator.process().holders


def test_an_audit_line_that_fails_after_a_change_exits_with_1(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3 would state that nothing was changed."""
    operator.processes.create("zz", 1, "sample-job")
    write = operator.logs.put_log_events

    def once(**event: Any) -> Any:
        if "zz" in event["logEvents"][0]["message"]:
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, "PutLogEvents")
        return write(**event)

    monkeypatch.setattr(operator.logs, "put_log_events", once)

    ended = operator.run("process", "pause", "--all")

    assert ended.exit_code == 1
    assert "The command stopped there" in ended.stderr
    assert [operator.process(name).paused for name in ("sample", "zz")] == [True, False]


def test_a_process_removed_meanwhile_is_not_found(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = operator.process()
    operator.dynamodb.delete_item(TableName=operator.outputs["SlotTableName"], Key={"process_name": {"S": "sample"}})
    monkeypatch.setattr(Slots, "read", lambda *_: seen)

    ended = operator.run("process", "pause", "sample")

    assert ended.exit_code == 4
    assert "process 'sample' does not exist" in ended.stderr
