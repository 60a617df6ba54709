"""The Glue checks of a janitor run: jobs in turns, one search for all holders of a job, isolated failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from slotkeeper.slots.work import JobRunSearch
from tests.unit.conftest import CHECK_GAP, GRACE, NOW
from tests.unit.janitor_scene import JanitorScene, http

LATER = NOW + GRACE + 1


def _dead(scene: JanitorScene, process: str, job: str, holders: int = 1) -> None:
    """Another process, with holders whose executions Step Functions no longer has."""
    scene.account.processes.create(process, 10, job)
    for number in range(holders):
        name = f"{process}-{number}"
        scene.account.slots.adopt(process, name, NOW - 2 * 86400, job)


def test_one_search_serves_all_holders_of_a_job(scene: JanitorScene) -> None:
    _dead(scene, "p2", "job", 3)
    scene.account.run_at(LATER)
    assert len(scene.checked_at) == 1
    assert scene.account.run_at(LATER + CHECK_GAP).counts["SlotsReclaimed"] == 3


def test_glue_is_called_once_a_run_while_it_does_not_answer(scene: JanitorScene) -> None:
    for number in range(4):
        _dead(scene, f"q{number}", f"job-{number}")
    asked: list[str] = []

    def fail(model: Any, **_: Any) -> None:
        asked.append(model.name)
        raise ReadTimeoutError(endpoint_url="glue")

    scene.account.glue.meta.events.register_first("before-call.glue.GetJobRuns", fail)
    assert scene.account.run_at(LATER).counts["JanitorErrors"] == 1
    assert asked == ["GetJobRuns"]


def test_a_refused_job_leaves_only_its_own_holders_unchecked(scene: JanitorScene) -> None:
    """The stack's roles lack permission for the job (MoreGlueJobArns)."""
    _dead(scene, "p2", "job")
    _dead(scene, "p3", "another-stacks-job")

    def refuse(params: Any, **_: Any) -> Any:
        if "another-stacks-job" in str(params["body"]):
            return http(400), {"Error": {"Code": "AccessDeniedException", "Message": "not yours"}}
        return None

    scene.account.glue.meta.events.register_first("before-call.glue.GetJobRuns", refuse)
    runs = [scene.account.run_at(moment).counts for moment in (LATER, LATER + CHECK_GAP)]
    assert [(counts["JanitorErrors"], counts["HoldersUnreadable"]) for counts in runs] == [(1, 1), (1, 1)]
    assert [scene.account.item(name).slots_in_use for name in ("p2", "p3")] == [0, 1]


def test_the_next_run_continues_a_search_that_was_cut_short(scene: JanitorScene) -> None:
    """A holder of two days, whose job starts a run each second, has hundreds of pages."""
    _dead(scene, "p2", "job")
    pages: list[str] = []

    def page(params: Any, **_: Any) -> Any:
        pages.append(str(params["body"]))
        scene.account.now += 1
        return http(200), {"JobRuns": [], **({"NextToken": f"page {len(pages)}"} if len(pages) < 100 else {})}

    scene.account.glue.meta.events.register_first("before-call.glue.GetJobRuns", page)
    runs = [scene.account.run_at(LATER + 60 * number).counts for number in range(3)]
    assert [counts["JanitorRunsCutShort"] for counts in runs] == [1, 1, 0]
    assert scene.account.item("p2").holders["p2-0"].quiet_since is not None
    assert len(pages) == 100


@pytest.mark.parametrize(
    ("seconds", "is_readable", "reported"),
    [
        (3600, True, 1),
        (30, True, 0),  # its slot may have been reserved after the table was read
        (3600, False, 0),  # the run's holder may be one of those that could not be read
    ],
)
def test_a_live_run_without_a_holder_is_reported_and_not_stopped(
    scene: JanitorScene, seconds: int, is_readable: bool, reported: int
) -> None:
    _dead(scene, "p2", "job")
    scene.run("RUNNING")
    if not is_readable:
        scene.account.write("slot_limit", {"S": "3"})
    counts = scene.account.run_at(NOW + seconds).counts
    assert (counts["GlueRunsUnheld"], scene.stopped) == (reported, [])


def test_s1b_a_failed_search_covers_nothing() -> None:
    def pages() -> Iterator[Any]:
        yield {"JobRuns": []}
        raise ReadTimeoutError(endpoint_url="glue")

    search = JobRunSearch(pages(), NOW)
    search.read_page()
    with pytest.raises(ReadTimeoutError):
        search.read_page()
    with pytest.raises(RuntimeError):
        search.read_page()
    assert not search.covers(NOW)
