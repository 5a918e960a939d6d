"""`ccm lint`: check manifests without applying them."""

from __future__ import annotations

import os
import sys

import click
import msgspec

from ccm_agent.cli import given as given_values
from ccm_agent.cli import options
from ccm_agent.clikit.commands import examples
from ccm_agent.model.codec import encode_json
from ccm_agent.model.exits import Exit


@click.command(
    "lint",
    cls=options.CcmCommand,
    epilog=examples("ccm lint site/*.yaml", "ccm lint site.yaml --strict-ccm --warnings-fail --json"),
)
@click.argument("manifests", nargs=-1, required=True, metavar="MANIFEST...")
@click.option("--strict-ccm", is_flag=True, help="Also report what Choria CCM itself does not support.")
@click.option("--warnings-fail", is_flag=True, help="Exit with 1 for warnings, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finding.")
def command(manifests: tuple[str, ...], strict_ccm: bool, warnings_fail: bool, as_json: bool) -> int:
    """
    Check manifests for syntax errors, unknown keys, invalid values, template errors and broken references. Needs no
    facts.

    Exits with 1 when it finds an error. Use `ccm apply --render` to also check a manifest with this host's facts.
    """
    from ccm_agent.app import App

    app = App(os.environ)
    is_bad = False
    for path in manifests:
        for finding in app.lint(path, given_values.read_text(path, "MANIFEST"), strict_ccm=strict_ccm):
            is_bad = is_bad or finding.level == "error" or warnings_fail
            if as_json:
                values = msgspec.to_builtins(finding) | {"manifest": path}
                sys.stdout.write(encode_json(values).decode() + "\n")
            else:
                sys.stdout.write(f"{finding}\n")
    return Exit.COULD_NOT_RUN if is_bad else Exit.OK
