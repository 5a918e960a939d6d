import asyncio
from typing import Any

from ccm_agent.agent.runs.run_queue import EnqueueResult, QueuedRun, RunQueue
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest


def job(run: str, **fields: Any) -> QueuedRun:
    request = ManifestRequest(protocol=MANIFEST_APPLY, run=run)
    return QueuedRun(**({"run": run, "action": "apply", "name": "", "request": request} | fields))


async def test_the_first_begins_at_once_and_others_wait_in_order() -> None:
    run_queue = RunQueue(limit=10)

    offers = [run_queue.offer(job("r1")), run_queue.offer(job("r2"))]
    current = await run_queue.next()
    offers.append(run_queue.offer(job("r3")))

    assert offers == [EnqueueResult(position=0), EnqueueResult(position=1), EnqueueResult(position=2)]
    assert current.run == "r1"
    assert [run_queue.position(run) for run in ("r1", "r2", "r3", "r4")] == [0, 1, 2, None]
    run_queue.finish()
    assert (await run_queue.next()).run == "r2"


async def test_next_waits_for_a_job() -> None:
    run_queue = RunQueue(limit=10)
    waiting = asyncio.create_task(run_queue.next())
    await asyncio.sleep(0)

    run_queue.offer(job("r1"))

    async with asyncio.timeout(5):
        assert (await waiting).run == "r1"


async def test_no_more_than_the_limit_wait() -> None:
    run_queue = RunQueue(limit=2)
    run_queue.offer(job("r1"))
    await run_queue.next()

    offers = [run_queue.offer(job(f"r{number}")) for number in (2, 3, 4)]

    assert [offer.position for offer in offers] == [1, 2, -1]
    assert [one.run for one in run_queue.waiting] == ["r2", "r3"]


async def test_a_newer_job_of_the_same_name_supersedes_one_that_waits_also_in_a_full_queue() -> None:
    run_queue = RunQueue(limit=2)
    run_queue.offer(job("r1", name="site"))
    await run_queue.next()
    old = job("r2", name="site")
    run_queue.offer(old)
    run_queue.offer(job("r3", name="other"))

    offer = run_queue.offer(job("r4", name="site"))

    assert offer == EnqueueResult(position=2, superseded=old)
    assert [one.run for one in run_queue.waiting] == ["r3", "r4"]


async def test_a_plan_does_not_supersede_an_apply_and_jobs_without_a_name_supersede_nothing() -> None:
    run_queue = RunQueue(limit=10)
    run_queue.offer(job("r0"))
    await run_queue.next()

    offers = [
        run_queue.offer(job("r1", name="site")),
        run_queue.offer(job("r2", name="site", action="plan")),
        run_queue.offer(job("r3")),
        run_queue.offer(job("r4")),
    ]

    assert [offer.superseded for offer in offers] == [None] * 4


async def test_a_job_that_waits_can_be_withdrawn_and_one_in_progress_cannot() -> None:
    run_queue = RunQueue(limit=10)
    run_queue.offer(job("r1"))
    run_queue.offer(job("r2"))
    await run_queue.next()

    withdrawn = run_queue.withdraw("r2")

    assert withdrawn is not None
    assert withdrawn.run == "r2"
    assert run_queue.withdraw("r1") is None
    assert run_queue.waiting == []
