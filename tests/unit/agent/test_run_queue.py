import asyncio
from typing import Any

from ccm_agent.agent.runs.run_queue import EnqueueResult, QueuedRun, RunQueue
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest


def job(run: str, **fields: Any) -> QueuedRun:
    request = ManifestRequest(protocol=MANIFEST_APPLY, run=run)
    return QueuedRun(**({"run": run, "action": "apply", "name": "", "request": request} | fields))


async def test_the_first_begins_at_once_and_others_wait_in_order() -> None:
    turns = RunQueue(limit=10)

    offers = [turns.offer(job("r1")), turns.offer(job("r2"))]
    current = await turns.next()
    offers.append(turns.offer(job("r3")))

    assert offers == [EnqueueResult(position=0), EnqueueResult(position=1), EnqueueResult(position=2)]
    assert current.run == "r1"
    assert [turns.position(run) for run in ("r1", "r2", "r3", "r4")] == [0, 1, 2, None]
    turns.finish()
    assert (await turns.next()).run == "r2"


async def test_next_waits_for_a_job() -> None:
    turns = RunQueue(limit=10)
    waiting = asyncio.create_task(turns.next())
    await asyncio.sleep(0)

    turns.offer(job("r1"))

    async with asyncio.timeout(5):
        assert (await waiting).run == "r1"


async def test_no_more_than_the_limit_wait() -> None:
    turns = RunQueue(limit=2)
    turns.offer(job("r1"))
    await turns.next()

    offers = [turns.offer(job(f"r{number}")) for number in (2, 3, 4)]

    assert [offer.position for offer in offers] == [1, 2, -1]
    assert [one.run for one in turns.waiting] == ["r2", "r3"]


async def test_a_newer_job_of_the_same_name_supersedes_one_that_waits_also_in_a_full_queue() -> None:
    turns = RunQueue(limit=2)
    turns.offer(job("r1", name="site"))
    await turns.next()
    old = job("r2", name="site")
    turns.offer(old)
    turns.offer(job("r3", name="other"))

    offer = turns.offer(job("r4", name="site"))

    assert offer == EnqueueResult(position=2, superseded=old)
    assert [one.run for one in turns.waiting] == ["r3", "r4"]


async def test_a_plan_does_not_supersede_an_apply_and_jobs_without_a_name_supersede_nothing() -> None:
    turns = RunQueue(limit=10)
    turns.offer(job("r0"))
    await turns.next()

    offers = [
        turns.offer(job("r1", name="site")),
        turns.offer(job("r2", name="site", action="plan")),
        turns.offer(job("r3")),
        turns.offer(job("r4")),
    ]

    assert [offer.superseded for offer in offers] == [None] * 4


async def test_a_job_that_waits_can_be_withdrawn_and_one_in_hand_cannot() -> None:
    turns = RunQueue(limit=10)
    turns.offer(job("r1"))
    turns.offer(job("r2"))
    await turns.next()

    withdrawn = turns.withdraw("r2")

    assert withdrawn is not None
    assert withdrawn.run == "r2"
    assert turns.withdraw("r1") is None
    assert turns.waiting == []
