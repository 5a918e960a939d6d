"""`ccmctl ensure`: one resource on many nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from ccm_agent.model.errors import UsageError
from ccm_agent.model.wire import RESOURCE_ENSURE, EnsureRequest
from ccm_ctl.commands.apply import deadline_of
from ccm_ctl.commands.targets import NOT_AGREED, agreed, run_options, wish_of
from ccm_ctl.commands.tree import verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccm_agent.model.exits import Exit
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.ports import Fleet


@verb(
    "ensure",
    examples=[
        "ccmctl ensure package nginx latest --targets role=web",
        "ccmctl ensure service nginx running enable=true --targets role=web",
        "ccmctl ensure file /etc/motd present --content 'hello' --owner root --group root --mode 0644 -t node=web1 --yes",
        "ccmctl ensure exec 'apt-get update' returns:='[0, 100]' --all",
    ],
    options=[
        click.Argument(["type_name"], metavar="TYPE"),
        click.Argument(["name"], metavar="NAME"),
        click.Argument(["words"], metavar="[STATE] [KEY=VALUE]...", nargs=-1, type=click.UNPROCESSED),
        *run_options(),
        click.Option(["--prop", "-p"], multiple=True, metavar="KEY=VALUE", help="A property; KEY:=JSON for other than text."),
    ],
    context_settings={"ignore_unknown_options": True},
)  # fmt: skip
def ensure(application: Application, type_name: str, name: str, **options: Any) -> Exit:
    """
    Ensure one resource on nodes, as a run.

    Properties are written KEY=VALUE, --KEY VALUE or --prop KEY=VALUE; a word alone is the state that is wanted.
    """
    properties = read_properties([*options["words"]], options["prop"])
    properties["name"] = name

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.commands.watching import start_and_watch
        from ccm_ctl.fleet.discovery import resolve
        from ccm_ctl.fleet.launch import prepare

        _, resolved = await resolve(fleet, wish_of(options))
        title = f"{type_name}#{name}"
        if not await agreed(application, f"ensure {title} on", resolved, yes=options["yes"]):
            return NOT_AGREED
        deadline = deadline_of(options["deadline"], fleet.clock.now())
        request = EnsureRequest(
            protocol=RESOURCE_ENSURE, type=type_name, properties=properties, deadline=deadline
        )
        launch = prepare(fleet, request, resolved, "ensure", title)
        return await start_and_watch(application, fleet, launch, offline_ok=options["offline"] == "ok")

    return application.run(work)


def read_properties(words: Sequence[str], props: Sequence[str]) -> dict[str, Any]:
    """
    Properties of a command line.

    A key given more than once is a list. `true` and `false` are booleans, everything else is text unless written KEY:=JSON.

    Raises:
        UsageError: A word is none of them, or a value is missing.
    """
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            key, equals, value = word.removeprefix("--").partition("=")
            if not equals:
                has_value = bool(rest) and not rest[0].startswith("--")
                value = rest.pop(0) if has_value else "true"
            _add(found, key.replace("-", "_"), _value(value))
        elif "=" in word:
            _add_pair(found, word)
        elif "ensure" in found:
            raise UsageError(f"{word}: not a property; write it as KEY=VALUE")
        else:
            found["ensure"] = word
    for prop in props:
        if "=" not in prop:
            raise UsageError(f"--prop {prop}: write it as KEY=VALUE")
        _add_pair(found, prop)
    return found


def _add_pair(found: dict[str, Any], word: str) -> None:
    key, _, value = word.partition("=")
    if key.endswith(":"):
        try:
            _add(found, key[:-1], msgspec.json.decode(value))
        except msgspec.DecodeError as err:
            raise UsageError(f"{word}: what follows := is not JSON: {err}") from err
        return
    _add(found, key, _value(value))


def _add(found: dict[str, Any], key: str, value: Any) -> None:
    if not key:
        raise UsageError("a property needs a name: write it as KEY=VALUE")
    if key in found:
        before = found[key] if isinstance(found[key], list) else [found[key]]
        found[key] = [*before, value]
    else:
        found[key] = value


def _value(text: str) -> str | bool:
    return {"true": True, "false": False}.get(text, text)
