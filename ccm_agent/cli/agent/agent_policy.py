"""`ccm agent policy test`: show whether the node's policy allows a request, with the reasons."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ccm_agent.cli.agent.agent import CONFIG
from ccm_agent.cli.options import CcmGroup
from ccm_agent.cli.output import plain
from ccm_agent.clikit.commands import examples
from ccm_agent.model.codec import encode_json
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.policy import LOOK_ACTIONS, RUN_ACTIONS

if TYPE_CHECKING:
    from ccm_agent.app_policy import PolicyExplanation, ResourceExplanation


@click.group(
    "policy",
    cls=CcmGroup,
    short_help="Explain what the node's policy allows.",
    epilog=examples("ccm agent policy test --signer alice --action apply --type exec --name reboot"),
)
def command() -> None:
    """Explain what the node's policy allows."""


@command.command(
    "test",
    short_help="Show whether the policy allows a request, and why.",
    epilog=examples(
        "ccm agent policy test --signer alice --action apply",
        "ccm agent policy test --policy draft.yaml --role apprentice --action plan --manifest site.yaml",
        "ccm agent policy test --signer alice --action apply --type file --name /etc/motd --at 2026-11-23T09:30",
    ),
)
@click.option("--policy", "policy_file", default="", metavar="FILE", help="Policy file. [the agent's]")
@click.option("--config", default="", metavar="FILE", help=f"The agent's configuration file. [{CONFIG}]")
@click.option(
    "--signer",
    default="",
    metavar="NAME",
    help="Name of the signer; `local` means the agent's own configuration.",
)
@click.option("--role", "roles", multiple=True, metavar="NAME", help="A role of the signer. May be repeated.")
@click.option("--unverified", is_flag=True, help="The request is not signed.")
@click.option(
    "--action",
    default="apply",
    show_default=True,
    type=click.Choice([*RUN_ACTIONS, *LOOK_ACTIONS]),
    help="The requested action.",
)
@click.option(
    "--mode",
    default="apply",
    show_default=True,
    type=click.Choice(["apply", "plan", "check", "ensure"]),
    help="Mode of the assignment or schedule.",
)
@click.option("--type", "type_name", default="", metavar="TYPE", help="A resource's type, with --name.")
@click.option("--name", default="", metavar="NAME", help="The resource's name, with --type.")
@click.option("--manifest", default="", metavar="FILE", help="Test each resource of this manifest.")
@click.option("--at", default="", metavar="TIME", help="Time of the request, such as 2026-11-23T09:30. [now]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def policy_test(
    policy_file: str,
    config: str,
    signer: str,
    roles: tuple[str, ...],
    unverified: bool,
    action: str,
    mode: str,
    type_name: str,
    name: str,
    manifest: str,
    at: str,
    as_json: bool,
) -> int:
    """
    Show whether the policy allows a request, and why. Runs nothing and does not contact the agent.

    Exits with 0 when the policy allows everything, and with 2 when it refuses something. Child manifests are not
    read; the agent checks their resources when they are applied.
    """
    from ccm_agent import app_policy

    if bool(type_name) != bool(name):
        raise UsageError("--type and --name must be used together")
    if type_name and manifest:
        raise UsageError("--type and --manifest are mutually exclusive")
    outer: tuple[str, str] | None = click.get_current_context().find_object(tuple)
    question = app_policy.PolicyQuestion(
        signer=signer,
        roles=roles,
        is_verified=not unverified,
        action=action,
        mode=mode,
        at=at,
        type=type_name,
        name=name,
        manifest=manifest,
    )
    found = app_policy.explain(policy_file, config or (outer or ("", ""))[0] or CONFIG, question)
    if as_json:
        sys.stdout.write(encode_json(found, indent=2).decode() + "\n")
    else:
        sys.stdout.write(explanation_text(found))
    return Exit.OK if found.is_allowed else Exit.FAILED


def explanation_text(found: PolicyExplanation) -> str:
    """Format an explanation for people: the decision first, then the reasons."""
    refused = next((one for one in found.resources if not one.is_allowed), None)
    lines = [f"{'allowed' if found.is_allowed else 'refused'}: {refused.reason if refused else found.reason}"]
    if refused is not None:
        lines.append(f"  the request itself: {found.reason}")
    if found.is_restricted:
        lines.append("  restricted: the manifest cannot run commands, and can read only its own files")
    lines += [f"  {_resource(one)}" for one in found.resources]
    lines += [f"  rule `{one.rule}` (line {one.line}) did not match: {one.why}" for one in found.skipped]
    if found.rule:
        lines.append(f"  decided by rule `{found.rule}` (line {found.line})")
    if found.policy:
        lines.append(f"  policy: {found.policy}, digest {found.digest[:12]}")
    return "".join(f"{plain(line)}\n" for line in lines)


def _resource(one: ResourceExplanation) -> str:
    if one.is_allowed:
        return f"{one.resource}: {one.reason or 'allowed'}"
    return f"{one.resource}: refused ({one.code}): {one.reason}"
