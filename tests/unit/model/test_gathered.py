"""
Gathered facts answer to the names of gopsutil's structures.

data/gopsutil_v4.26.6.json holds what Go's reflection says of these structures, as `reflect.TypeOf` names them: made with Go 1.26
from github.com/shirou/gopsutil/v4 v4.26.6, the version that choria-io/ccm at bd56277 is built with.
"""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.facts.gather import LazyFacts
from ccm_agent.model.gathered import GatheredRecord, family_with_go_names, unknown_fields, with_go_names

STRUCTURES: list[dict[str, Any]] = json.loads(
    (Path(__file__).with_name("data") / "gopsutil_v4.26.6.json").read_text()
)
PYTHON_TYPES = {"string": str, "[]string": list, "float64": float, "net.InterfaceAddrList": list}
HOST = {field["json"]: f"the {field['json']}" for field in STRUCTURES[0]["fields"]}


def at(facts: Any, path: str) -> list[Any]:
    """All values at a path such as `cpu.info[]`."""
    found = [facts]
    for part in path.split("."):
        found = [one[part.removesuffix("[]")] for one in found]
        if part.endswith("[]"):
            found = [item for one in found for item in one]
    return found


def sample(structure: dict[str, Any]) -> dict[str, Any]:
    return {field["json"]: index for index, field in enumerate(structure["fields"])}


def facts_with(path: str, value: object) -> dict[str, Any]:
    """Facts that hold a value at a path, and nothing else."""
    for part in reversed(path.split(".")):
        value = {part.removesuffix("[]"): [value] if part.endswith("[]") else value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda one: str(one["type"]))
def test_every_structure_has_gos_fields_in_gos_order(structure: dict[str, Any]) -> None:
    if structure["path"].endswith("addrs[]"):
        interface = {**sample(STRUCTURES[5]), "addrs": [sample(structure)]}
        facts = facts_with("network.interfaces[]", interface)
    else:
        facts = facts_with(structure["path"], dict(reversed(sample(structure).items())))

    (record,) = at(with_go_names(facts), structure["path"])

    assert record.record_type.go_type == structure["type"]
    assert list(record) == [field["json"] for field in structure["fields"]]
    assert [record[field["name"]] for field in structure["fields"]] == list(range(len(structure["fields"])))


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda one: str(one["type"]))
def test_this_machine_gathers_all_fields_in_gos_types(structure: dict[str, Any]) -> None:
    family = structure["path"].split(".")[0]

    for record in at({family: LazyFacts()[family]}, structure["path"]):
        assert isinstance(record, GatheredRecord)
        types = {field["json"]: PYTHON_TYPES.get(field["type"], int) for field in structure["fields"]}
        assert {name: isinstance(value, types[name]) for name, value in record.items()} == dict.fromkeys(
            types, True
        )


def test_a_record_answers_to_both_names() -> None:
    record = family_with_go_names("host", {"info": HOST})["info"]

    assert (record["PlatformFamily"], record["platformFamily"]) == ("the platformFamily",) * 2
    assert ("OS" in record, "os" in record, "Os" in record) == (True, True, False)
    assert (record.get("OS"), record.get("Os"), record.get("Os", 1)) == ("the os", None, 1)
    assert (len(record), record == HOST) == (13, True)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("PlatformFamilly", "`PlatformFamily`"),
        ("platform_family", "`platformFamily`"),
        ("Os", "`OS`"),
        ("zzz", "hostname, uptime, bootTime"),
    ],
)
def test_an_unknown_field_names_the_nearest(name: str, nearest: str) -> None:
    record = with_go_names({"host": {"info": HOST}})["host"]["info"]

    with pytest.raises(KeyError) as caught:
        record[name]

    assert f"host.InfoStat has no field `{name}`" in str(caught.value)
    assert nearest in str(caught.value)


@pytest.mark.parametrize(
    "custom",
    [
        pytest.param({"host": {"info": {"os": "linux", "site": "a"}}}, id="some fields only"),
        pytest.param({"host": {"info": "none"}, "cpu": None, "memory": []}, id="other values"),
        pytest.param({"cpu": {"info": [HOST]}, "place": {"info": HOST}}, id="other places"),
        pytest.param({"network": {"interfaces": []}}, id="an empty list"),
    ],
)
def test_custom_facts_stay_plain(custom: dict[str, Any]) -> None:
    before = copy.deepcopy(custom)

    assert with_go_names(custom) is custom
    assert custom == before


def test_naming_does_not_change_its_input_and_is_idempotent() -> None:
    facts = {"host": {"info": dict(HOST), "site": "a"}, "role": "web"}

    named = with_go_names(facts)

    assert type(facts["host"]["info"]) is dict  # type: ignore[index]
    assert named == facts
    assert with_go_names(named) is named


def test_a_custom_fact_inside_of_a_record_is_a_field_more() -> None:
    facts = LazyFacts([{"host": {"info": {"site": "a"}}}], {"host": lambda: {"info": HOST}})

    info = facts["host"]["info"]

    assert (info["site"], info["OS"]) == ("a", "the os")


def test_a_field_is_set_by_either_name() -> None:
    record = with_go_names({"host": {"info": HOST}})["host"]["info"]

    record["OS"] = "plan9"

    assert (record["os"], len(record)) == ("plan9", 13)


def test_records_survive_encoding_and_pickling() -> None:
    record = with_go_names({"host": {"info": HOST}})["host"]["info"]

    restored = pickle.loads(pickle.dumps(record))

    assert (restored["OS"], restored == record) == ("the os", True)
    assert msgspec.json.decode(msgspec.json.encode(record)) == HOST


@pytest.mark.parametrize(
    ("expression", "unknown"),
    [
        ("Facts.host.info.OS == 'linux' and Facts.host.info.os == 'linux'", []),
        ("Facts.host.info.Os", ["host.InfoStat has no field `Os`"]),
        ("Facts.cpu.info[0].Model + Facts.cpu.info[-1].modle", ["cpu.InfoStat has no field `modle`"]),
        ("Facts.network.interfaces[0].Addrs[0].Adr", ["net.InterfaceAddr has no field `Adr`"]),
        ("Facts.network.interfaces[0].nam.x", ["net.InterfaceStat has no field `nam`"]),
        ("Facts.host.info.os.x + Facts.host.nope.x + Facts.role + Facts.network.default_ipv4", []),
        ("Facts.cpu.info.Model + Data.host.info.Os + Facts.host[0].x", []),
        ("Facts.memory.swap.Total + Facts.memory.swap.info.Totl", ["mem.SwapMemoryStat has no field `Totl`"]),
    ],
)
def test_fields_that_no_gathered_fact_has_are_found_in_expressions(
    expression: str, unknown: list[str]
) -> None:
    found = list(unknown_fields(expression))

    assert len(found) == len(unknown)
    assert all(want in sentence for want, sentence in zip(unknown, found, strict=True))
