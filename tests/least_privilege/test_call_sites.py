"""Every site where a function's code can call AWS is in the recorded calls."""

from __future__ import annotations

import pytest

from tests.least_privilege import evidence, sites
from tests.least_privilege.recording import Site, folder_of

# Sites that the search by names finds but the function never calls: (module, function in it) and why.
EXCLUDED = {
    "StarterFunction": {("slots/rows", "RequestRows._pages"): "the janitor's list of ends without an answer"},
    "JanitorFunction": {("slots/queues", "RequestDeadLetterQueue.add"): "the starter's, of what is no request"},
    "EndingFunction": {
        ("slots/queues", "RequestDeadLetterQueue.add"): "the starter's, of what is no request",
        ("slots/executions", "Workflow._list"): "the janitor's list of closed executions",
    },
    "TokenRefresherFunction": {("chatbot/token", "Refresher.ask"): "the chatbot's, which invokes this function"},
}


def _excluded(function: str) -> set[Site]:
    layer = "layers/slotkeeper/slotkeeper"
    return {Site(f"{layer}/{module}.py", name) for module, name in EXCLUDED.get(function, {})}


def test_every_call_site_is_recorded() -> None:
    variants = ("default", "token refresher", "state machines")
    for function in evidence.stack("token refresher").of_type("AWS::Lambda::Function"):
        recorded = [call for variant in variants for call in evidence.calls(variant).get(function, [])]
        seen = {(call.operation, call.site) for call in recorded}
        missing = {each for each in sites.of_function(folder_of(function)) - seen if each[1] not in _excluded(function)}
        assert not missing, "add a case to tests/least_privilege/cases.py that makes\n" + "\n".join(
            sorted(f"{operation} at {site}" for operation, site in missing)
        )


@pytest.mark.parametrize("function", EXCLUDED)
def test_excluded_call_sites_are_not_called(function: str) -> None:
    assert _excluded(function) <= {site for _, site in sites.of_function(folder_of(function))}, "without a need"
    assert not _excluded(function) & {call.site for call in evidence.calls("token refresher")[function]}


def test_the_sample_jobs_script_calls_nothing_else() -> None:
    seen = {(call.operation, call.site) for call in evidence.calls("default")["SampleJob"]}
    assert sites.reachable([evidence.JOB_SCRIPT]) == seen
