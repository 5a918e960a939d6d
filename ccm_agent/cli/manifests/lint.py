"""`ccm lint`: check manifests without applying them."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import click
import msgspec

from ccm_agent.cli import inputs, options
from ccm_agent.cli.record_types import HostFindingLine
from ccm_agent.cli.terminal import PROGRAM
from ccm_agent.clikit.cells import paint
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.manifest import fix
from ccm_agent.manifest.findings import format_finding
from ccm_agent.manifest.rules import ALWAYS, RULES
from ccm_agent.model.codec import as_text
from ccm_agent.model.errors import CcmError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from ccm_agent.app import App
    from ccm_agent.manifest.findings import Finding


@click.command(
    "lint",
    cls=options.CcmCommand,
    epilog=examples(
        "ccm lint site/*.yaml",
        "ccm lint site.yaml --fix                       # quotes modes such as 0644",
        "ccm lint site.yaml --ignore order,fact --warnings-fail",
        "ccm lint site.yaml --strict-ccm --json",
    ),
)
@click.argument("manifests", nargs=-1, required=True, metavar="FILE|DIR...")
@click.option("--strict-ccm", is_flag=True, help="Also report features that Choria CCM does not support.")
@click.option(
    "--ignore",
    multiple=True,
    metavar="CODE",
    help="Do not report findings with this code, such as `order`. Separate several by commas, or repeat the option.",
)
@click.option("--fix", is_flag=True, help="Put quotes around modes and versions that are written as numbers.")
@click.option("--warnings-fail", is_flag=True, help="Exit with 1 for warnings, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finding.")
def command(
    manifests: tuple[str, ...],
    strict_ccm: bool,
    ignore: tuple[str, ...],
    fix: bool,
    warnings_fail: bool,
    as_json: bool,
) -> int:
    """
    Check manifests for syntax errors, unknown keys, invalid values, template errors and broken references. Needs no
    facts. For DIR, its manifest.yaml is checked.

    Exit codes: 0 no errors; 1 an error was found, or a warning with --warnings-fail, or a file could not be read. Use
    `ccm apply --render` to also check a manifest with this host's facts.
    """
    from ccm_agent.app import App

    linter = _Linter(App(os.environ), Terminal(PROGRAM, json=as_json), _codes(ignore), strict_ccm=strict_ccm)
    for path in manifests:
        try:
            linter.check(inputs.manifest_path(path), fix=fix)
        except CcmError as err:
            linter.unreadable(err)
    return linter.end(warnings_fail=warnings_fail)


def _codes(ignore: tuple[str, ...]) -> frozenset[str]:
    codes = [code.strip() for text in ignore for code in text.split(",") if code.strip()]
    for code in codes:
        if code not in RULES:
            hint = did_you_mean(code, RULES) or f"; known codes: {', '.join(RULES)}"
            raise UsageError(f"--ignore {code}: unknown rule{hint}")
        if code in ALWAYS:
            raise UsageError(
                f"--ignore {code}: this rule cannot be ignored; files that break it cannot be checked further"
            )
    return frozenset(codes)


class _Linter:
    """Checks one manifest after another and counts the findings."""

    def __init__(self, app: App, terminal: Terminal, ignored: frozenset[str], *, strict_ccm: bool) -> None:
        self._app = app
        self._terminal = terminal
        self._ignored = ignored
        self._strict = strict_ccm
        self._levels: Counter[str] = Counter()
        self._fixed = 0
        self._has_unreadable = False

    def check(self, path: str, *, fix: bool) -> None:
        """Check a file, after fixing it if requested."""
        text = as_text(inputs.read_text(path, "MANIFEST"), path)
        found = self._find(path, text)
        if fix and any(one.can_fix for one in found):
            text, found = self._fix(path, text, found)
        for one in found:
            self._show(path, text, one)

    def unreadable(self, err: CcmError) -> None:
        """Report a file that cannot be read, so that other files can still be checked."""
        self._terminal.fail(err)
        self._has_unreadable = True

    def end(self, *, warnings_fail: bool) -> Exit:
        """Show the number of findings, and return the exit code."""
        counts = [
            f"{number} {level}{'' if number == 1 else 's'}" for level, number in sorted(self._levels.items())
        ]
        if self._fixed:
            counts.append(f"{self._fixed} fixed")
        if counts:
            self._terminal.show(f"{', '.join(counts)}\n")
        is_bad = self._has_unreadable or self._levels["error"] or (warnings_fail and self._levels["warning"])
        return Exit.COULD_NOT_RUN if is_bad else Exit.OK

    def _find(self, path: str, text: str) -> list[Finding]:
        return self._app.lint(path, text, strict_ccm=self._strict, ignored=self._ignored)

    def _fix(self, path: str, text: str, found: list[Finding]) -> tuple[str, list[Finding]]:
        new = fix.fix(text, found)
        if new == text:
            return text, found
        inputs.rewrite(path, new)
        left = self._find(path, new)
        self._fixed += len([one for one in found if one.can_fix]) - len([one for one in left if one.can_fix])
        return new, left

    def _show(self, path: str, text: str, finding: Finding) -> None:
        self._levels[finding.level] += 1
        self._terminal.record(HostFindingLine, manifest=path, **msgspec.to_builtins(finding))

        def color(word: str, level: str) -> str:
            return paint(word, "bad" if level == "error" else "change", self._terminal.style)

        self._terminal.show(f"{format_finding(finding, text, color)}\n")
