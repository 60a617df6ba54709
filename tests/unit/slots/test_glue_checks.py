"""The checks of Glue in one run: jobs in turns, one search for all holders of a job, no failure that is another's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from slotkeeper.slots.glue import JobRunSearch
from tests.unit.conftest import GRACE, LOOK_GAP, NOW, Account
from tests.unit.janitor_scene import JanitorScene, http

LATER = NOW + GRACE + 1


@pytest.fixture
def world(account: Account) -> JanitorScene:
    return JanitorScene(account)


def _dead(world: JanitorScene, process: str, job: str, holders: int = 1) -> None:
    """Another process, with holders whose workflows nobody knows any more."""
    world.account.processes.create(process, 10, job)
    for number in range(holders):
        name = f"{process}-{number}"
        world.account.slots.adopt(process, name, NOW - 2 * 86400, job)


def test_one_search_serves_all_holders_of_a_job(world: JanitorScene) -> None:
    _dead(world, "p2", "job", 3)
    world.account.round_at(LATER)
    assert len(world.looked_at) == 1
    assert world.account.round_at(LATER + LOOK_GAP).counts["SlotsReclaimed"] == 3


def test_glue_is_called_once_a_run_while_it_does_not_answer(world: JanitorScene) -> None:
    for number in range(4):
        _dead(world, f"q{number}", f"job-{number}")
    asked: list[str] = []

    def fail(model: Any, **_: Any) -> None:
        asked.append(model.name)
        raise ReadTimeoutError(endpoint_url="glue")

    world.account.glue.meta.events.register_first("before-call.glue.GetJobRuns", fail)
    assert world.account.round_at(LATER).counts["JanitorErrors"] == 1
    assert asked == ["GetJobRuns"]


def test_a_refused_job_leaves_only_its_own_holders_unchecked(world: JanitorScene) -> None:
    """A job that the stack's roles may not touch (MoreGlueJobArns)."""
    _dead(world, "p2", "job")
    _dead(world, "p3", "somebody-elses-job")

    def refuse(params: Any, **_: Any) -> Any:
        if "somebody-elses-job" in str(params["body"]):
            return http(400), {"Error": {"Code": "AccessDeniedException", "Message": "not yours"}}
        return None

    world.account.glue.meta.events.register_first("before-call.glue.GetJobRuns", refuse)
    runs = [world.account.round_at(moment).counts for moment in (LATER, LATER + LOOK_GAP)]
    assert [counts["JanitorErrors"] for counts in runs] == [1, 1]
    assert [world.account.item(name).slots_in_use for name in ("p2", "p3")] == [0, 1]


def test_the_next_run_continues_a_search_that_was_cut_short(world: JanitorScene) -> None:
    """A holder of two days on a job that starts a run every second is hundreds of pages."""
    _dead(world, "p2", "job")
    pages: list[str] = []

    def page(params: Any, **_: Any) -> Any:
        pages.append(str(params["body"]))
        world.account.now += 1
        return http(200), {"JobRuns": [], **({"NextToken": f"page {len(pages)}"} if len(pages) < 100 else {})}

    world.account.glue.meta.events.register_first("before-call.glue.GetJobRuns", page)
    runs = [world.account.round_at(LATER + 60 * number).counts for number in range(3)]
    assert [counts["JanitorRunsCutShort"] for counts in runs] == [1, 1, 0]
    assert world.account.item("p2").holders["p2-0"].quiet_since is not None
    assert len(pages) == 100


def test_a_live_run_without_a_holder_is_reported_and_not_stopped(world: JanitorScene) -> None:
    _dead(world, "p2", "job")
    world.run("RUNNING")
    counts = world.account.round_at(NOW + 3600).counts
    assert (counts["GlueRunsUnheld"], world.stopped) == (1, [])


def test_a_run_that_has_just_begun_is_not_reported(world: JanitorScene) -> None:
    """Its slot may have been reserved after the table was read."""
    _dead(world, "p2", "job")
    world.run("RUNNING")
    assert "GlueRunsUnheld" not in world.account.round_at(NOW + 30).counts


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
