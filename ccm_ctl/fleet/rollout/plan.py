"""
The plan of a rollout: the nodes of each wave, the number of nodes at the same time, and the limits that stop it.

A plan is made once from the frozen list of targets, and does not change afterwards. Offline nodes are not in any wave. A node
that comes back before the rollout ends joins the wave that is then in progress.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.model.errors import UsageError
from ccm_agent.model.formats.durations import format_duration, parse_duration
from ccm_agent.model.records.rollout_records import CAREFUL, Budgets, RolloutPlan, Size, Wave
from ccm_agent.templates.selector import parse_selector
from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
from ccm_ctl.fleet.rollout.gate import check_gate
from ccm_ctl.fleet.rollout.sizes import parse_size, parse_wave_size

WAVES_LIMIT = 100
"""The maximum number of waves. All are stored in one document, and an operator could not follow more."""


_NAMED_WAVES = 5
"""The maximum number of waves of a file that are named in one line."""


class RolloutOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The rollout options of the command line. All are optional.

    Attributes:
        batch: `10`, `25%`, or a list of waves such as `1,10%,50%`. The last size of a list repeats.
        canary: The number of nodes that run first, before all others.
        bake_s: The wait after each wave except the last, in seconds.
        gate: A condition that must be true after each wave.
        failed, unreachable, lost: Budgets of the whole rollout, as written. "": the default.
        wave_failed, wave_unreachable, wave_lost: Budgets of each wave.
        splay_s: The time over which the first requests of each wave are spread.
    """

    batch: str = ""
    canary: int = 0
    bake_s: float = 0.0
    gate: str = ""
    failed: str = ""
    unreachable: str = ""
    lost: str = ""
    wave_failed: str = ""
    wave_unreachable: str = ""
    wave_lost: str = ""
    splay_s: float = 0.0

    @property
    def is_rollout(self) -> bool:
        """Whether at least one of the options was given."""
        return self != RolloutOptions()

    def __str__(self) -> str:
        """Return the options in the form in which they are written on a command line."""
        words = {
            "--canary": str(self.canary or ""),
            "--bake": format_duration(self.bake_s) if self.bake_s else "",
            "--batch": self.batch,
            "--max-failures": self.failed,
            "--max-unreachable": self.unreachable,
            "--max-lost": self.lost,
            "--max-failures-per-wave": self.wave_failed,
            "--max-unreachable-per-wave": self.wave_unreachable,
            "--max-lost-per-wave": self.wave_lost,
            "--gate": self.gate,
            "--splay": format_duration(self.splay_s) if self.splay_s else "",
        }
        return " ".join(f"{option} {shlex.quote(value)}" for option, value in words.items() if value)


def plan_from_options(options: RolloutOptions, total: int) -> RolloutPlan:
    """
    Divide `total` nodes into waves.

    Raises:
        UsageError: A size is malformed, a wave would be empty, or a budget could never be exceeded.
    """
    if total < 1:
        raise UsageError("a rollout needs at least one node that is present")
    budgets = _budgets(options.failed, options.unreachable, options.lost, "")
    budgets = Budgets(
        failed=budgets.failed or CAREFUL.failed,
        unreachable=budgets.unreachable,
        lost=budgets.lost or CAREFUL.lost,
    )
    check_budgets(budgets, total, "the rollout")
    wave_budgets = _budgets(options.wave_failed, options.wave_unreachable, options.wave_lost, "-per-wave")
    sizes, canaries = _sizes(options, total)
    waves = []
    for index, (nodes, slots) in enumerate(sizes):
        is_last = index == len(sizes) - 1
        name = "canary" if index < canaries else f"wave {index - canaries + 1}"
        check_budgets(wave_budgets, max(count for count, _ in sizes), "the largest wave", "-per-wave")
        waves.append(
            Wave(
                name=name,
                nodes=nodes,
                slots=slots,
                bake_s=0.0 if is_last else options.bake_s,
                gate=options.gate,
                budgets=wave_budgets,
            )
        )
    if options.bake_s and len(waves) == 1:
        raise UsageError("--bake: there is only one wave; add --canary, or --batch with several sizes")
    return RolloutPlan(waves=tuple(waves), budgets=budgets, splay_s=options.splay_s)


def check_budgets(budgets: Budgets, total: int, whose: str, suffix: str = "") -> None:
    """
    Refuse a budget that could never stop the rollout, except 100%, which means no limit.

    Raises:
        UsageError: A budget could never stop it. The message names the option.
    """
    for kind, size in budgets.items():
        if size.count is not None and size.count >= total:
            option = {"failed": "--max-failures", "unreachable": "--max-unreachable", "lost": "--max-lost"}[
                kind
            ]
            raise UsageError(
                f"{option}{suffix} {size}: {whose} has {total} {'node' if total == 1 else 'nodes'}, so this could "
                f"never stop it; write a smaller number, or 100% for no limit"
            )


