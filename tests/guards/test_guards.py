"""The rows fit the code, mutations weaken what they name, and the gate fails if nothing notices."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guards import gate, sent
from tests.guards.all_rows import FAILURES, MUTATIONS, NOWHERE, ROWS
from tests.guards.edits import Gone, code, state, template, text
from tests.guards.gate import Verdict
from tests.guards.mutations import mutated, mutations
from tests.guards.rows import Row, World
from tests.guards.slots_rows import A, B, of
from tests.simulation.frozen import freeze, thaw
from tests.simulation.world_runs import set_to

Patch = pytest.MonkeyPatch
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_place_of_a_row_exists(row: Row, monkeypatch: Patch) -> None:
    row.remove(monkeypatch)


def test_the_tests_of_the_rows_exist_and_need_no_deployment() -> None:
    named = {row.noticed.partition("[")[0] for row in ROWS if isinstance(row.noticed, str)}
    files = {test.partition("::")[0] for test in named}
    tests = {f"{file}::{test}" for file in files for test in re.findall(r"def (\w+)\(", (ROOT / file).read_text())}
    assert named - tests == set()
    assert not [file for file in files if file.startswith(("tests/deployed", "tests/facts"))]


def test_every_known_failure_has_a_row_or_is_a_mutation() -> None:
    names = [row.name for row in ROWS]
    assert sorted(set(names)) == sorted(names)
    assert {each for row in ROWS for each in row.failures} | MUTATIONS.keys() == set(FAILURES) - NOWHERE


def admits(held: int, limit: int) -> bool:
    if held < limit:
        return True
    return held < limit


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        (code(admits, "held <= limit", "True"), "admits has 0 places with `held <= limit` instead of one"),
        (code(admits, "held < limit", "True"), "admits has 2 places"),
        (code(admits, "return True", "return other"), "admits does not know other"),
        (state("NoState", text("a")), "the workflow has no state NoState"),
        (state("Ring", text("no such text")), "0 texts of the state contain 'no such text'"),
        (state("Ring", lambda _: None), "the change of Ring changes nothing"),
        (template("Resources.NoQueue.Type", "", ""), "the template has no Resources.NoQueue.Type"),
        (template("Resources.RequestQueue.Type", "", ""), "is 'AWS::SQS::Queue', not ''"),
    ],
    ids=["no place", "two places", "unknown name", "no state", "no text", "no change", "no path", "another value"],
)
def test_a_row_whose_place_is_gone_is_refused(remove: gate.Remove, message: str, monkeypatch: Patch) -> None:
    with pytest.raises(Gone, match=re.escape(message)):
        remove(monkeypatch)


CONDITION = "#limit = :limit AND used < #limit AND (attribute_not_exists(h.#n1) OR h.#n1 IN (:a, :b))"
UPDATE = "SET used = used + :one, first = if_not_exists(first, :now) REMOVE h.#n1"


def test_each_term_and_each_action_of_a_write_is_left_out() -> None:
    assert mutations("update_item", CONDITION, UPDATE) == (
        "without #limit = :limit",
        "without used < #limit",
        "without attribute_not_exists(h.#n) OR h.#n IN (:a, :b)",
        "used < #limit with <=",
        "used < #limit with <>",
        "never attribute_not_exists(h.#n)",
        "never h.#n IN (:a, :b)",
        "h.#n never :a",
        "h.#n never :b",
        "without SET used = used + :one",
        "without SET first = if_not_exists(first, :now)",
        ":now for if_not_exists(first, :now)",
        "without REMOVE h.#n",
    )
    assert mutations("Put", "attribute_not_exists(a)", "") == ("is not made", "without attribute_not_exists(a)")


def test_a_mutated_request_has_no_unused_names_and_values() -> None:
    values = {f":{name}": {"S": name} for name in ("limit", "a", "b", "one", "now")}
    request = {
        "ConditionExpression": CONDITION,
        "UpdateExpression": UPDATE,
        "ExpressionAttributeNames": {"#limit": "limit", "#n1": "n"},
        "ExpressionAttributeValues": values,
    }
    changed = mutated("update_item", freeze(request), frozenset(["without #limit = :limit", "without REMOVE h.#n"]))
    assert thaw(changed) == {
        **request,
        "ConditionExpression": "used < #limit AND (attribute_not_exists(h.#n1) OR h.#n1 IN (:a, :b))",
        "UpdateExpression": "SET used = used + :one, first = if_not_exists(first, :now)",
        "ExpressionAttributeValues": {name: value for name, value in values.items() if name != ":limit"},
    }


def test_a_mutation_is_noticed_by_a_world_in_which_it_changes_something() -> None:
    sent.note_senders()
    gate.frozen.forget()  # so that the layer sends its writes again
    found = {str(each): each for each in gate.mutations([gate.observe_world("2 requests with one id")])}
    verdict = gate.try_mutation(found["ReleaseSlot: without REMOVE holders.#me"], {})
    assert (verdict.status, verdict.by) == ("noticed", "2 requests with one id")


def test_a_row_that_nothing_notices_fails() -> None:
    none = set_to(gate, "SECONDS", gate.SECONDS)
    verdict = gate.try_row(Row("none", "", none, World(of(A, B), 0, "S6")), {})
    assert verdict == Verdict("none", "not noticed", "world")


def test_the_gate_reports_a_row_of_each_kind(tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    only = [f"--only={name}" for name in ("s6-no-ring", "f17-", "f10-", "f27-", "f29-a-random")]
    ran = run(*only, f"--report={report}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert report.read_text().startswith("# 6 of 6 guards are noticed or redundant")


def test_an_unknown_guard_is_a_usage_error() -> None:
    refused = run("--only=f99")
    assert (refused.returncode, "f99" in refused.stderr) == (2, True)


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.guards", *options]
    environment = {**os.environ, "PYTHONPATH": "layers/slotkeeper:cli"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
