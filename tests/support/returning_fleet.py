"""A model of agents that return to a restarted broker, without a clock."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field

from ccm_agent.bus.connection.server_rotation import ServerRotation
from ccm_agent.bus.connection.settings import BusSettings
from ccm_agent.model.errors import BusUnavailableError


class HighestNumbers(random.Random):
    """A generator whose numbers are the highest possible, so that the limits of random numbers show."""

    def uniform(self, a: float, b: float) -> float:
        """The end of the range."""
        return max(a, b)


@dataclass
class ReturningFleet:
    """
    How a fleet returned.

    Attributes:
        agents: How many there are.
        back_at_s: When each connected agent was accepted, in seconds since the loss, in order.
        attempts: Attempts of all agents in each second.
    """

    agents: int
    back_at_s: list[float] = field(default_factory=list)
    attempts: Counter[int] = field(default_factory=Counter)

    @property
    def is_complete(self) -> bool:
        """Every agent is back."""
        return len(self.back_at_s) == self.agents

    @property
    def attempts_each(self) -> float:
        """Attempts of an agent, on average."""
        return self.attempts.total() / self.agents


def simulated_return(
    settings: BusSettings, agents: int, logins_per_s: float, *, down_s: float, end_s: float, seed: int = 1
) -> ReturningFleet:
    """
    Agents that lose their broker at second 0 and connect again, each paced by a `ServerRotation`.

    Until `down_s` connections are refused at once. Then the broker completes logins one after the other, in the order of arrival.
    A login that its agent no longer waits for takes the broker as long as any other.

    Args:
        settings: Of each agent.
        agents: How many.
        logins_per_s: How many the broker completes.
        down_s: How long it is away.
        end_s: When the simulation ends.
        seed: Of the random pauses.
    """
    generator = random.Random(seed)
    found, free_at_s = ReturningFleet(agents), down_s
    rotations = [ServerRotation(settings, generator) for _ in range(agents)]
    waiting = [(rotation.pause_s(), agent) for agent, rotation in enumerate(rotations)]
    heapq.heapify(waiting)
    while waiting and waiting[0][0] < end_s:
        at_s, agent = heapq.heappop(waiting)
        rotation = rotations[agent]
        found.attempts[int(at_s)] += 1
        gives_up_s = at_s
        if at_s >= down_s:
            free_at_s = max(free_at_s, at_s) + 1 / logins_per_s
            gives_up_s = at_s + rotation.limit_s()
            if free_at_s <= gives_up_s:
                found.back_at_s.append(free_at_s)
                continue
        rotation.missed(BusUnavailableError("no answer"), gives_up_s - at_s)
        heapq.heappush(waiting, (gives_up_s + rotation.pause_s(), agent))
    return found
