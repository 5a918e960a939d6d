"""
The sites of a fleet in the folder with the keys, and the files for the brokers of the sites.

    site-NAME.seed              the account of the site at the center; secret, and never at the site
    site-NAME.revoked           the time up to which credentials of that account are void, if some were revoked
    site-NAME/                  what is copied to the site's broker
        site.conf               its configuration, except for addresses and TLS of its own
        nats-security.conf      the accounts; not secret
        leaf.creds              the credentials of its leaf node; secret
        ca.pem                  the authority of the center's certificates, if the folder has one
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from ccm_agent.bus.access.credentials import account_tokens, claims_in, new_account
from ccm_agent.bus.access.sites import (
    center_configuration,
    check_site,
    leaf_credentials,
    site_configuration,
    streams_account,
)
from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.secret import Secret
from ccm_ctl.fleet.whole_file import PUBLIC, create_file, write_whole

SITE_PREFIX = "site-"
LEAF_PORT = 7422
AT_THE_SITE = "/etc/nats"
"""Where the site's broker has its files."""

_LEAF_CREDENTIALS = "leaf.creds"
_SITE_CONF = "site.conf"
_SCHEMES = ("nats-leaf", "tls")


def sites_in(folder: Path) -> list[str]:
    """
    Return the names of the sites with an account in this folder.

    Raises:
        InputError: A seed is not named after a site.
    """
    return sorted(map(_site_of, folder.glob(f"{SITE_PREFIX}*.seed")))


def _site_of(path: Path) -> str:
    try:
        return check_site(path.stem.removeprefix(SITE_PREFIX))
    except UsageError as err:
        raise InputError(f"{path}: is not named after a site; move it out of this folder: {err}") from err


def site_folder(folder: Path, site: str) -> Path:
    """Return the folder with the files for the site's broker."""
    return folder / f"{SITE_PREFIX}{site}"


def site_accounts(folder: Path, site: str) -> Path:
    """Return the file with the accounts for the site's broker."""
    return site_folder(folder, site) / "nats-security.conf"


def with_sites(folder: Path, text: str, seed: Callable[[str], Secret]) -> str:
    """
    Return the center's configuration with the accounts of all sites, and write the accounts for the brokers of the sites.

    Args:
        folder: The folder with the keys.
        text: The configuration without sites.
        seed: Returns a seed of the folder by its name.
    """
    sites = {site: seed(f"{SITE_PREFIX}{site}") for site in sites_in(folder)}
    if not sites:
        return text
    operator = seed("operator")
    of_site = site_configuration(text, operator).encode()
    for site in sites:
        write_whole(site_accounts(folder, site), of_site, mode=PUBLIC)
    return center_configuration(text, operator, sites, {site: _revoked_until(folder, site) for site in sites})


