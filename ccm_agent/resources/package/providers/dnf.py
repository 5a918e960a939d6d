"""
Manages packages with dnf and rpm.

Source: dnf(8), dnf.conf(5), rpm(8); dnf 4.14, rpm 4.18. dnf5 has the same options.
"""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.model.ports import Completed, Locks, Runner
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.package.model import LATEST, PackageMetadata, PackageProperties, PackageState
from ccm_agent.resources.package_tool import DNF_LOCK_WORDS, PackageTool, refuse, run_dnf

PROVIDER = "dnf"
PROTOCOL = "io.choria.ccm.v1.resource.package.state"
FORMAT = "%{NAME} %|EPOCH?{%{EPOCH}}:{0}| %{VERSION} %{RELEASE} %{ARCH}\\n"


class Dnf:
    """Packages of a Fedora-like system; see PackageProvider."""

    def __init__(self, runner: Runner, locks: Locks) -> None:
        self._tool = PackageTool(runner, locks, {})

    async def status(self, wanted: PackageProperties) -> PackageState:
        done = await self._tool.ask("rpm", "-q", "--queryformat", FORMAT, "--", wanted.name)
        return state(wanted.name, parse_query(done.stdout.decode(errors="replace")).get(wanted.name))

    async def look_ahead(self, wanted: Sequence[PackageProperties]) -> Sequence[PackageState | None]:
        names = sorted({properties.name for properties in wanted})
        done = await self._tool.ask("rpm", "-q", "--queryformat", FORMAT, "--", *names)
        rows = parse_query(done.stdout.decode(errors="replace"))
        # rpm prints only the plain name, so a package that is given with an architecture or version is reported as absent, as in
        # `status`
        return [state(p.name, rows.get(p.name)) for p in wanted]

    async def install(self, name: str, version: str) -> None:
        package = name if version in (PRESENT, LATEST) else f"{name}-{version}"
        await self._change(f"could not install {package}", "install", package)

    async def upgrade(self, name: str, version: str) -> None:
        if version == LATEST:
            # `dnf install` does not change the version of an installed package
            await self._change(f"could not upgrade {name}", "upgrade", name)
        else:
            await self.install(name, version)

    async def downgrade(self, name: str, version: str) -> None:
        package = f"{name}-{version}"
        before = (await self._tool.ask("rpm", "-q", "--", name)).stdout
        done = await self._run("downgrade", package)
        if done.code or (await self._tool.ask("rpm", "-q", "--", name)).stdout == before:
            # If the version is given without an epoch, its epoch may be higher than the installed one. Then `dnf downgrade` does
            # nothing but reports success, and `dnf install` is required.
            await self._change(f"could not downgrade to {package}", "install", package)

    async def uninstall(self, name: str) -> None:
        await self._change(f"could not remove {name}", "remove", name)

    async def _change(self, what: str, verb: str, package: str) -> None:
        refuse(await self._run(verb, package), what, DNF_LOCK_WORDS)

    async def _run(self, verb: str, package: str) -> Completed:
        return await run_dnf(self._tool, f"dnf {verb} {package}", verb, "--", package)


Row = tuple[str, str, str, str, str]
"""Name, epoch, version, release, architecture."""


def parse_query(output: str) -> dict[str, Row]:
    """
    Parse the output of `rpm -q` into rows by name. If several versions are installed, the last row is used, because it is the
    newest.

    Lines about packages that are not installed are skipped.
    """
    rows: dict[str, Row] = {}
    for line in output.splitlines():
        fields = line.split(" ")
        if len(fields) == 5:
            rows[fields[0]] = (fields[0], fields[1], fields[2], fields[3], fields[4])
    return rows


def state(name: str, row: Row | None) -> PackageState:
    """Return the state for a row. `ensure` is the version without release, as in Choria CCM."""
    if row is None:
        metadata = PackageMetadata(name=name, version=ABSENT, provider=PROVIDER)
        return PackageState(protocol=PROTOCOL, type="package", name=name, ensure=ABSENT, metadata=metadata)
    _, epoch, version, release, arch = row
    metadata = PackageMetadata(
        name=row[0],
        version=f"{version}-{release}",
        arch=arch,
        provider=PROVIDER,
        extended={"epoch": epoch, "release": release},
    )
    return PackageState(protocol=PROTOCOL, type="package", name=name, ensure=version, metadata=metadata)