def _budgets(failed: str, unreachable: str, lost: str, suffix: str) -> Budgets:
    def read(text: str, option: str) -> Size | None:
        return parse_size(text, f"{option}{suffix}") if text else None

    return Budgets(
        failed=read(failed, "--max-failures"),
        unreachable=read(unreachable, "--max-unreachable"),
        lost=read(lost, "--max-lost"),
    )


def _sizes(options: RolloutOptions, total: int) -> tuple[list[tuple[int, int]], int]:
    """Return the nodes and slots of each wave, and the number of canary waves."""
    sizes: list[tuple[int, int]] = []
    rest = total
    if options.canary:
        if options.canary >= total:
            raise UsageError(
                f"--canary {options.canary}: the rollout has {total} {'node' if total == 1 else 'nodes'}, "
                f"so nothing would be left for the next wave"
            )
        sizes.append((options.canary, options.canary))
        rest -= options.canary
    written = [parse_wave_size(part, "--batch") for part in options.batch.split(",")] if options.batch else []
    if len(written) <= 1:
        slots = written[0].of(total) if written else rest
        sizes.append((rest, min(slots, rest)))
        return sizes, len(sizes) - 1
    canaries = len(sizes)
    while rest:
        size = written.pop(0) if len(written) > 1 else written[0]
        nodes = min(size.of(total), rest)
        sizes.append((nodes, nodes))
        rest -= nodes
        if len(sizes) > WAVES_LIMIT:
            raise UsageError(
                f"--batch {options.batch}: makes more than {WAVES_LIMIT} waves; write a larger last size, "
                f"or a single size, which makes no waves"
            )
    return sizes, canaries


class WaveSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    One wave in a rollout file.

    Attributes:
        name: The name of the wave.
        selector: Selects among the command's target nodes. Without a selector, the wave gets all nodes that are in no other
            wave.
        size: The maximum number of selected nodes. The rest join the wave without a selector.
        batch: The number of nodes that run at the same time.
        bake: The wait after the wave, such as 10m.
        gate: A condition that must be true after the wave.
        max_failures, max_unreachable, max_lost: Budgets of this wave.
    """

    name: str = ""
    selector: str = ""
    size: int | str = ""
    batch: int | str = ""
    bake: str = ""
    gate: str = ""
    max_failures: int | str = ""
    max_unreachable: int | str = ""
    max_lost: int | str = ""


class RolloutFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    A rollout file.

    Attributes:
        waves: The waves, in order.
        max_failures, max_unreachable, max_lost: Budgets of the whole rollout.
        splay: The time over which the first requests of each wave are spread.
    """

    waves: list[WaveSpec]
    max_failures: int | str = ""
    max_unreachable: int | str = ""
    max_lost: int | str = ""
    splay: str = ""


def plan_from_file(
    file: RolloutFile, nodes: Sequence[str], matches: Callable[[str, str], bool]
) -> tuple[RolloutPlan, list[str]]:
    """
    Divide nodes into the waves of a file.

    Args:
        file: The rollout file.
        nodes: The nodes that are present, in order.
        matches: Returns whether a selector (first argument) matches a node (second).

    Returns:
        The plan, and the nodes in the order of the waves.

    Raises:
        UsageError: A wave is empty, two waves have a node in common, or a node is in no wave.
    """
    if not 1 <= len(file.waves) <= WAVES_LIMIT:
        raise UsageError(f"a rollout has 1 to {WAVES_LIMIT} waves, not {len(file.waves)}")
    chosen = _choose(file.waves, nodes, matches)
    total = len(nodes)
    budgets = _budgets(str(file.max_failures), str(file.max_unreachable), str(file.max_lost), "")
    check_budgets(budgets, total, "the rollout")
    waves = []
    for spec, name, mine in chosen:
        wave_budgets = _budgets(
            str(spec.max_failures), str(spec.max_unreachable), str(spec.max_lost), f" of {name}"
        )
        check_budgets(wave_budgets, len(mine), name, f" of {name}")
        batch = str(spec.batch)
        slots = parse_wave_size(batch, f"batch of {name}").of(len(mine)) if batch else len(mine)
        bake_s = parse_duration(spec.bake) if spec.bake else 0.0
        if bake_s < 0:
            raise UsageError(f"bake of {name}: {spec.bake} is negative")
        waves.append(
            Wave(name=name, nodes=len(mine), slots=slots, bake_s=bake_s, gate=spec.gate, budgets=wave_budgets)
        )
    plan = RolloutPlan(
        waves=tuple(waves),
        budgets=Budgets(
            failed=budgets.failed or CAREFUL.failed,
            unreachable=budgets.unreachable,
            lost=budgets.lost or CAREFUL.lost,
        ),
        splay_s=parse_duration(file.splay) if file.splay else 0.0,
    )
    return plan, [node for _, _, mine in chosen for node in mine]


