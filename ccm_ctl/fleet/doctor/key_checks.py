"""Checks of `ccmctl doctor` on this host: the operator's credentials, and the folder with the fleet's keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

from ccm_agent.bus.access.credentials import expiry_in_credentials
from ccm_agent.bus.signatures.trust import trust_in_credentials
from ccm_ctl.fleet.doctor.renewal import find_signer_entry, renew_command
from ccm_ctl.fleet.doctor.results import (
    Check,
    CheckResult,
    DoctorContext,
    MissingError,
    days_until,
    listed,
    ok,
    problem,
    read_mode,
    warning,
)

EXPIRY_DAYS = 14
"""Credentials that expire in fewer days cause a warning."""

_OTHERS = 0o077
_OTHERS_WRITE = 0o022
_CREDS_LIMIT_BYTES = 1 << 20


def look_at_credentials(context: DoctorContext) -> Sequence[CheckResult]:
    """Check the credentials file. Blocking."""
    settings = context.settings
    path = Path(settings.creds or settings.nkey)
    if not (settings.creds or settings.nkey):
        return []
    try:
        mode = read_mode(path)
        with path.open("rb") as file:
            text = file.read(_CREDS_LIMIT_BYTES).decode("utf-8", "replace")
    except OSError as err:
        raise MissingError(f"{path}: cannot be read: {err.strerror}") from err
    results = [_mode(path, mode)]
    if settings.creds:
        results += [_expiry(text, context), _trust(text, path, context)]
    return results


def _mode(path: Path, mode: int) -> CheckResult:
    if not mode & _OTHERS:
        return ok("credentials.file", f"Only you can read {path}.")
    sentence = f"Other users of this host can read your credentials ({path}, mode {mode:04o})."
    return problem("credentials.file", sentence, f"chmod 600 {quote(str(path))}")


def _expiry(text: str, context: DoctorContext) -> CheckResult:
    expires = expiry_in_credentials(text)
    if not expires:
        return ok("credentials.expiry", "Your credentials do not expire.")
    ends = datetime.fromtimestamp(expires, UTC)
    days, fix = days_until(ends, context.now), _renewal(context)
    if days < 0:
        return problem("credentials.expiry", f"Your credentials expired on {ends:%Y-%m-%d}.", fix)
    sentence = f"Your credentials expire on {ends:%Y-%m-%d}, in {days}d."
    return (
        ok("credentials.expiry", sentence)
        if days >= EXPIRY_DAYS
        else warning("credentials.expiry", sentence, fix)
    )


def _trust(text: str, path: Path, context: DoctorContext) -> CheckResult:
    if trust_in_credentials(text, str(path)) is not None:
        return ok("credentials.trust", "Your credentials contain the fleet's root key.")
    sentence = "Your credentials contain no root key: events from nodes cannot be verified."
    return problem("credentials.trust", sentence, _renewal(context))


def _renewal(context: DoctorContext) -> str:
    """Return the command that makes new credentials. Without an entry in the signers list, the command contains no role."""
    signatory = context.fleet.signatory if context.fleet is not None else None
    entry = find_signer_entry(signatory.public_key, context.trust) if signatory is not None else None
    if entry is not None:
        return renew_command(entry, context.keys_option)
    name = quote(context.settings.identity)
    return f"ccmctl operator add {name} --apply SCOPE{context.keys_option} > {name}.creds"


def look_at_keys(context: DoctorContext) -> Sequence[CheckResult]:
    """Check the folder with the fleet's keys. Returns nothing if there is no folder. Blocking."""
    keys = context.keys
    if not keys.exist():
        return []
    try:
        mode = read_mode(keys.folder)
        seeds = sorted(keys.folder.glob("*.seed")) + sorted(keys.folder.glob("*.key"))
        open_seeds = [path for path in seeds if read_mode(path) & _OTHERS]
    except OSError as err:
        raise MissingError(f"{err.filename}: cannot be read: {err.strerror}") from err
    return [_folder(keys.folder, mode), _seeds(open_seeds), _root(context)]


def _folder(folder: Path, mode: int) -> CheckResult:
    if not mode & _OTHERS:
        return ok("keys.folder", f"Only you can open {folder}.")
    fix = f"chmod 700 {quote(str(folder))}"
    if mode & _OTHERS_WRITE:
        return problem(
            "keys.folder", f"Other users can replace the fleet's keys ({folder}, mode {mode:04o}).", fix
        )
    return warning("keys.folder", f"Other users can list the fleet's keys ({folder}, mode {mode:04o}).", fix)


def _seeds(readable: Sequence[Path]) -> CheckResult:
    if not readable:
        return ok("keys.seeds", "Only you can read the fleet's secret keys.")
    names = [path.name for path in readable]
    fix = f"chmod 600 {' '.join(quote(str(path)) for path in readable)}"
    return problem("keys.seeds", f"Other users of this host can read {listed(names)}.", fix, names)


def _root(context: DoctorContext) -> CheckResult:
    path = context.keys.folder / "root.seed"
    if not path.exists():
        return ok("keys.root", "The root key is not stored with the other keys.")
    sentence = (
        "The root key is in the same folder as the daily keys. Keep it offline, "
        "and copy it back only for `operator add`, `operator revoke` and `node add`."
    )
    return warning("keys.root", sentence, f"mv {quote(str(path))} /PATH/TO/OFFLINE/MEDIA/")


def _in_thread(look: Callable[[DoctorContext], Sequence[CheckResult]], *ids: str) -> Check:
    async def ask(context: DoctorContext) -> Sequence[CheckResult]:
        return await asyncio.to_thread(look, context)

    return Check(ids=ids, look=ask, needs_broker=False)


def key_checks() -> list[Check]:
    """Return the checks that do not need the broker."""
    return [
        _in_thread(look_at_credentials, "credentials.file", "credentials.expiry", "credentials.trust"),
        _in_thread(look_at_keys, "keys.folder", "keys.seeds", "keys.root"),
    ]
