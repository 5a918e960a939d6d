"""A run leaves nothing behind that only the garbage collection could find."""

import asyncio
import gc

from ccm_agent.engine.request import ManifestSource
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import ResolvedResource
from tests.support.engine import bench

MANIFEST = b"""
ccm:
  resources:
    - file:
        - /a: {ensure: absent}
        - /b: {ensure: absent}
    - apply:
        - /work/child.yaml: {}
"""
ROUNDS = 300
CHILD = b"ccm: {resources: [{file: [{/c: {ensure: absent}}]}]}\n"


def declared() -> list[ResolvedResource]:
    """All resources that this process holds."""
    return [value for value in gc.get_objects() if isinstance(value, ResolvedResource)]


def more_than(before: list[ResolvedResource]) -> list[ResolvedResource]:
    return [one for one in declared() if not any(one is known for known in before)]


async def test_objects_of_a_run_are_released_at_its_end() -> None:
    one = bench(Catalog().find("file"))
    one.files.put("/work/child.yaml", CHILD)
    source = ManifestSource(text=MANIFEST, name="site", directory="/work")
    await one.engine.apply(source, one.options())
    assert [event.name for event in one.events] == ["/a", "/b", "/c", "/work/child.yaml"]
    one.events.clear()
    gc.collect()
    before = declared()
    gc.disable()
    try:
        await one.engine.apply(source, one.options())
        one.events.clear()
        # the loop, and a thread that has given its result, let go of it a moment after we have it
        for _ in range(ROUNDS):
            if not more_than(before):
                break
            await asyncio.sleep(0.01)

        assert more_than(before) == []
    finally:
        gc.enable()
