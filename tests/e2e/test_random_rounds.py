"""A sample of random rollouts with random faults; `python -m tests.random_rounds` plays more of them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest

from tests.random_rounds.judge import find_violations
from tests.random_rounds.plan import draw_round
from tests.random_rounds.play import Ground, ground

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ROUNDS = 5
SEED = int(os.environ.get("ROUNDS_SEED") or secrets.randbelow(1_000_000))


@pytest.fixture(scope="module")
def played_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("rounds")) as made:
        yield made


def test_every_reader_reports_what_happened_in_random_rollouts(played_on: Ground) -> None:
    for seed in range(SEED, SEED + ROUNDS):
        problems = find_violations(played_on, played_on.play(draw_round(seed)))
        assert problems == [], f"python -m tests.random_rounds --rounds {seed - SEED + 1} --seed {SEED}"
