"""A round, drawn from a seed: what is started, what dies meanwhile, and how it is brought to its end."""

from __future__ import annotations

import random
from dataclasses import dataclass

NODES = ("n1", "n2", "n3", "n4", "n5", "n6")
OPERATORS = ("tester", "ann")
KINDS = ("apply", "apply", "exec", "assign", "detached")
WORK_S = 0.3
"""How long a node works on its part."""


@dataclass(frozen=True)
class Fault:
    """
    Something that happens during a round.

    Attributes:
        after_s: How long after the start, in seconds.
        what: `agent`, `driver`, `broker` (killed with signal 9), `pause`, `promote`, `resume` or `abort` (an order).
        who: The node that is killed, or the operator who gives the order.
        back_s: How long an agent or the broker is away, in seconds.
    """

    after_s: float
    what: str
    who: str = ""
    back_s: float = 0.0


@dataclass(frozen=True)
class Round:
    """
    One round.

    Attributes:
        seed: What it was drawn from.
        kind: One of KINDS.
        operator: Who starts it.
        nodes: The targets.
        failing: Those of them on which the manifest fails.
        options: Waves and limits on the command line.
        limit: How many nodes may fail before the rollout pauses; None: any number.
        faults: In the order in which they happen.
        end: How an open rollout is brought to its end: `resume`, `promote` (past a gate that is never true) or `abort`.
        after: What follows an end: `undo` or "".
        undo_faults: What happens during the undo.
        is_gated: The gate after the canary is never true.
    """

    seed: int
    kind: str
    operator: str
    nodes: tuple[str, ...]
    failing: frozenset[str]
    options: tuple[str, ...]
    limit: int | None
    faults: tuple[Fault, ...]
    end: str
    after: str
    undo_faults: tuple[Fault, ...] = ()
    is_gated: bool = False

    @property
    def orders(self) -> bool:
        """Operators give orders that let a paused rollout go on."""
        return self.end != "abort" or any(fault.what in ("resume", "promote") for fault in self.faults)


def draw_round(seed: int) -> Round:
    """The round of a seed."""
    source = random.Random(seed)
    kind = source.choice(KINDS)
    nodes = tuple(sorted(source.sample(NODES, source.randint(3, len(NODES)))))
    is_failing = kind != "exec" and source.random() < 0.4
    failing = frozenset(source.sample(nodes, source.randint(1, 2))) if is_failing else frozenset()
    options = ["--batch", source.choice(("1", "2", "50%"))]
    if source.random() < 0.3:
        options += ["--canary", "1"]
    limit: int | None = 0
    if source.random() < 0.4:
        limit = source.choice((1, None))
        options += ["--max-failures", "100%" if limit is None else str(limit)]
    end = source.choice(("resume", "abort"))
    is_gated = "--canary" in options and source.random() < 0.5
    if is_gated:
        options += ["--gate", "failed > 99"]
        end = source.choice(("promote", "abort"))
    faults = [_draw_fault(source, nodes) for _ in range(source.choice((0, 1, 1, 2, 3)))]
    after = "undo" if kind == "apply" and not failing and source.random() < 0.7 else ""
    breaks_undo = bool(after) and source.random() < 0.5
    return Round(
        seed=seed,
        kind=kind,
        operator=source.choice(OPERATORS),
        nodes=nodes,
        failing=failing,
        options=tuple(options),
        limit=limit,
        faults=tuple(sorted(faults, key=lambda fault: fault.after_s)),
        end=end,
        after=after,
        undo_faults=(_draw_undo_fault(source, nodes),) if breaks_undo else (),
        is_gated=is_gated,
    )


def _draw_fault(source: random.Random, nodes: tuple[str, ...]) -> Fault:
    what = source.choice(("agent", "agent", "driver", "broker", "pause", "promote", "abort"))
    after_s = round(source.uniform(0.2, 2.5), 2)
    back_s = round(source.uniform(0.0, 2.0), 2)
    who = source.choice(nodes if what == "agent" else OPERATORS)
    return Fault(after_s=after_s, what=what, who=who, back_s=back_s)


def _draw_undo_fault(source: random.Random, nodes: tuple[str, ...]) -> Fault:
    what = source.choice(("agent", "agent", "driver", "broker"))
    return Fault(
        after_s=round(source.uniform(0.0, 0.5), 2),
        what=what,
        who=source.choice(nodes),
        back_s=round(source.uniform(0.0, 2.0), 2),
    )
