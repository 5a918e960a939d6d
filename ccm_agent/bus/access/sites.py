"""
Accounts of sites: what crosses the leaf node between the center's broker and the broker of a site.

Each site has an account of its own at the center. In the account of the streams, the site's server could create and delete
consumers of every stream. In its own account it reaches only mirrors of the buckets that it needs, and mirrors are read-only.
Nothing that is delivered to one site is imported by the account of another. See "Sites" in docs/contributing/bus.md.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ccm_agent.bus.access import credentials
from ccm_agent.bus.access.accounts import Account
from ccm_agent.bus.events import EVENTS_STREAM
from ccm_agent.bus.layout import ASSIGNMENTS, DATA, FACTS, MANIFESTS, NODE_DATA, NODES, SECRETS, TRUST
from ccm_agent.model.errors import UsageError
from ccm_agent.model.secret import Secret

CENTER = "center"
"""The JetStream domain of the center's servers."""

MIRRORED = (
    *(f"KV_{bucket}" for bucket in (FACTS, DATA, NODE_DATA, ASSIGNMENTS, SECRETS, TRUST)),
    f"OBJ_{MANIFESTS}",
)
"""The streams that operators write at the center. A site has mirrors of them."""

SOURCED = (EVENTS_STREAM, f"KV_{NODES}")
"""The streams that nodes write at a site. The center has them as sources."""

ASKED = "JS.streams.API"
"""In the account of a site, the prefix of the center's API for mirrors."""

LEAVES = 3
"""
The limit of leaf nodes in the account of a site: one for each of three servers of the center. A server counts a connection until
it detects that it is broken, and refuses a new one at the limit before it replaces the old one. With a limit of 1, a site whose
line was cut without a reset was not back after 8 minutes; with 2 or 3, and one server at the center, after less than a second.
"""

_LETTERS = frozenset(string.ascii_lowercase + string.digits + "-")
_LONGEST = 32
_MARK = "# Sites: "
_CREATE = "API.CONSUMER.CREATE"

_SUBSCRIPTIONS = 1_000
"""The limit of subscriptions of a leaf node. A site needs fewer than 50; each costs the center memory."""

_CONSUMERS = 10
"""
The limit of consumers of each mirror at the center. Without it, the holder of the site's broker could create any number of them.
Consumers of the site's own mirrors are not included, because servers create them as `direct`.
"""


def check_site(name: str) -> str:
    """
    Check the name of a site, and return it. It is part of subjects, of file names, and the domain of the site's servers.

    Raises:
        UsageError: It is not valid.
    """
    if not (0 < len(name) <= _LONGEST and name[0] in string.ascii_lowercase and _LETTERS.issuperset(name)):
        raise UsageError(
            f"{name!r}: not a valid name of a site; use up to {_LONGEST} lowercase letters, digits and `-`, "
            "and begin with a letter"
        )
    if name == CENTER:
        raise UsageError(f"{name}: is the name of the center; a site needs another")
    return name


def up(site: str) -> str:
    """Return the prefix of subjects on which the center receives what the site stored."""
    return f"choria.ccm.up.{site}"


def down(site: str) -> str:
    """Return the prefix of subjects on which the site receives what the center stored."""
    return f"choria.ccm.down.{site}"


def center_configuration(
    text: str, operator: Secret, sites: Mapping[str, Secret], revoked: Mapping[str, int] | None = None
) -> str:
    """
    Return the configuration of the center's servers with an account for each site.

    Args:
        text: The configuration without sites.
        operator: The seed that signs accounts.
        sites: For each site the seed of its account.
        revoked: For sites with revoked credentials, the time up to which credentials of its account are void.
    """
    if not sites:
        return text
    signer = credentials.key_pair(operator)
    streams, token, claims = _streams(text)
    accounts = ""
    offered = _down("")[:-1]
    for name, seed in sorted(sites.items()):
        own = credentials.public_key(seed)
        offered = [*offered, _down(name)[-1]]
        claims["imports"] += _imported(_up(name), own)
        own_limits = {"conn": 10, "leaf": LEAVES, "consumer": _CONSUMERS, "subs": _SUBSCRIPTIONS}
        limits = {**claims["limits"], **own_limits}
        site = {"limits": limits, "exports": _exported(_up(name)), "imports": _imported(_down(name), streams)}
        if until := (revoked or {}).get(name):
            site["revocations"] = {"*": until}
        accounts += f"\n  {own}: {credentials.signed_jwt(signer, own, 'account', f'site-{name}', site)}"
    claims["exports"] += _exported(offered)
    changed = credentials.signed_jwt(signer, streams, "account", Account.CTL.value, claims)
    return f"{sites_mark(list(sites))}\n" + text.replace(token, f"{changed}{accounts}")


