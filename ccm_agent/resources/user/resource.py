"""Decides the steps of a user resource. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccm_agent.model.errors import DesiredStateError
from ccm_agent.model.resource import ABSENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.model.secret import MASK
from ccm_agent.resources.account_files import GROUP, GSHADOW, PASSWD, SHADOW
from ccm_agent.resources.account_names import merge
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.owners import is_same_owner
from ccm_agent.resources.user import passwords
from ccm_agent.resources.user.key_lines import lines_of, merge_lines, shown_lines
from ccm_agent.resources.user.model import UserChange, UserProperties, UserState


def reach(wanted: UserProperties) -> HostAccess:
    """
    Return the host objects that the resource accesses; see `ResourceType`. If `home` is not given, the home directory may be any
    path.
    """
    is_purged = wanted.purge_home and wanted.ensure == ABSENT
    # usermod changes the owner of the files in the home directory to the new ID; `decide` refuses other home directories
    gives_home = wanted.ensure != ABSENT and any(
        value not in (None, "") and field not in wanted.ignore
        for field, value in (("uid", wanted.uid), ("gid", wanted.gid), ("group", wanted.group))
    )
    trees: tuple[str, ...] = (_usual_home(wanted.name),) if gives_home else ()
    paths: tuple[str, ...] = (PASSWD, SHADOW, GROUP, GSHADOW)
    # if `home` is ignored, the user's current home directory is used
    if wanted.home and "home" not in wanted.ignore:
        paths = (*paths, wanted.home)
        trees = (wanted.home,) if is_purged or gives_home else ()
        if wanted.authorized_keys is not None:
            paths = (*paths, f"{wanted.home}/.ssh/authorized_keys")
    elif is_purged or wanted.authorized_keys is not None:
        trees = ("/",)
    return HostAccess(paths=paths, trees=trees)


def _usual_home(name: str) -> str:
    return f"/home/{name}"


def decide(wanted: UserProperties, found: UserState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the user type; see docs/resources/user.md."""
    if why := _why_refused(wanted, found):
        return Decision(error=DesiredStateError(why))
    steps = _Steps(wanted, found)
    if wanted.ensure == ABSENT:
        steps.remove()
    else:
        steps.make()
        steps.set_password()
        steps.set_lock()
        steps.set_groups()
        steps.set_keys()
    return Decision(steps=tuple(steps.steps), reason="; ".join(steps.reasons), changes=tuple(steps.changes))


def _why_refused(wanted: UserProperties, found: UserState) -> str:
    """Return the reason why the user must not be changed; "" if it may be changed."""
    name, metadata, secrets = wanted.name, found.metadata, found.secrets
    if found.ensure == ABSENT:
        return ""
    if metadata.uid == 0:
        if wanted.ensure == ABSENT:
            return f"the user {name} has uid 0, so it is not removed"
        if wanted.uid not in (None, 0):
            return f"the user {name} has uid 0, so it is not given another number"
        if wanted.locked:
            return f"the user {name} has uid 0, so it is not locked; use `password_hash: '*'` to disable password login"
    if wanted.ensure == ABSENT:
        return _why_not_purged(wanted, found) if wanted.purge_home else ""
    is_shadow_needed = wanted.password_hash is not None or wanted.locked is not None or wanted.expires
    if is_shadow_needed and secrets.password is None:
        return f"{SHADOW} has no readable entry for {name}; run it as root, and check the file with `pwck -r`"
    if wanted.authorized_keys is not None and secrets.keys is not None and secrets.keys.error:
        return secrets.keys.error
    return _why_not_renumbered(wanted, found)


def _why_not_renumbered(wanted: UserProperties, found: UserState) -> str:
    """Return the reason why the user's IDs must not be changed: the node's policy has checked a different home directory."""
    home = found.metadata.home
    is_same = wanted.uid in (None, found.metadata.uid) and _has_same_group(wanted, found)
    if is_same or wanted.home or home == _usual_home(wanted.name):
        return ""
    return (
        f"the numbers of the user {wanted.name} are not changed, because its files in {home} would also change owner or group; "
        f"to allow this, set `home: {home}`"
    )


