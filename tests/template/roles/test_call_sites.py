"""Every site where a function's code can call AWS is in the recorded calls."""

from __future__ import annotations

import pytest

from tests.template.roles import evidence, sites
from tests.template.roles.recording import Site, folder_of

# Calls that the search by names finds but the function never makes: (operation, module, function in it) and why.
EXCLUDED = {
    "JanitorFunction": {("PutItem", "aws/dynamodb", "Table._write"): "the starter's, of a new request"},
    "EndingFunction": {
        ("PutItem", "aws/dynamodb", "Table._write"): "the starter's, of a new request",
        ("ListExecutions", "slots/executions", "Workflow._list"): "the janitor's, of those that run",
        ("ListExecutions", "slots/work", "Children.redriven"): "the janitor's, of children that were redriven",
    },
    "TokenRefresherFunction": {("Invoke", "chatbot/token", "Refresher.ask"): "the chatbot's, which invokes this one"},
}


def _excluded(function: str) -> set[tuple[str, Site]]:
    layer = "layers/slotkeeper/slotkeeper"
    return {(call, Site(f"{layer}/{module}.py", name)) for call, module, name in EXCLUDED.get(function, {})}


def test_every_call_site_is_recorded() -> None:
    variants = ("default", "token refresher", "state machines")
    for function in evidence.stack("token refresher").of_type("AWS::Lambda::Function"):
        recorded = [call for variant in variants for call in evidence.calls(variant).get(function, [])]
        seen = {(call.operation, call.site) for call in recorded}
        missing = sites.of_function(folder_of(function)) - seen - _excluded(function)
        assert not missing, "add a case to tests/template/roles/cases.py that makes\n" + "\n".join(
            sorted(f"{operation} at {site}" for operation, site in missing)
        )


@pytest.mark.parametrize("function", EXCLUDED)
def test_excluded_calls_are_not_made(function: str) -> None:
    assert _excluded(function) <= sites.of_function(folder_of(function)), "without a need"
    made = {(call.operation, call.site) for call in evidence.calls("token refresher")[function]}
    assert not _excluded(function) & made


def test_the_sample_jobs_script_calls_nothing_else() -> None:
    seen = {(call.operation, call.site) for call in evidence.calls("default")["SampleJob"]}
    assert sites.reachable([evidence.JOB_SCRIPT]) == seen