def site_configuration(text: str, operator: Secret) -> str:
    """
    Return the accounts of the site's servers. The account of the streams is at this end of the leaf node.

    Args:
        text: The configuration of the center without sites.
        operator: The seed that signs accounts.
    """
    streams, token, claims = _streams(text)
    claims["limits"]["leaf"] = 1
    signer = credentials.key_pair(operator)
    return text.replace(token, credentials.signed_jwt(signer, streams, "account", Account.CTL.value, claims))


def sites_mark(names: Sequence[str]) -> str:
    """Return a comment for the center's configuration, which changes with the sites and with what crosses; "" without sites."""
    if not names:
        return ""
    crossing = msgspec.json.encode([[name, _up(name), _down(name)] for name in sorted(names)])
    return f"{_MARK}{hashlib.sha256(crossing).hexdigest()[:16]}"


def has_mark(text: str, mark: str) -> bool:
    """Whether a configuration was written for the sites of this mark."""
    return next((line for line in text.splitlines() if line.startswith(_MARK)), "") == mark


def streams_account(text: str) -> str:
    """Return the public key of the account of the streams in a configuration."""
    return credentials.account_in_configuration(text, Account.CTL)[0]


def leaf_credentials(account: Secret, site: str, issued: int) -> Secret:
    """
    Return credentials for the leaf node of a site: what its server may send to the center, and receive.

    They are the only ones of the account that do not expire soon. `issued` is in seconds since 1970.

    The API cannot be narrowed to single streams: servers announce their interest in `$JS.center.API.CONSUMER.>` as a whole.
    """
    replies = ("$JSC.R.>", "$JS.FC.>", "_R_.>")
    allowed = {
        "pub": {"allow": [f"$JS.{CENTER}.API.CONSUMER.>", f"{up(site)}.>", *replies]},
        "sub": {"allow": [f"$JS.{site}.API.CONSUMER.>", f"{down(site)}.>", *replies]},
    }
    return _credentials(account, f"site-{site}", "LEAFNODE", allowed, issued)


def mirror_credentials(account: Secret, issued: int, expires: int) -> Secret:
    """Return credentials that create the mirrors in the account of a site. Times are in seconds since 1970."""
    return _credentials(account, "ccmctl-mirrors", "STANDARD", {}, issued, expires)


def _credentials(
    account: Secret, name: str, kind: str, allowed: Mapping[str, Any], issued: int, expires: int | None = None
) -> Secret:
    limits = {"subs": -1, "data": -1, "payload": -1, "allowed_connection_types": [kind]}
    user = credentials.new_user()
    key = credentials.public_key(user)
    signer = credentials.key_pair(account)
    return credentials.credentials_text(
        credentials.signed_jwt(signer, key, "user", name, {**limits, **allowed}, expires, issued), user
    )


def _streams(text: str) -> tuple[str, str, dict[str, Any]]:
    streams = streams_account(text)
    token = credentials.account_tokens(text)[streams]
    return streams, token, credentials.claims_in(token)["nats"]


def _down(site: str) -> list[dict[str, str]]:
    """Return what the account of the streams offers to that of a site; the last one is for this site only."""
    return [
        *(
            _crossing("service", f"$JS.{_CREATE}.{name}", f"{ASKED[:-4]}.{_CREATE}.{name}")
            for name in MIRRORED
        ),
        _crossing("service", f"$JS.FC.{CENTER}.>"),
        _crossing("stream", f"{down(site)}.>"),
    ]


def _up(site: str) -> list[dict[str, str]]:
    """Return what the account of a site offers to that of the streams."""
    return [
        *(_crossing("service", f"$JS.{site}.{_CREATE}.{name}") for name in SOURCED),
        _crossing("service", f"$JS.FC.{site}.>"),
        _crossing("stream", f"{up(site)}.>"),
    ]


def _crossing(kind: str, subject: str, local: str = "") -> dict[str, str]:
    return {"type": kind, "subject": subject, "local_subject": local or subject}


def _exported(crossings: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    return [{"name": one["subject"], "type": one["type"], "subject": one["subject"]} for one in crossings]


def _imported(crossings: Sequence[Mapping[str, str]], account: str) -> list[dict[str, Any]]:
    return [{**one, "name": one["subject"], "account": account} for one in crossings]
