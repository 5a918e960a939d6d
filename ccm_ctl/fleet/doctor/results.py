"""The results of `ccmctl doctor` checks, and the concurrent execution of checks with time limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.messages import ServerInfo
from ccm_agent.bus.connection.settings import BusSettings
from ccm_agent.bus.signatures.trust import Trust
from ccm_agent.model.errors import BusDeniedError, CcmError, NotFoundError
from ccm_agent.model.ports import KeyValue
from ccm_ctl.fleet.keys.keys import Keys
from ccm_ctl.fleet.ports import Fleet

NAMES_SHOWN = 8
"""The maximum number of nodes and operators named in one sentence. `names` of the record has up to NAMES_KEPT."""

NAMES_KEPT = 1_000

DAY_S = 86_400


class CheckState(StrEnum):
    """The result of a check. It is unknown if the check could not be made."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


class CheckResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The result of one check of `ccmctl doctor`: the record `check` of `ccmctl doctor --json`.

    Attributes:
        id: The check: a group, a dot and a name, such as `broker.tls`. It does not change between versions.
        state: The result.
        sentence: The finding. For `unknown`: why the check could not be made, or the missing prerequisite.
        fix: The command that fixes the problem. "": the sentence describes the fix.
        names: The affected nodes or operators, at most 1,000.
        count: The number of affected nodes or operators.
    """

    id: str
    state: CheckState
    sentence: str
    fix: str = ""
    names: Annotated[tuple[str, ...], Meta(max_length=NAMES_KEPT)] = ()
    count: int = 0


class DoctorContext(Struct, frozen=True, kw_only=True):
    """
    The inputs of the checks.

    Attributes:
        settings: The broker settings of the operator.
        keys: The folder with the fleet's keys, which may not exist.
        keys_option: The command-line option for this folder, with a leading space. "": the default folder.
        now: The time on this host.
        fleet, connection, server: The broker. None: there is no connection.
        trust_bucket: CCM_TRUST. None: there is no connection.
        trust: The trust block of the operator's credentials.
        version: The version of this program.
    """

    settings: BusSettings
    keys: Keys
    keys_option: str
    now: datetime
    fleet: Fleet | None = None
    connection: Connection | None = None
    server: ServerInfo | None = None
    trust_bucket: KeyValue | None = None
    trust: Trust | None = None
    version: str = ""

    @property
    def now_ms(self) -> int:
        """The time on this host in milliseconds since 1970."""
        return int(self.now.timestamp() * 1000)

    @property
    def is_secured(self) -> bool:
        """Whether the broker requires credentials."""
        return self.server is not None and self.server.asks_credentials

    def fleet_keys(self) -> Keys:
        """
        Return the folder with the keys of this fleet. Blocking.

        Raises:
            MissingError: The folder does not exist, or its keys belong to another fleet.
        """
        if not self.keys.exist():
            raise MissingError(
                f"this check needs the fleet's keys, and {self.keys.folder} contains none; name their folder with --keys"
            )
        signers = self.keys.signers
        if self.trust is not None and signers.exist() and signers.trust().root != self.trust.root:
            raise MissingError(
                f"the keys in {self.keys.folder} belong to another fleet than your credentials; "
                "name the right folder with --keys"
            )
        return self.keys


class MissingError(NotFoundError):
    """A check is not possible because a required resource is not available."""


class Check(Struct, frozen=True, kw_only=True):
    """
    A check, which returns one or more results.

    Attributes:
        ids: The results that become `unknown` if the check is not possible.
        look: Runs the check. Results that do not apply are left out.
        limit_s: The time limit.
        needs_broker: Whether the check requires a connection.
    """

    ids: tuple[str, ...]
    look: Callable[[DoctorContext], Awaitable[Sequence[CheckResult]]]
    limit_s: float = 15.0
    needs_broker: bool = True


async def run_checks(
    checks: Sequence[Check],
    context: DoctorContext,
    on_progress: Callable[[int, Sequence[str]], None] = lambda done, pending: None,
) -> list[CheckResult]:
    """
    Run the checks, and return all results in the order of the checks.

    A check that fails or exceeds its limit returns `unknown`. The other checks continue.

    Args:
        checks: The checks.
        context: Their inputs.
        on_progress: Called with the number of finished checks and the IDs of the others.
    """
    found: dict[int, Sequence[CheckResult]] = {}

    async def run_one(place: int, check: Check) -> None:
        found[place] = await _run(check, context)
        pending = [other.ids[0] for at, other in enumerate(checks) if at not in found]
        on_progress(len(found), pending)

    async with asyncio.TaskGroup() as group:
        for place, check in enumerate(checks):
            group.create_task(run_one(place, check), name=f"doctor:{check.ids[0]}")
    return [result for place in range(len(checks)) for result in found[place]]


async def _run(check: Check, context: DoctorContext) -> Sequence[CheckResult]:
    if check.needs_broker and context.fleet is None:
        return _unknown(check, "there is no connection to the broker")
    try:
        async with asyncio.timeout(check.limit_s):
            return await check.look(context)
    except TimeoutError:
        return _unknown(check, f"no answer within {check.limit_s:g}s")
    except BusDeniedError:
        return _unknown(check, "the broker does not allow this request with these credentials")
    except CcmError as err:
        return _unknown(check, err.message)


def _unknown(check: Check, why: str) -> list[CheckResult]:
    return [CheckResult(id=id_, state=CheckState.UNKNOWN, sentence=why) for id_ in check.ids]


def ok(id_: str, sentence: str) -> CheckResult:
    """Return a result for a passed check."""
    return CheckResult(id=id_, state=CheckState.OK, sentence=sentence)


def warning(id_: str, sentence: str, fix: str = "", names: Sequence[str] = ()) -> CheckResult:
    """Return a result for a condition that an operator should change."""
    return _named(id_, CheckState.WARNING, sentence, fix, names)


def problem(id_: str, sentence: str, fix: str = "", names: Sequence[str] = ()) -> CheckResult:
    """Return a result for a condition that is not secure or does not work."""
    return _named(id_, CheckState.PROBLEM, sentence, fix, names)


def unknown(id_: str, sentence: str) -> CheckResult:
    """Return a result for a check that was not possible."""
    return CheckResult(id=id_, state=CheckState.UNKNOWN, sentence=sentence)


def _named(id_: str, state: CheckState, sentence: str, fix: str, names: Sequence[str]) -> CheckResult:
    kept = tuple(names[:NAMES_KEPT])
    return CheckResult(id=id_, state=state, sentence=sentence, fix=fix, names=kept, count=len(names))


def listed(names: Sequence[str]) -> str:
    """Format names, such as `web1, web2 and 3 more`."""
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"{shown} and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else shown


def days_until(moment: datetime, now: datetime) -> int:
    """Return the number of whole days, which is negative after the time has passed."""
    return int((moment - now).total_seconds() // DAY_S)


def read_mode(path: Path) -> int:
    """Return the permission bits of a file or folder. Blocking. Raises OSError if they cannot be read."""
    return path.stat().st_mode & 0o777
