"""The options that divide a run into waves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ccm_agent.clikit.commands import Option
from ccm_agent.clikit.durations import Duration, TimeOption
from ccm_agent.clikit.options import Options
from ccm_agent.model.codec import decode_as
from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.formats.moments import GivenTime
from ccm_agent.model.records.rollout_records import RolloutPlan
from ccm_agent.model.secret import mask_urls
from ccm_ctl.commands.runs.open_rollouts import alongside_option
from ccm_ctl.commands.runs.targets import parse_deadline
from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
from ccm_ctl.fleet.rollout import plan
from ccm_ctl.fleet.rollout.plan import RolloutDefinition, RolloutFile, RolloutOptions

ROLLOUT = "Rollout"
"""The help section of options that make a run a rollout."""

_SIZED = {
    "failed": (
        "--max-failures",
        "Pause when more nodes than this fail, are stopped or superseded. N or P%. [0 in a rollout]",
    ),
    "unreachable": (
        "--max-unreachable",
        "Pause when more nodes than this do not execute the run. N or P%. [no limit]",
    ),
    "lost": ("--max-lost", "Pause when more nodes than this are lost. N or P%. [0 in a rollout]"),
}


class RolloutFlags(Options, frozen=True, kw_only=True):
    """The options of `rollout_options`. Some commands do not have the options of fields with a default."""

    batch: str
    canary: int | None
    bake: int | None
    gate: str
    failed: str
    unreachable: str
    lost: str
    wave_failed: str
    wave_unreachable: str
    wave_lost: str
    splay: int | None
    rollout: str | None
    start_within: int | None = None
    start_at: GivenTime | None = None
    alongside: bool = False
    detach: bool = False

    @property
    def is_rollout(self) -> bool:
        """Whether any option was given that makes a run a rollout."""
        return bool(self.start_at or self.detach) or self.has_waves

    @property
    def has_waves(self) -> bool:
        """Whether waves, gates or limits were given, not only `--at` or `--detach`."""
        return bool(self.rollout) or self._written().is_rollout

    def is_unasked(self, *, yes: bool) -> bool:
        """Whether a rollout starts without a prompt (`yes`) and without `--alongside`."""
        return self.is_rollout and yes and not self.alongside

    def starts(self, now: datetime) -> datetime | None:
        """
        Return the start time; None to start immediately.

        Raises:
            UsageError: The time has passed.
        """
        return parse_deadline(self.start_at, now, "--at") if self.start_at else None

    def make_plan(self, inventory: Inventory, resolved: TargetSet) -> tuple[RolloutPlan, list[str]]:
        """
        Return the waves of a run, and the present nodes sorted by wave.

        Raises:
            UsageError: The options or the file are not valid. Nothing was sent.
        """
        return plan.make_plan(self.definition(), inventory, resolved)

    def definition(self) -> RolloutDefinition:
        """
        Return the definition of the rollout: the content of the rollout file, or the options.

        Raises:
            UsageError: Both a file and other options were given.
            InputError: The file cannot be read.
        """
        written = self._written()
        if not self.rollout:
            return RolloutDefinition(options=written)
        if written.is_rollout:
            raise UsageError("--rollout: the file defines waves and limits; omit the other rollout options")
        return RolloutDefinition(file=_read_file(Path(self.rollout)))

    def _written(self) -> RolloutOptions:
        return RolloutOptions(
            batch=self.batch,
            canary=self.canary or 0,
            bake_s=float(self.bake or 0),
            gate=self.gate,
            failed=self.failed,
            unreachable=self.unreachable,
            lost=self.lost,
            wave_failed=self.wave_failed,
            wave_unreachable=self.wave_unreachable,
            wave_lost=self.wave_lost,
            splay_s=float(self.splay or 0),
        )


def rollout_options(*, can_detach: bool = True, is_scheduled: bool = False) -> list[click.Parameter]:
    """
    Return the options of commands that can start a rollout.

    Args:
        can_detach: Whether a rollout server may drive the rollout.
        is_scheduled: Whether a rollout server starts the rollout at the times of a schedule.
    """

    def option(*names: str, **rest: Any) -> click.Parameter:
        return Option(list(names), section=ROLLOUT, **rest)

    size = {"default": "", "metavar": "SIZE"}
    options = [
        option(
            "--batch",
            default="",
            metavar="SIZE[,SIZE…]",
            help="Run on N nodes or P% of them at a time. Several sizes, such as 1,10%,50%, define waves.",
        ),
        option(
            "--canary", type=click.IntRange(1), metavar="N", help="Run on N nodes first, then on the others."
        ),
        option("--bake", type=Duration(), help="Wait this long after each wave except the last."),
        option(
            "--gate",
            default="",
            metavar="EXPR",
            help="Continue after a wave only if this expression is true, such as 'failed == 0 && health.critical == 0'.",
        ),
        *(option(flag, kind, **size, help=text) for kind, (flag, text) in _SIZED.items()),
        *(
            option(f"{flag}-per-wave", f"wave_{kind}", **size, help="The same limit, for each wave.")
            for kind, (flag, _) in _SIZED.items()
        ),
        option("--splay", type=Duration(), help="Spread the first requests of each wave over this time."),
        option(
            "--rollout",
            type=click.Path(),
            metavar="FILE",
            help="Read waves, gates and limits from a file instead.",
        ),
    ]
    if is_scheduled:
        options.append(
            option(
                "--start-within",
                type=Duration(),
                help="Skip a start if no rollout server has begun it within this time. [1h]",
            )
        )
        return options
    options.append(option("--at", "start_at", type=TimeOption(), help="Do not begin before this time."))
    if can_detach:
        text = "Let a rollout server (ccmctl rollout serve) drive it, and return immediately."
        options += [alongside_option(section=ROLLOUT), option("--detach", is_flag=True, help=text)]
    return options


def refuse_credentials(words: Sequence[str]) -> None:
    """
    Refuse words of a request that must not be stored in a rollout.

    Raises:
        UsageError: A URL in them contains credentials. Every operator can read the stored request, and other drivers send it.
    """
    for word in words:
        if (masked := mask_urls(word)) != word:
            raise UsageError(f"{masked}: a rollout stores its request, so a URL must not contain credentials")


def _read_file(path: Path) -> RolloutFile:
    try:
        return decode_as(path.read_bytes(), RolloutFile, str(path))
    except OSError as err:
        raise InputError(f"{path}: cannot be read: {err.strerror}") from err
