"""The kinds of subjects that rules can check, with the attributes of each kind."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ccm_agent.health.goss import accounts, files, kernel, network, programs
from ccm_agent.health.goss.found import LookAt


class GossType(Struct, frozen=True, kw_only=True):
    """
    A kind of subject.

    Attributes:
        name: The name in the rules.
        subject: The attribute that can set the subject. By default, the key is the subject.
        attributes: The attributes in the order in which they are checked. If the first one fails or shows that the subject is
            absent, the others are skipped.
        look: Reads the attributes of one subject.
        required: Whether the rule must give the first attribute.
        texts: Attributes with long texts. A list of expected values is a list of patterns for their lines.
        options: Other keys that a rule may have.
        spellings: Alternative names of attributes.
        reach: The kind of access that the check needs: "command", "network", or "" if it reads only public state of the host.
        reads: The attributes that require reading the subject's content.
    """

    name: str
    subject: str
    attributes: tuple[str, ...]
    look: LookAt
    required: bool = True
    texts: frozenset[str] = frozenset()
    options: frozenset[str] = frozenset()
    spellings: Mapping[str, str] = {}
    reach: str = ""
    reads: frozenset[str] = frozenset()


_RETRIES = frozenset({"retry_count", "retry_delay"})

_ALL = (
    GossType(
        name="file",
        subject="path",
        attributes=(
            "exists", "mode", "owner", "uid", "group", "gid", "linked-to", "filetype", "contents", "size", "md5", "sha256",
            "sha512",
        ),
        look=files.look,
        texts=frozenset({"contents"}),
        spellings={"contains": "contents"},
        reads=frozenset({"contents", "md5", "sha256", "sha512"}),
    ),
    GossType(
        name="package",
        subject="name",
        attributes=("installed", "versions"),
        look=programs.look_at_package,
        options=_RETRIES,
    ),
    GossType(
        name="service",
        subject="name",
        attributes=("enabled", "running", "runlevels"),
        look=programs.look_at_service,
        required=False,
    ),
    GossType(name="port", subject="port", attributes=("listening", "ip"), look=network.look_at_port),
    GossType(name="process", subject="comm", attributes=("running",), look=programs.look_at_process),
    GossType(
        name="command",
        subject="exec",
        attributes=("exit-status", "stdout", "stderr"),
        look=programs.look_at_command,
        texts=frozenset({"stdout", "stderr"}),
        options=_RETRIES | {"timeout"},
        reach="command",
    ),
    GossType(
        name="http",
        subject="url",
        attributes=("status", "headers", "body"),
        look=network.look_at_url,
        reach="network",
        texts=frozenset({"headers", "body"}),
        options=frozenset(
            {
                "method", "timeout", "allow-insecure", "no-follow-redirects", "request-headers", "request-body", "username",
                "password", "ca-file", "cert-file", "key-file", "proxy",
            }
        ),
    ),
    GossType(
        name="addr",
        subject="address",
        attributes=("reachable",),
        look=network.look_at_address,
        reach="network",
        options=frozenset({"timeout", "local-address"}),
    ),
    GossType(
        name="dns",
        subject="resolve",
        attributes=("resolvable", "addrs"),
        look=network.look_at_name,
        reach="network",
        options=_RETRIES | {"timeout", "server"},
        spellings={"resolveable": "resolvable"},
    ),
    GossType(name="group", subject="groupname", attributes=("exists", "gid"), look=accounts.look_at_group),
    GossType(
        name="user",
        subject="username",
        attributes=("exists", "uid", "gid", "home", "groups", "shell"),
        look=accounts.look_at_user,
    ),
    GossType(
        name="interface",
        subject="name",
        attributes=("exists", "addrs", "mtu"),
        look=network.look_at_interface,
    ),
    GossType(name="kernel-param", subject="name", attributes=("value",), look=kernel.look_at_parameter),
    GossType(
        name="mount",
        subject="mountpoint",
        attributes=("exists", "opts", "vfs-opts", "source", "filesystem", "usage"),
        look=kernel.look_at_mount,
        options=frozenset({"timeout"}),
    ),
    GossType(
        name="matching",
        subject="",
        attributes=("matches",),
        look=kernel.look_at_content,
        options=frozenset({"content", "as-reader"}),
    ),
)  # fmt: skip
KINDS: dict[str, GossType] = {kind.name: kind for kind in _ALL}
"""All kinds, by name."""
