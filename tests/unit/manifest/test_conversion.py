"""Conversion goes on after a mistake."""

from __future__ import annotations

from msgspec import Struct

from ccm_agent.manifest.conversion import MISTAKES_MAX, convert_all
from ccm_agent.model.codec import convert_as


class Wheel(Struct, forbid_unknown_fields=True):
    size: int = 0


class Car(Struct, forbid_unknown_fields=True):
    name: str
    color: str = ""
    wheels: list[Wheel] = []


def test_every_mistake_is_returned_and_the_rest_is_converted() -> None:
    raw = {
        "name": "x",
        "colour": "red",
        "wheels": [{"sise": 3}, {"size": "big"}, {"size": 4, "spare": True}],
        "y": 1,
    }

    car, mistakes = convert_all(raw, lambda value: convert_as(value, Car))

    assert car == Car("x", "red", [Wheel(3), Wheel(), Wheel(4)])
    assert {(one.path, one.error.message) for one in mistakes} == {
        (("colour",), "unknown key `colour`, did you mean `color`?"),
        (("wheels", 0, "sise"), "unknown key `sise`, did you mean `size`?"),
        (("wheels", 1, "size"), "expected a whole number, got text"),
        (("wheels", 2, "spare"), "unknown key `spare`"),
        (("y",), "unknown key `y`"),
    }
    assert raw["colour"] == "red", "the values given are not changed"


def test_the_missing_part_ends_it() -> None:
    car, mistakes = convert_all({"color": "red"}, lambda value: convert_as(value, Car))

    assert car is None
    assert [one.error.message for one in mistakes] == ["`name` is missing"]


def test_the_number_of_mistakes_is_bounded() -> None:
    raw = {f"k{number}": 1 for number in range(MISTAKES_MAX * 2)}

    car, mistakes = convert_all({"name": "x", **raw}, lambda value: convert_as(value, Car))

    assert (car, len(mistakes)) == (None, MISTAKES_MAX)
