"""`ccmctl ensure`: manage one resource on nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.clikit.commands import Argument
from ccm_agent.clikit.options import Options, takes
from ccm_agent.clikit.properties import Properties
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.model.wire import RESOURCE_ENSURE, EnsureRequest
from ccm_ctl.app import Application
from ccm_ctl.commands.assignments.conflicts import warn_of_resources
from ccm_ctl.commands.command_tree import PROGRAM, CtlCommand, verb
from ccm_ctl.commands.runs import properties
from ccm_ctl.commands.runs.manifest_check import check_properties
from ccm_ctl.commands.runs.open_rollouts import warn_of_open
from ccm_ctl.commands.runs.run_view import start_and_watch
from ccm_ctl.commands.runs.targets import (
    NOT_AGREED,
    RunOptions,
    confirm,
    diff_option,
    parse_deadline,
    run_options,
)
from ccm_ctl.fleet.nodes.discovery import resolve
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.run_request import prepare

_TYPE = "ccm_ctl.type"


class Ensure(CtlCommand):
    """The `ensure` command. It has a flag for each property of the given type."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own options, then the flags of the type if it is known, then the shared options."""
        params = super().get_params(ctx)
        if _TYPE not in ctx.meta:
            return params
        taken = {name for param in params for name in (*param.opts, *param.secondary_opts)}
        flags = properties.build_flags(ctx.meta[_TYPE], taken)
        arguments = sum(isinstance(param, click.Argument) for param in params)
        return [*params[:arguments], *flags, *params[arguments:]]

    def explain(self, ctx: click.Context, argument: Argument) -> str:
        """Describe an argument. If no type is known yet, the text lists the types."""
        if _TYPE not in ctx.meta:
            return ", ".join(properties.type_names()) if argument.name == "type_name" else ""
        known = properties.find_properties(ctx.meta[_TYPE])
        about = {
            "name": properties.name_about(ctx.meta[_TYPE]),
            "words": f"ENSURE: {known['ensure'].about} KEY=VALUE sets a property, like its option.",
        }
        return about.get(argument.name or "", "")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Find the type first. Then parse the arguments with its flags."""
        ctx.ignore_unknown_options = True
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.ignore_unknown_options = False
        # Until the type is known, its flags are parsed as arguments.
        rest = given.get("words")
        words = [given.get("type_name"), given.get("name"), *(rest if isinstance(rest, tuple | list) else ())]
        type_name = next((word for word in words if isinstance(word, str) and not word.startswith("-")), None)
        if type_name is not None and not (
            given.get("unchecked") and type_name not in properties.type_names()
        ):
            properties.find_properties(type_name)
            ctx.meta[_TYPE] = type_name
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as err:
            shown = [param for param in self.get_params(ctx) if not getattr(param, "hidden", False)]
            flags = [name for param in shown for name in (*param.opts, *param.secondary_opts)]
            near = did_you_mean(err.option_name, [name for name in flags if name.startswith("--")])
            if err.option_name == "--force":  # in other commands, this option sends a manifest despite errors
                near = ", did you mean `--unchecked`?"
            about = " ".join([PROGRAM, "ensure", *([type_name] if type_name else [])])
            raise UsageError(
                f"{err.option_name}: no such flag{near or f'; `{about} --help` lists them'}"
            ) from err


class EnsureRunOptions(Options, frozen=True, kw_only=True):
    """The options of `ccmctl ensure`."""

    type_name: str
    name: str
    words: tuple[str, ...]
    start: RunOptions
    timeout: int | None
    prop: tuple[str, ...]
    diff: bool
    unchecked: bool
    properties: Properties


@verb(
    "ensure",
    kind=Ensure,
    examples=[
        "ccmctl ensure package nginx latest --targets role=web",
        "ccmctl ensure service nginx running --enable --targets role=web",
        "ccmctl ensure file /etc/motd present --content 'hello' --owner root --group root --mode 0644 -t node=web1 --yes",
        "ccmctl ensure archive /opt/app.tar.gz present --url https://example.net/app.tar.gz --owner root --group root --all",
        "ccmctl ensure scaffold /etc/app present --source /srv/app --all",
        "ccmctl ensure group web present --gid 900 --targets role=web",
        "ccmctl ensure user deploy present --uid 1500 --groups web --targets role=web",
        "ccmctl ensure edit /etc/hosts --line '192.0.2.7 db' --diff --targets role=web",
        "ccmctl ensure config /etc/app.toml key=server.port value:=8080 --targets role=web",
        "ccmctl ensure directory /var/backups/app max_age=30d --targets role=web",
        "ccmctl ensure symlink /srv/app/current --target releases/2.1 --targets role=web",
        "ccmctl ensure host db.example.net address=192.0.2.7 aliases=db --targets role=web",
        "ccmctl ensure systemd_unit backup.timer --source backup.timer --targets role=web",
        "ccmctl ensure kernel_module br_netfilter --targets role=web",
        "ccmctl ensure sysctl vm.swappiness value=10 --targets role=web",
        "ccmctl ensure system timezone value=Europe/Berlin --targets role=web",
        f"ccmctl ensure container web --image docker.io/library/nginx@sha256:{'0' * 64} --targets role=web",
        "ccmctl ensure cron backup --schedule '0 3 * * *' --command /usr/local/bin/backup --targets role=web",
        "ccmctl ensure repository local --uris file:/srv/rpm --trusted --all",
        "ccmctl ensure apply /etc/app/manifest.yaml --noop -t node=web1",
        "ccmctl ensure mount /srv mounted device=/dev/sdb1 --unchecked --all",
        "ccmctl ensure exec 'apt-get update' unless='test -e /run/updated' returns:='[0, 100]' --all",
    ],
    options=[
        Argument(["type_name"], metavar="TYPE"),
        Argument(["name"], metavar="NAME"),
        Argument(["words"], metavar="[ENSURE] [KEY=VALUE]...", nargs=-1, type=click.UNPROCESSED),
        *run_options(),
        click.Option(
            ["--prop", "-p"],
            multiple=True,
            metavar="KEY=VALUE",
            help="Set a property. Use KEY:=JSON for a value that is not text. May be repeated.",
        ),
        diff_option(),
        click.Option(
            ["--unchecked"],
            is_flag=True,
            help="Send the resource even if the check finds errors, such as types or properties of newer agents. "
            "Agents refuse resources that they cannot apply.",
        ),
    ],
)
@takes(EnsureRunOptions)
def ensure(application: Application, given: EnsureRunOptions) -> Exit:
    """
    Manage a single resource on nodes.

    `ccmctl ensure TYPE --help` lists the values of ENSURE and the properties of a type. Write properties as
    --KEY VALUE, KEY=VALUE or --prop KEY=VALUE.
    """
    type_name, start = given.type_name, given.start
    is_known = type_name in properties.type_names()
    wanted = properties.take_flags(type_name, given.properties) if is_known else {}
    read_properties(type_name, given.words, given.prop, wanted, unchecked=given.unchecked)
    wanted["name"] = given.name
    if not given.unchecked:
        check_properties(type_name, wanted)

    async def work(fleet: Fleet) -> Exit:
        inventory, resolved = await resolve(fleet, start.spec, is_once=True)
        title = f"{type_name}#{given.name}"
        await warn_of_resources(application, fleet, inventory, resolved.nodes, [title])
        await warn_of_open(application, fleet, resolved.nodes)
        if not await confirm(application, f"ensure {title} on", resolved, yes=start.yes):
            return NOT_AGREED
        deadline = parse_deadline(start.deadline, fleet.clock.now())
        request = EnsureRequest(
            protocol=RESOURCE_ENSURE,
            type=type_name,
            properties=wanted,
            deadline=deadline,
            diff=given.diff,
            message=start.message,
        )
        launch = prepare(fleet, request, resolved, "ensure", title, base=[Authored.from_arguments()])
        return await start_and_watch(
            application, fleet, launch, offline_ok=start.offline_ok, timeout_s=given.timeout
        )

    return application.run(work)


def read_properties(
    type_name: str,
    words: Sequence[str],
    props: Sequence[str],
    found: dict[str, Any],
    *,
    unchecked: bool = False,
) -> None:
    """
    Add the properties in the words of a command line to the properties from flags.

    Repeated lists and maps are extended. Texts are converted to the property's type, but KEY:=JSON values are not. With
    `unchecked`, unknown types and properties are accepted, and their values are texts.

    Raises:
        UsageError: A word is not a property, the type does not have the property, or its value is not valid.
    """
    for word in words:
        if "=" in word:
            _add_pair(found, type_name, word, unchecked=unchecked)
        elif "ensure" in found:
            raise UsageError(f"{word}: not a property; write it as KEY=VALUE")
        else:
            properties.add(found, type_name, "ensure", word, unchecked=unchecked)
    for prop in props:
        if "=" not in prop:
            raise UsageError(f"--prop {prop}: write it as KEY=VALUE")
        _add_pair(found, type_name, prop, unchecked=unchecked)


def _add_pair(found: dict[str, Any], type_name: str, word: str, *, unchecked: bool) -> None:
    key, _, value = word.partition("=")
    is_json = key.endswith(":")
    key = key.removesuffix(":").replace("-", "_")
    if not key:
        raise UsageError("a property needs a name: write it as KEY=VALUE")
    if not is_json:
        properties.add(found, type_name, key, value, unchecked=unchecked)
        return
    try:
        decoded = msgspec.json.decode(value)
    except msgspec.DecodeError as err:
        raise UsageError(f"{key}: the value after := is not JSON: {err}") from err
    properties.add(found, type_name, key, decoded, unchecked=unchecked)