def site_tokens(folder: Path, site: str) -> dict[str, str]:
    """Return the JWTs of the accounts at a site, by public key; none if there is no site with this name."""
    if site not in sites_in(folder):
        return {}
    path = site_accounts(folder, site)
    try:
        return account_tokens(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise InputError(f"{path}: cannot be read: {err.strerror}; run `ccmctl init --site {site}`") from err


def issue_time(folder: Path, site: str) -> int:
    """Return the time for new credentials of the account of a site: now, but later than those that are revoked."""
    return max(int(time.time()), _revoked_until(folder, site) + 1)


def _revoked_until(folder: Path, site: str) -> int:
    """Return the time up to which credentials of the account of a site are void, in seconds since 1970; 0 if none are."""
    path = folder / f"{SITE_PREFIX}{site}.revoked"
    try:
        return int(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as err:
        raise InputError(
            f"{path}: cannot be read: {err}; write the seconds since 1970 into it, such as {int(time.time())}"
        ) from err


def renew_leaf(folder: Path, site: str, account: Secret) -> Path:
    """
    Revoke the credentials of the leaf node of a site, and write new ones, whose path is returned. The center's configuration is
    not written here.

    Raises:
        InputError: A file cannot be read or written.
    """
    path = site_folder(folder, site) / _LEAF_CREDENTIALS
    # the old ones may have been issued while the clock was ahead
    until = max(issue_time(folder, site), _issued(path))
    creds = leaf_credentials(account, site, until + 1)
    # the new ones come first, so that a kill in between does not cut off the site
    write_whole(path, creds.reveal().encode())
    write_whole(folder / f"{SITE_PREFIX}{site}.revoked", b"%d\n" % until)
    return path


def _issued(path: Path) -> int:
    """Return when credentials were issued, in seconds since 1970; 0 if they cannot be read."""
    found = (claims_in(line).get("iat") for line in _content(path).decode(errors="replace").splitlines())
    return max((one for one in found if isinstance(one, int)), default=0)


def new_site_account() -> Secret:
    """Generate the seed of the account of a site."""
    return new_account()


def require_leaves(folder: Path, site: str, leaves: Sequence[str]) -> None:
    """
    Check that the addresses for the leaf node of a site are given, or already in its `site.conf`.

    Raises:
        UsageError: They are not.
    """
    if not leaves and not (site_folder(folder, site) / _SITE_CONF).exists():
        raise UsageError(
            f"{site}: is not set up yet; name the addresses where the center's servers accept leaf nodes, such as "
            f"--leaf nats-leaf://nats1.example.net:{LEAF_PORT}"
        )


def write_site(folder: Path, site: str, account: Secret, configuration: str, leaves: Sequence[str]) -> bool:
    """
    Write the files for the site's broker that are missing, and `site.conf` again if there are addresses.

    Args:
        folder: The folder with the keys.
        site: The name of the site.
        account: The seed of its account.
        configuration: The content of `nats-security.conf` of the center.
        leaves: The addresses at which the center's servers accept leaf nodes; see `checked_leaves`.

    Returns:
        Whether a file was written.

    Raises:
        InputError: A file cannot be written.
    """
    there = site_folder(folder, site)
    path = there / _SITE_CONF
    is_changed = False
    if leaves:
        authority = folder / "ca.pem"
        if authority.exists():
            write_whole(there / "ca.pem", authority.read_bytes(), mode=PUBLIC)
        text = _site_conf(site, streams_account(configuration), leaves, has_authority=authority.exists())
        is_changed = _content(path) != text.encode()
        write_whole(path, text.encode(), mode=PUBLIC)
    creds = there / _LEAF_CREDENTIALS
    if not creds.exists():
        is_changed = True
        try:
            create_file(creds, leaf_credentials(account, site, issue_time(folder, site)).reveal().encode())
        except OSError as err:
            raise InputError(f"{creds}: cannot be written: {err.strerror}") from err
    return is_changed


def _content(path: Path) -> bytes:
    """Return the content of a file; empty if it is not a regular file or cannot be read."""
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""


def checked_leaves(text: str) -> list[str]:
    """
    Return the addresses in a list with commas, each with a port.

    Raises:
        UsageError: One is not valid.
    """
    return [_checked_leaf(one.strip()) for one in text.split(",")] if text else []


def _checked_leaf(text: str) -> str:
    shown = f"{text!r}: not a valid address for leaf nodes; expected nats-leaf://host:{LEAF_PORT}"
    # urlsplit drops newlines, and accepts any character after the `%` of an IPv6 zone
    if "%" in text or not text.isprintable():
        raise UsageError(shown)
    try:
        parts = urlsplit(text if "://" in text else f"nats-leaf://{text}")
        host, port = parts.hostname or "", parts.port or LEAF_PORT
    except ValueError as err:
        raise UsageError(shown) from err
    is_plain = parts.scheme in _SCHEMES and not (
        parts.path or parts.query or parts.fragment or "@" in parts.netloc
    )
    if not is_plain or not _is_host(host):
        raise UsageError(shown)
    scheme = "nats-leaf" if _is_loopback(host) and parts.scheme != "tls" else "tls"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _is_host(host: str) -> bool:
    if _is_address(host):
        return True
    labels = host.rstrip(".").split(".")
    return host.isascii() and all(
        label.replace("-", "").isalnum() and not label.startswith("-") for label in labels
    )


def _is_address(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _site_conf(site: str, account: str, leaves: Sequence[str], *, has_authority: bool) -> str:
    tls = ""
    if any(url.startswith("tls:") for url in leaves):
        authority = f'ca_file: "{AT_THE_SITE}/ca.pem"' if has_authority else "handshake_first: false"
        tls = f"\n      # Nothing is sent to a server without TLS.\n      tls {{ {authority} }}"
    urls = ", ".join(f'"{url}"' for url in leaves)
    return (
        f"# The broker of the site {site}, made by `ccmctl init --site {site}`. Copy this folder to {AT_THE_SITE} there,\n"
        "# and add to the configuration of the server (deploy/nats/site.conf is an example)\n"
        f"#     jetstream {{ domain: {site} }}\n"
        "#     include site.conf\n"
        "include nats-security.conf\n"
        "# Subjects of flow control begin with the domain, so they cross accounts.\n"
        "feature_flags { js_ack_fc_v2: true }\n"
        "leafnodes {\n"
        "  reconnect: 1\n"
        "  remotes: [\n"
        "    {\n"
        f"      urls: [{urls}]\n"
        f'      account: "{account}"\n'
        f'      credentials: "{AT_THE_SITE}/{_LEAF_CREDENTIALS}"{tls}\n'
        "    }\n"
        "  ]\n"
        "}\n"
    )
