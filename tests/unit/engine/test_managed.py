import pytest

from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import InputError
from tests.support.engine import Bench, bench


async def managed(at: Bench, text: str) -> set[str]:
    source = ManifestSource(text=text.encode(), directory="/work")
    found = await at.engine.managed(source, at.options(facts={"os": "linux"}))
    assert (at.events, at.board.looks, at.board.looks_ahead) == ([], [], [])
    return set(found.values())


async def test_the_resources_of_a_manifest_are_named_and_nothing_is_looked_at() -> None:
    text = """
data: {who: rip}
ccm:
  resources:
    - note: [{"${ Data.who }": {text: hello}}, {motd: {text: hello}}]
"""

    assert await managed(bench(), text) == {"note#rip", "note#motd"}


async def test_resources_excluded_by_control_are_left_out() -> None:
    text = """
ccm:
  resources:
    - note:
        - here: {text: a, control: {if: Facts.os == 'linux'}}
        - elsewhere: {text: a, control: {if: Facts.os == 'bsd'}}
        - not_here: {text: a, control: {unless: Facts.os == 'linux'}}
"""

    assert await managed(bench(), text) == {"note#here"}


async def test_a_child_represents_its_content_and_one_that_does_not_exist_yet_for_nothing() -> None:
    at = bench()
    at.files.put("/work/child.yaml", "ccm: {resources: [{note: [{inner: {text: a}}]}]}")
    text = """
ccm:
  resources:
    - apply: [{child.yaml: {}}, {later.yaml: {}}]
    - note: [{outer: {text: a}}]
"""

    assert await managed(at, text) == {"note#inner", "note#outer"}


async def test_an_unusable_manifest_reports_why() -> None:
    with pytest.raises(InputError):
        await managed(bench(), "ccm: {resources: [{no_such_type: [{a: {}}]}]}")


async def test_a_resource_is_the_same_one_if_only_one_manifest_knows_that_its_name_has_a_secret() -> None:
    at, options = bench(), bench().options(facts={})
    plain = "ccm: {resources: [{note: [{login hunter22: {text: a}}]}]}"
    knowing = "data: {db_password: hunter22}\n" + plain

    first, second = [
        await at.engine.managed(ManifestSource(text=text.encode(), directory="/work"), options)
        for text in (plain, knowing)
    ]

    assert first.keys() == second.keys()
    assert list(first.values()) == ["note#login hunter22"]
    assert [name.partition(" (")[0] for name in second.values()] == ["note#login ***"]