class RolloutDefinition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    How to divide nodes into waves, before the nodes are known: command-line options, or a rollout file.

    Attributes:
        options: The options, if there is no file.
        file: The file. None: the options apply.
    """

    options: RolloutOptions = RolloutOptions()
    file: RolloutFile | None = None

    def __str__(self) -> str:
        """Return the options as written on a command line, or the waves of the file. The text is the author's own: escape it."""
        if self.file is None:
            return str(self.options)
        waves = self.file.waves
        names = ", ".join(wave.name or f"wave {place + 1}" for place, wave in enumerate(waves[:_NAMED_WAVES]))
        more = f" and {len(waves) - _NAMED_WAVES} more" if len(waves) > _NAMED_WAVES else ""
        return f"{len(waves)} {'wave' if len(waves) == 1 else 'waves'} of a file: {names}{more}"


def make_plan(
    definition: RolloutDefinition, inventory: Inventory, resolved: TargetSet
) -> tuple[RolloutPlan, list[str]]:
    """
    Return the waves of a run, and the present nodes in the order of the waves.

    Raises:
        UsageError: The definition cannot be applied to these nodes.
    """
    order = resolved.present
    if not order:
        raise UsageError("all nodes are offline; a rollout needs at least one node that is present")

    def matches(selector: str, name: str) -> bool:
        node = inventory.nodes[name]
        return parse_selector(selector).matches(node.name, node.facts)

    if definition.file is not None:
        plan, order = plan_from_file(definition.file, order, matches)
    else:
        plan = plan_from_options(definition.options, len(order))
    for wave in plan.waves:
        if wave.gate:
            check_gate(wave.gate)
    return plan, order


def plan_again(
    plan: RolloutPlan, order: Sequence[str], nodes: Sequence[str]
) -> tuple[RolloutPlan, list[str]]:
    """
    Return the waves of an earlier plan with the remaining nodes, and these nodes in the order of the waves.

    Args:
        plan: The plan of the rollout that is repeated.
        order: The nodes of that rollout, wave after wave.
        nodes: The remaining nodes that are present. Nodes that were in no wave join the last one.

    Raises:
        UsageError: No nodes remain.
    """
    waves, again, begin = [], [], 0
    for index, wave in enumerate(plan.waves):
        of_wave = set(order[begin : begin + wave.nodes])
        begin += wave.nodes
        if index == len(plan.waves) - 1:
            of_wave |= set(nodes) - set(order[: plan.total])
        mine = [node for node in nodes if node in of_wave]
        if mine:
            waves.append(replace(wave, nodes=len(mine), slots=min(wave.slots, len(mine))))
            again += mine
    if not waves:
        raise UsageError("all nodes are offline; a rollout needs at least one node that is present")
    waves[-1] = replace(waves[-1], bake_s=0.0)
    return replace(plan, waves=tuple(waves)), again


def _choose(
    specs: Sequence[WaveSpec], nodes: Sequence[str], matches: Callable[[str, str], bool]
) -> list[tuple[WaveSpec, str, list[str]]]:
    """Return the nodes of each wave. Waves with a selector are first."""
    named = [(spec, spec.name or f"wave {index + 1}") for index, spec in enumerate(specs)]
    names = [name for _, name in named]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two waves are named {name}")
    rests = [name for spec, name in named if not spec.selector]
    if len([spec for spec, _ in named if not spec.selector and not spec.size]) > 1:
        raise UsageError(f"{rests[0]} and {rests[1]}: only one wave may take all remaining nodes")
    owner: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    # waves without a selector get the remaining nodes, so the other waves choose first
    for spec, name in sorted(named, key=lambda one: (not one[0].selector, not one[0].size)):
        mine = [
            node for node in nodes if (matches(spec.selector, node) if spec.selector else node not in owner)
        ]
        for node in mine:
            if node in owner and not (spec.size or _is_part(named, owner[node])):
                raise UsageError(f"{owner[node]} and {name} overlap: both match {node}")
        mine = [node for node in mine if node not in owner]
        if spec.size:
            mine = mine[: parse_wave_size(str(spec.size), f"size of {name}").of(len(mine))]
        if not mine:
            raise UsageError(f"{name}: no node that is present is in this wave")
        owner |= dict.fromkeys(mine, name)
        found[name] = mine
    if left := [node for node in nodes if node not in owner]:
        raise UsageError(
            f"{left[0]}{f' and {len(left) - 1} more' if len(left) > 1 else ''}: in no wave; "
            f"add a wave without a selector for the remaining nodes"
        )
    return [(spec, name, found[name]) for spec, name in named]


def _is_part(named: Sequence[tuple[WaveSpec, str]], name: str) -> bool:
    """Whether a wave has only some of the nodes that its selector matches."""
    return any(bool(spec.size) for spec, each in named if each == name)
