"""Families on demand, and what goes over them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.facts.gather import FAMILIES, LazyFacts, gather, lasting


class Families:
    """Two families that count how often they are gathered."""

    def __init__(self) -> None:
        self.gathered: list[str] = []

    def all(self) -> dict[str, Callable[[], Mapping[str, Any]]]:
        return {"host": lambda: self._give("host"), "cpu": lambda: self._give("cpu")}

    def _give(self, name: str) -> Mapping[str, Any]:
        self.gathered.append(name)
        return {"info": {"name": name, "tags": [1]}}


def test_a_family_is_gathered_when_it_is_asked_for_and_once() -> None:
    families = Families()
    facts = LazyFacts(families=families.all())

    asked = (
        facts["host"]["info"]["name"],
        facts.get("host") is facts["host"],
        facts.get("nope"),
        "cpu" in facts,
    )

    assert asked == ("host", True, None, True)
    assert families.gathered == ["host"]


def test_layers_are_merged_deep_over_families_in_order() -> None:
    facts = LazyFacts(
        [
            {"host": {"info": {"name": "file", "tags": [2]}}, "role": "file"},
            lambda: {"role": "flag", "host": {"x": 1}},
        ],
        Families().all(),
    )

    assert facts.load() == {
        "host": {"info": {"name": "file", "tags": [1, 2]}, "x": 1},
        "cpu": {"info": {"name": "cpu", "tags": [1]}},
        "role": "flag",
    }
    assert list(facts) == ["host", "cpu", "role"]
    assert len(facts) == 3


def test_to_python_code_it_is_a_dictionary_like_any_other() -> None:
    whole = {
        "host": {"info": {"name": "host", "tags": [1]}},
        "cpu": {"info": {"name": "cpu", "tags": [1]}},
        "role": "web",
    }

    def lazy() -> LazyFacts:
        return LazyFacts([{"role": "web"}], Families().all())

    assert isinstance(lazy(), dict)
    assert lazy() == whole
    assert (dict(lazy()), {**lazy()}, lazy().copy(), lazy().load()) == (
        whole,
        whole,
        whole,
        whole,
    )
    assert (list(lazy().items()), list(lazy().values())) == (list(whole.items()), list(whole.values()))
    assert (bool(lazy()), "nope" in lazy(), lazy().get("nope", 5)) == (True, False, 5)
    with pytest.raises(KeyError):
        lazy()["nope"]


def test_a_layer_may_replace_a_family_by_a_text() -> None:
    assert LazyFacts([{"cpu": "none"}], Families().all())["cpu"] == "none"


def test_a_layer_is_asked_for_once_and_not_before_it_is_needed() -> None:
    asked: list[str] = []

    def layer() -> Mapping[str, Any]:
        asked.append("layer")
        return {"a": 1}

    facts = LazyFacts([layer], Families().all())
    assert asked == []

    assert (facts["a"], facts["a"], "b" in facts) == (1, 1, False)
    assert asked == ["layer"]


@pytest.mark.parametrize("error", [OSError("denied"), ValueError("odd")])
def test_a_family_that_cannot_be_read_is_empty(error: Exception) -> None:
    def broken() -> Mapping[str, Any]:
        raise error

    assert LazyFacts(families={"cpu": broken})["cpu"] == {"info": []}


def test_facts_of_this_machine_have_ccms_families(tmp_path: Path) -> None:
    (tmp_path / "choria/ccm").mkdir(parents=True)
    (tmp_path / "choria/ccm/facts.yaml").write_text("role: file\nhost: {info: {hostname: made-up}}\n")

    facts = gather({"XDG_CONFIG_HOME": str(tmp_path)}, {"role": "option"})

    assert set(FAMILIES) <= set(facts)
    assert (facts["role"], facts["host"]["info"]["hostname"]) == ("option", "made-up")


def test_changing_values_are_not_lasting_facts() -> None:
    facts = {
        "host": {"info": {"hostname": "a", "uptime": 5, "procs": 9}},
        "memory": {
            "virtual": {"total": 10, "free": 3},
            "swap": {"info": {"total": 1, "used": 1}, "devices": []},
        },
        "partition": {"usage": [{"path": "/", "total": 5, "used": 1}], "partitions": [{"device": "/dev/a"}]},
        "cpu": {"info": [{"cpu": 0, "mhz": 800.0}]},
        "uptime": "mine",
        "memory_note": ["free"],
    }

    assert lasting(facts) == {
        "host": {"info": {"hostname": "a"}},
        "memory": {"virtual": {"total": 10}, "swap": {"info": {"total": 1}, "devices": []}},
        "partition": {"usage": [{"path": "/", "total": 5}], "partitions": [{"device": "/dev/a"}]},
        "cpu": {"info": [{"cpu": 0}]},
        "uptime": "mine",
        "memory_note": ["free"],
    }


def test_lasting_facts_of_this_machine_stay_the_same() -> None:
    assert lasting(gather({}).load()) == lasting(gather({}).load())
