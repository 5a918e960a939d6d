"""`ccm lint`: check manifests without applying them."""

from __future__ import annotations

import os
import sys

import click
import msgspec

from ccm_agent.cli import given as given_values
from ccm_agent.cli import options
from ccm_agent.model.codec import encode_json
from ccm_agent.model.exits import Exit


@click.command(
    "lint",
    epilog=options.examples("ccm lint site/*.yaml", "ccm lint site.yaml --strict-ccm --warnings-fail --json"),
)
@click.argument("manifests", nargs=-1, required=True, metavar="MANIFEST...")
@click.option("--strict-ccm", is_flag=True, help="Find what Choria CCM itself would not understand, too.")
@click.option("--warnings-fail", is_flag=True, help="End with 1 for warnings as for errors.")
@click.option("--json", "as_json", is_flag=True, help="Print each finding as a line of JSON.")
@options.log_flags
def command(manifests: tuple[str, ...], strict_ccm: bool, warnings_fail: bool, as_json: bool) -> int:
    """
    Check manifests: form, unknown keys, values, templates, references. The facts of no node are needed.

    Ends with 1 when there is an error. A manifest is fit for this host when `ccm apply --render` says so as well.
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
