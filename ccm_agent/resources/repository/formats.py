"""
Reads and writes repository files in the formats of apt and dnf.

Source: sources.list(5), section "deb822-style format", of apt 2.6; dnf.conf(5), section "repo options", of dnf 4.14.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from ccm_agent.resources.repository.model import APT, DNF, RepositoryContent, RepositoryProperties

HEADER = "# Managed by ccm"
_FILE_URL = "file://"
_NO_TYPES = ("deb",)
SECTION = re.compile(r"^\[([^\]\n]+)\]", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n[ \t\r]*\n")
_FIELD = re.compile(r"^[^#\s]", re.MULTILINE)
_MOST_SHOWN = 3


class RepositoryFormat(Struct, frozen=True, kw_only=True):
    """
    The repository format of a package manager.

    Attributes:
        directory, key_directory: The directory of repository files, and the directory of keys.
        main: The path of a file with additional repositories.
        suffix: The suffix of file names.
        render: Returns the content of a file for a repository's name and fields.
        parse: Returns the fields of a repository in a file that `render` wrote; None for other files.
        others: Describes the content of a file other than the repository, for a message; "" if there is none.
        problem: Returns the reason why this package manager does not support a repository; "" if it does.
    """

    directory: str
    key_directory: str
    main: str
    suffix: str
    render: Callable[[str, RepositoryContent], str]
    parse: Callable[[str, str], RepositoryContent | None]
    others: Callable[[str, str], str]
    problem: Callable[[RepositoryProperties], str]

    def path(self, name: str) -> str:
        """Return the path of a repository's file."""
        return f"{self.directory}/{name}{self.suffix}"

    def key_path(self, name: str) -> str:
        """Return the path of a repository's own key."""
        return f"{self.key_directory}/{name}.asc"

    def content(self, wanted: RepositoryProperties, key_path: str = "") -> bytes:
        """
        Return the desired content of a repository's file.

        Args:
            wanted: The repository.
            key_path: The path of the repository's own key; "" for the default path.
        """
        own = key_path or self.key_path(wanted.name)
        content = RepositoryContent(
            description=wanted.description or wanted.name,
            uris=tuple(wanted.uris),
            suites=tuple(wanted.suites),
            components=tuple(wanted.components),
            architectures=tuple(wanted.architectures),
            types=tuple(wanted.types),
            metalink=wanted.metalink,
            mirrorlist=wanted.mirrorlist,
            enabled=wanted.enabled,
            priority=wanted.priority,
            signed_by=own if wanted.key else wanted.signed_by,
            trusted=wanted.trusted,
            repo_gpgcheck=wanted.repo_gpgcheck,
        )
        return self.render(wanted.name, content).encode()


def _render_apt(name: str, one: RepositoryContent) -> str:
    fields = (
        ("X-Repolib-Name", one.description),
        ("Enabled", "" if one.enabled else "no"),
        ("Types", " ".join(one.types or _NO_TYPES)),
        ("URIs", " ".join(one.uris)),
        ("Suites", " ".join(one.suites)),
        ("Components", " ".join(one.components)),
        ("Architectures", " ".join(one.architectures)),
        ("Signed-By", one.signed_by),
        ("Trusted", "yes" if one.trusted else ""),
    )
    return "".join(f"{line}\n" for line in [HEADER, *(f"{key}: {value}" for key, value in fields if value)])


def _parse_apt(name: str, text: str) -> RepositoryContent | None:
    fields = _fields(text.split("\n"), ": ")
    content = RepositoryContent(
        description=fields.get("X-Repolib-Name", ""),
        enabled=fields.get("Enabled") != "no",
        types=_words(fields, "Types"),
        uris=_words(fields, "URIs"),
        suites=_words(fields, "Suites"),
        components=_words(fields, "Components"),
        architectures=_words(fields, "Architectures"),
        signed_by=fields.get("Signed-By", ""),
        trusted=fields.get("Trusted") == "yes",
    )
    return content if _render_apt(name, content) == text else None


