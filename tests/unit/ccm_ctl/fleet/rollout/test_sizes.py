"""Sizes as operators write them."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import UsageError
from ccm_agent.model.records.rollout_records import Size
from ccm_ctl.fleet.rollout.sizes import parse_size, parse_wave_size


@pytest.mark.parametrize(
    ("text", "total", "wave", "budget"),
    [
        pytest.param("10", 100, 10, 10, id="a number"),
        pytest.param("10", 3, 3, 10, id="a wave is not larger than what there is"),
        pytest.param("25%", 10, 3, 2, id="a wave is rounded up, a budget down"),
        pytest.param("1%", 10, 1, 0, id="a wave has at least one node"),
        pytest.param("0.5%", 1000, 5, 5, id="a fraction of a percent"),
        pytest.param("100%", 7, 7, 7, id="all"),
        pytest.param("0%", 7, 1, 0, id="a budget of 0%"),
    ],
)
def test_size_of_a_fleet(text: str, total: int, wave: int, budget: int) -> None:
    size = parse_size(text, "--batch")

    assert (size.of(total), size.limit(total)) == (wave, budget)
    assert parse_size(str(size), "--batch") == size


@pytest.mark.parametrize("text", ["", "-1", "ten", "10 %", "1.5", "101%", "%", "1e3", "9999999999", "٣"])
def test_other_texts_are_refused_and_the_option_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="--max-lost"):
        parse_size(text, "--max-lost")


@pytest.mark.parametrize("text", ["0", "0%"])
def test_a_batch_of_no_nodes_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--batch {text}: no node would ever run; the minimum is 1"):
        parse_wave_size(text, "--batch")


def test_a_size_is_a_number_or_a_percentage() -> None:
    assert (Size(count=3), Size(percent=5.0)) == (parse_size("3", ""), parse_size("5%", ""))
