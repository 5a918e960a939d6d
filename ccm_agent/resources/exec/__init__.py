"""The exec type: commands that run when needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccm_agent.resources.contract import CommandLine, Flag, Probe, ProviderSpec, ResourceContext, ResourceType
from ccm_agent.resources.exec.model import ExecProperties, ExecState
from ccm_agent.resources.exec.resource import check, check_in_manifest, decide, reach


def _make_posix(context: ResourceContext) -> Any:
    from ccm_agent.resources.exec.providers.posix import PosixExec

    return PosixExec(context.runner, context.files, context.say, runs_guards=context.may_run_commands)


def _make_shell(context: ResourceContext) -> Any:
    from ccm_agent.resources.exec.providers.shell import Shell

    return Shell(context.runner, context.files, context.say, runs_guards=context.may_run_commands)


def _has_shell(facts: Mapping[str, Any], probe: Probe) -> bool:
    return probe.exists("/bin/sh")


TYPE: ResourceType[ExecProperties, ExecState] = ResourceType(
    name="exec",
    summary="Commands to run when needed.",
    properties=ExecProperties,
    state=ExecState,
    decide=decide,
    check=check,
    check_in_manifest=check_in_manifest,
    default_ensure="present",
    verify=False,
    why_unverified="only the exit code of a command shows whether it worked; there is no state to read",
    can_status=False,
    why_no_status="whether a command would run depends on its guards, which only a manifest contains",
    reach=reach,
    providers=(
        ProviderSpec(name="posix", make=_make_posix, rank=1),
        ProviderSpec(name="shell", make=_make_shell, rank=99, is_usable=_has_shell),
    ),
    command=CommandLine(
        examples=(
            "'/usr/bin/make -C /srv/app' --creates /srv/app/built",
            "'/usr/sbin/nginx -t' --timeout 10s",
        ),
        arguments=("name",),
        hidden=frozenset({"command", "ensure"}),
        flags=(
            Flag(field="creates", names=("--creates",), placeholder="FILE"),
            Flag(field="returns", names=("--returns",), default=[0]),
            Flag(
                field="timeout",
                names=("--timeout",),
                default="1m",
                placeholder="DURATION",
                help="Time limit of the command and of each guard. Default: 1m.",
            ),
            Flag(field="cwd", names=("--cwd",), placeholder="DIR"),
            Flag(field="environment", names=("--environment", "-e"), placeholder="NAME=VALUE"),
            Flag(field="path", names=("--path",), placeholder="DIR:DIR"),
            Flag(field="refreshonly", names=("--refresh-only",)),
            Flag(field="subscribe", names=("--subscribe", "-S"), placeholder="TYPE#NAME"),
            Flag(field="onlyif", names=("--exec-if",), placeholder="COMMAND"),
            Flag(field="unless", names=("--exec-unless",), placeholder="COMMAND"),
        ),
    ),
)