def _other_stanzas(name: str, text: str) -> str:
    stanzas = [one for one in _BLANK_LINES.split(text) if _FIELD.search(one)]
    return f"{len(stanzas)} repositories" if len(stanzas) > 1 else ""


def _apt_problem(wanted: RepositoryProperties) -> str:
    if given := [
        one for one in ("metalink", "mirrorlist", "priority", "repo_gpgcheck") if getattr(wanted, one)
    ]:
        return f"`{given[0]}` is a property of dnf, but this host uses apt"
    return "" if wanted.suites else "`suites` is required, because this host uses apt"


def _render_dnf(name: str, one: RepositoryContent) -> str:
    fields = (
        ("name", one.description),
        ("baseurl", " ".join(one.uris)),
        ("metalink", one.metalink),
        ("mirrorlist", one.mirrorlist),
        ("enabled", str(int(one.enabled))),
        ("priority", "" if one.priority is None else str(one.priority)),
        ("gpgcheck", str(int(not one.trusted))),
        ("repo_gpgcheck", _metadata_check(one)),
        ("gpgkey", f"{_FILE_URL}{one.signed_by}" if one.signed_by else ""),
    )
    lines = [HEADER, f"[{name}]", *(f"{key}={value}" for key, value in fields if value)]
    return "".join(f"{line}\n" for line in lines)


def _metadata_check(one: RepositoryContent) -> str:
    """
    Return the value of dnf's setting for requiring signed metadata. With "", the setting in dnf.conf applies, which may be
    stricter.
    """
    if one.repo_gpgcheck:
        return "1"
    return "0" if one.trusted else ""  # without a key, dnf could not verify anything


def _parse_dnf(name: str, text: str) -> RepositoryContent | None:
    fields = _fields(text.split("\n"), "=")
    priority = fields.get("priority", "")
    content = RepositoryContent(
        description=fields.get("name", ""),
        uris=_words(fields, "baseurl"),
        metalink=fields.get("metalink", ""),
        mirrorlist=fields.get("mirrorlist", ""),
        enabled=fields.get("enabled") == "1",
        priority=int(priority) if priority.isdecimal() and len(priority) <= 2 else None,
        trusted=fields.get("gpgcheck") == "0",
        repo_gpgcheck=fields.get("repo_gpgcheck") == "1",
        signed_by=fields.get("gpgkey", "").removeprefix(_FILE_URL),
    )
    return content if _render_dnf(name, content) == text else None


def _other_sections(name: str, text: str) -> str:
    others = [one for one in SECTION.findall(text) if one != name]
    more = f" and {len(others) - _MOST_SHOWN} more" if len(others) > _MOST_SHOWN else ""
    return (
        f"the sections {', '.join(f'[{one[:100]}]' for one in others[:_MOST_SHOWN])}{more}" if others else ""
    )


def _dnf_problem(wanted: RepositoryProperties) -> str:
    given = [one for one in ("suites", "components", "architectures", "types") if getattr(wanted, one)]
    return f"`{given[0]}` is a property of apt, but this host uses dnf" if given else ""


def _fields(lines: list[str], separator: str) -> dict[str, str]:
    pairs = (line.partition(separator) for line in lines)
    return {key: value for key, mark, value in pairs if mark}


def _words(fields: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(fields.get(name, "").split())


FORMATS = {
    APT: RepositoryFormat(
        directory="/etc/apt/sources.list.d",
        key_directory="/etc/apt/keyrings",
        main="/etc/apt/sources.list",
        suffix=".sources",
        render=_render_apt,
        parse=_parse_apt,
        others=_other_stanzas,
        problem=_apt_problem,
    ),
    DNF: RepositoryFormat(
        directory="/etc/yum.repos.d",
        key_directory="/etc/pki/rpm-gpg",
        main="/etc/dnf/dnf.conf",
        suffix=".repo",
        render=_render_dnf,
        parse=_parse_dnf,
        others=_other_sections,
        problem=_dnf_problem,
    ),
}
"""The formats by provider name."""