def _has_same_group(wanted: UserProperties, found: UserState) -> bool:
    group = wanted.group if wanted.gid is None else str(wanted.gid)
    return not group or is_same_owner(group, found.metadata.group, found.metadata.gid)


def _why_not_purged(wanted: UserProperties, found: UserState) -> str:
    home, path, others = found.secrets.home, found.metadata.home, found.secrets.home_users
    if home is None or (home.kind == "absent" and not home.link):
        return ""
    if wanted.home not in ("", path):
        # the node's policy has only checked the home directory in `home`
        return f"the home directory {path} is not removed, because `home` names {wanted.home}"
    if others:
        return f"the home directory {path} is not removed, because it contains the home of {', '.join(others[:3])}"
    if home.kind != "directory" or path == "/":
        return f"the home directory {path} is not removed, because it is {home.kind if path != '/' else 'the root directory'}"
    if home.uid != found.metadata.uid:
        return f"the home directory {path} is not removed, because it belongs to {home.owner}"
    return ""


class _Steps:
    """Collects the steps of one decision."""

    def __init__(self, wanted: UserProperties, found: UserState) -> None:
        self.steps: list[Step] = []
        self.reasons: list[str] = []
        self.changes: list[PropertyChange] = []
        self._wanted = wanted
        self._found = found
        self._is_absent = found.ensure == ABSENT

    def remove(self) -> None:
        if self._is_absent:
            return
        name, home = self._wanted.name, self._found.secrets.home
        self._add("Would have removed the user", lambda p: p.remove(name))
        self._change("ensure", self._found.ensure, ABSENT)
        if self._wanted.purge_home and home is not None and home.kind == "directory":
            path = home.path
            self._add("Would have removed the home directory", lambda p: p.remove_home(path))

    def make(self) -> None:
        """Add the steps to create the user, or to change its entry in /etc/passwd and its expiry date."""
        wanted, metadata = self._wanted, self._found.metadata
        if self._is_absent:
            self._add("Would have created the user", lambda p: p.create(wanted))
            self._change("ensure", ABSENT, wanted.ensure)
        group = wanted.group if wanted.gid is None else str(wanted.gid)
        is_same_group = _has_same_group(wanted, self._found)
        expires = wanted.expires if not wanted.locked else ""
        changed = {
            "uid": (
                wanted.uid is not None and wanted.uid != metadata.uid,
                str(metadata.uid),
                str(wanted.uid),
            ),
            "group": (not is_same_group, metadata.group or str(metadata.gid), group),
            "home": (wanted.home not in ("", metadata.home), metadata.home, wanted.home),
            "shell": (wanted.shell not in ("", metadata.shell), metadata.shell, wanted.shell),
            "comment": (
                wanted.comment not in (None, metadata.comment),
                metadata.comment,
                wanted.comment or "",
            ),
            "expires": (expires not in ("", metadata.expires), metadata.expires, expires),
        }
        changed = {name: values for name, values in changed.items() if values[0]}
        for name, (_, before, after) in changed.items():
            self._change(name, "" if self._is_absent else before, after)
        if self._is_absent:
            return
        if changed:
            new = {name: after for name, (_, _, after) in changed.items()}
            change = UserChange(
                uid=wanted.uid if "uid" in new else None,
                group=new.get("group"),
                home=new.get("home"),
                shell=new.get("shell"),
                comment=new.get("comment"),
                expires=new["expires"].replace(passwords.NEVER, "") if "expires" in new else None,
            )
            names = ", ".join(changed)
            self._add(f"Would have changed {names}", lambda p: p.modify(wanted.name, change))
        self._create_home("home" in changed)

    def _create_home(self, is_moved: bool) -> None:
        """
        Add the step to create a missing home directory, but only if the manifest requests it explicitly. System users often have
        no home directory.

        If `home` changes, it is unknown whether the new directory exists. The step does not change an existing directory.
        """
        name, home = self._wanted.name, self._found.secrets.home
        is_missing = is_moved or (home is not None and home.kind == "absent" and not home.link)
        if self._wanted.create_home and is_missing:
            self._add("Would have created the home directory", lambda p: p.create_home(name))
            self.reasons.append("the home directory is missing")

    def set_password(self) -> None:
        wanted, name = self._wanted, self._wanted.name
        found = self._found.secrets.password or ""
        field = wanted.password_hash
        if field is None or (not self._is_absent and passwords.is_same(field, found)):
            return
        is_locked = passwords.locks_of(found) > 0 and wanted.locked is None
        if (is_locked or wanted.locked) and not field.startswith("!"):
            # without this lock, the new hash would unlock the account until the next step
            field = f"!{field}"
        value = field
        self._add("Would have set the password hash", lambda p: p.set_password(name, value))
        self.changes.append(PropertyChange(property="password_hash", before=MASK, after=MASK))
        self.reasons.append("password_hash differs")

    def set_lock(self) -> None:
        wanted, name = self._wanted, self._wanted.name
        field, expires = self._found.secrets.password or "", self._found.metadata.expires
        is_expired = passwords.is_expired_by_lock(expires)
        locks = passwords.locks_of(field)
        if wanted.locked and not (is_expired and field[:1] in ("!", "*")):
            self._add("Would have locked the user", lambda p: p.lock(name))
        elif wanted.locked is False and not self._is_absent and (is_expired or locks):
            clears = is_expired and not wanted.expires
            if wanted.password_hash is not None and not passwords.is_same(wanted.password_hash, field):
                locks = 0  # the new hash has no locks
            self._add("Would have unlocked the user", lambda p: p.unlock(name, locks, is_expired=clears))
        else:
            return
        self._change("locked", str(self._found.metadata.locked).lower(), str(wanted.locked).lower())

    def set_groups(self) -> None:
        wanted, name = self._wanted, self._wanted.name
        if wanted.groups is None:
            return
        found = self._found.metadata.groups
        after = merge(found, wanted.groups, is_exclusive=wanted.groups_exclusive)
        if after == found:
            return
        self._change("groups", ",".join(found), ",".join(after))
        if self._is_absent:
            return  # the user is created with these groups
        missing = [group for group in after if group not in found]
        if wanted.groups_exclusive:
            self._add("Would have set the groups", lambda p: p.set_groups(name, after))
        else:
            self._add("Would have added groups", lambda p: p.add_groups(name, missing))

    def set_keys(self) -> None:
        wanted, name, keys = self._wanted, self._wanted.name, self._found.secrets.keys
        if wanted.authorized_keys is None:
            return
        lines, is_exclusive = wanted.authorized_keys, wanted.authorized_keys_exclusive
        is_moved = wanted.home not in ("", self._found.metadata.home)
        content = None if keys is None or self._is_absent or is_moved else keys.content
        found = lines_of((content or b"").decode(errors="surrogateescape"))
        after = merge_lines(found, lines, is_exclusive=is_exclusive)
        fault = keys.fault if keys is not None and content is not None else ""
        if after == found and not (after and fault) and (after or content is None):
            return
        noop = f"Would have {'set' if is_exclusive else 'added'} the SSH keys"
        if is_exclusive:
            self._add(noop, lambda p: p.set_keys(name, lines))
        else:
            self._add(noop, lambda p: p.add_keys(name, lines))
        if after != found:
            self.changes.append(
                PropertyChange(
                    property="authorized_keys", before=shown_lines(found), after=shown_lines(after)
                )
            )
            self.reasons.append("authorized_keys differ")
        else:
            self._change("authorized_keys", fault or "no keys", "0700 and 0600, owned by the user")

    def _add(self, noop: str, action: Callable[[Any], Any]) -> None:
        self.steps.append(Step(noop=noop, action=action))

    def _change(self, name: str, before: str, after: str) -> None:
        self.changes.append(PropertyChange(property=name, before=before, after=after))
        self.reasons.append(f"{name} mismatch: found {before or 'none'}, wanted {after or 'none'}")
