"""
Manages packages with apt and dpkg.

Source: apt-get(8), apt.conf(5), dpkg-query(1), apt-cache(8); apt 2.6, dpkg 1.21 (Debian 12).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ccm_agent.model.errors import CommandError, PropertyError
from ccm_agent.model.ports import Completed, Locks, Runner
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.package.model import LATEST, PackageMetadata, PackageProperties, PackageState
from ccm_agent.resources.package_tool import (
    APT_ENVIRONMENT,
    APT_LOCK_WORDS,
    PackageTool,
    is_apt_locked,
    refuse,
)

PROVIDER = "apt"
PROTOCOL = "io.choria.ccm.v1.resource.package.state"
FORMAT = "${Package} ${Version} ${Architecture} ${db:Status-Status}\n"
INSTALLED = "installed"
UNKNOWN = "unknown"
OPTIONS = ("-o", "DPkg::Options::=--force-confold")


class Apt:
    """Packages of a Debian-like system; see PackageProvider."""

    def __init__(self, runner: Runner, locks: Locks) -> None:
        self._tool = PackageTool(runner, locks, APT_ENVIRONMENT)

    async def status(self, wanted: PackageProperties) -> PackageState:
        done = await self._tool.ask("dpkg-query", "-W", f"-f={FORMAT}", "--", wanted.name)
        rows = parse_query(done.stdout.decode(errors="replace"))
        return state(wanted.name, choose(rows.get(plain_name(wanted.name), []), wanted.name))

    async def look_ahead(self, wanted: Sequence[PackageProperties]) -> Sequence[PackageState | None]:
        names = sorted({properties.name for properties in wanted})
        done = await self._tool.ask("dpkg-query", "-W", f"-f={FORMAT}", "--", *names)
        rows = parse_query(done.stdout.decode(errors="replace"))
        return [state(p.name, choose(rows.get(plain_name(p.name), []), p.name)) for p in wanted]

    async def install(self, name: str, version: str) -> None:
        await self._refuse_pattern(name)
        argv = ["install", "-y", "-q", *OPTIONS]
        if version == LATEST:
            package = f"{name}={await self._candidate(name)}"
        elif version == PRESENT:
            package = name
        else:
            argv.append("--allow-downgrades")
            package = f"{name}={version}"
        done = await self._change(*argv, "--", package)
        refuse(done, f"could not install {package}", APT_LOCK_WORDS)

    async def upgrade(self, name: str, version: str) -> None:
        await self.install(name, version)

    async def downgrade(self, name: str, version: str) -> None:
        await self.install(name, version)

    async def uninstall(self, name: str) -> None:
        done = await self._change("-q", "-y", *OPTIONS, "remove", "--", name)
        refuse(done, f"could not remove {name}", APT_LOCK_WORDS)

    async def _change(self, *arguments: str) -> Completed:
        return await self._tool.change("apt-get", *arguments, is_locked=is_apt_locked)

    async def _candidate(self, name: str) -> str:
        done = await self._tool.ask("apt-cache", "policy", "--", name)
        version = parse_candidate(done.stdout.decode(errors="replace"))
        if not version:
            raise CommandError(
                f"no version of {name} can be installed: apt has no candidate; "
                "is the name right and the package index up to date?"
            )
        return version

    async def _refuse_pattern(self, name: str) -> None:
        """
        Refuse a name that apt would not interpret as the name of one package.

        If no package has exactly this name, apt interprets a final `-` or `+` as "remove" or "install". It interprets a name with
        a dot as a regular expression, which may match many packages.
        """
        if not name.endswith(("-", "+")) and "." not in name:
            return
        done = await self._tool.ask("apt-cache", "show", "--no-all-versions", "--", name)
        exact = any(
            line == f"Package: {plain_name(name)}"
            for line in done.stdout.decode(errors="replace").splitlines()
        )
        if not exact:
            raise PropertyError(
                f"apt has no package named {name!r}; is the name right and the package index up to date?"
            )


Row = tuple[str, str, str, str]
"""Package, version, architecture and status, as dpkg-query prints them."""


def plain_name(name: str) -> str:
    """Return a package's name without its architecture."""
    return name.partition(":")[0]


def parse_query(output: str) -> dict[str, list[Row]]:
    """
    Parse the output of `dpkg-query -W` into rows by package. A package can have several architectures, and the version can be
    empty.
    """
    rows: dict[str, list[Row]] = {}
    for line in output.splitlines():
        fields = line.split(" ")
        if len(fields) == 4:
            rows.setdefault(fields[0], []).append((fields[0], fields[1], fields[2], fields[3]))
    return rows


def choose(rows: Iterable[Row], name: str) -> Row | None:
    """Return the row that matches the name and, if given, the architecture. Installed packages are preferred."""
    arch = name.partition(":")[2]
    fitting = [row for row in rows if arch in ("", "any", row[2])]
    fitting.sort(key=lambda row: row[3] != INSTALLED)
    return fitting[0] if fitting else None


def state(name: str, row: Row | None) -> PackageState:
    """Return the state for a row. Only `installed` is treated as present, so that an install repairs all other states."""
    word = row[3] if row else UNKNOWN
    if row and word == INSTALLED:
        metadata = PackageMetadata(
            name=row[0], version=row[1], arch=row[2], provider=PROVIDER, extended={"status": word}
        )
        return PackageState(protocol=PROTOCOL, type="package", name=name, ensure=row[1], metadata=metadata)
    metadata = PackageMetadata(name=name, version=ABSENT, provider=PROVIDER, extended={"status": word})
    return PackageState(protocol=PROTOCOL, type="package", name=name, ensure=ABSENT, metadata=metadata)


def parse_candidate(output: str) -> str:
    """Return the version in the `Candidate:` line of `apt-cache policy`; "" if there is none."""
    for line in output.splitlines():
        key, _, value = line.strip().partition(": ")
        if key == "Candidate":
            return "" if value.strip() == "(none)" else value.strip()
    return ""
