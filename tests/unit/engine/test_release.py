"""A run leaves nothing behind that only the garbage collection could find."""

import asyncio
import gc

from ccm_agent.engine.request import ManifestSource
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.converge import Declared
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
CHILD = b"ccm: {resources: [{file: [{/c: {ensure: absent}}]}]}\n"


def declared() -> list[Declared]:
    """All resources that this process holds."""
    return [value for value in gc.get_objects() if isinstance(value, Declared)]


async def test_what_a_run_made_is_gone_when_it_has_ended() -> None:
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
        await asyncio.sleep(0)  # the loop holds the result that it woke us with

        assert [one for one in declared() if not any(one is known for known in before)] == []
    finally:
        gc.enable()
