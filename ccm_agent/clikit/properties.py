"""
Options made from the properties of a resource type, alike in both programs.

`ccm` reads the properties from the type itself, `ccmctl` from the type's JSON Schema, because it has no code of types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from msgspec import Struct

from ccm_agent.clikit.commands import Option
from ccm_agent.model.formats.patterns import lazy_pattern

EVERY_RESOURCE = "Properties of every resource"
"""The section of options that all types have."""

TEXT, SWITCH, NUMBER, LIST, NUMBERS, MAP = "text", "switch", "number", "list", "numbers", "map"
"""How a property is written. A list may be repeated, and so may a map, which takes KEY=VALUE."""

_METAVARS = {NUMBER: "N", NUMBERS: "N", MAP: "KEY=VALUE"}
_QUOTED = lazy_pattern(r"`(\w+)`")
_CHECK = ("check", "check_tries", "check_sleep")
CONTROLS = ("if", "unless")

Properties = dict[str, Any]
"""The properties of a resource, as the options of a command give them: only the type's schema knows their names and types."""


class Property(Struct, frozen=True, kw_only=True):
    """
    A property, as a command line needs it.

    Attributes:
        about: Its description.
        kind: How it is written: TEXT and so on; "" if no option can say it.
        values: The values that it may have; empty for any.
        is_secret: It has no option, because other users of a host can read command lines.
    """

    about: str
    kind: str
    values: tuple[str, ...] = ()
    is_secret: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        """The values that a shell offers: where any is allowed, those that the description quotes."""
        return self.values or tuple(_QUOTED.findall(self.about))


def section_of(type_name: str) -> str:
    """The section of the options of one type."""
    return f"Properties of {'an' if type_name[:1] in 'aeiou' else 'a'} {type_name}"


def property_option(
    names: Sequence[str],
    what: Property,
    *,
    section: str,
    metavar: str = "",
    default: Any = None,
    hidden: bool = False,
) -> click.Option:
    """
    The option of a property.

    Args:
        names: Its names and that of its parameter, as click takes them.
        what: The property.
        section: The section of the help screen.
        metavar: What help calls its value.
        default: Its value when it is not given.
        hidden: Help does not list it.
    """
    if what.kind == SWITCH:
        return Option(names, is_flag=True, default=None, help=what.about, section=section, hidden=hidden)
    many = what.kind in (LIST, NUMBERS, MAP)
    return Option(
        names,
        type=click.INT if what.kind in (NUMBER, NUMBERS) else click.STRING,
        multiple=many,
        default=tuple(default or ()) if many else default,
        metavar=metavar or _METAVARS.get(what.kind, "TEXT"),
        help=what.about,
        section=section,
        hidden=hidden,
    )


def control_options(prefix: str) -> list[click.Option]:
    """The options of every resource that are not properties of their own: a health check, `--if` and `--unless`."""

    def option(name: str, metavar: str, about: str, **settings: Any) -> click.Option:
        names = [f"--{name.replace('_', '-')}", f"{prefix}{name}"]
        return Option(names, metavar=metavar, help=about, section=EVERY_RESOURCE, **settings)

    return [
        option("check", "COMMAND", "Health check: a command that follows the Nagios plugin conventions."),
        option(
            "check_tries",
            "N",
            "Maximum attempts of the health check.",
            type=int,
            default=5,
            show_default=True,
        ),
        option("check_sleep", "DURATION", "Time between attempts.", default="1s", show_default=True),
        option("if", "EXPR", "Manage the resource only if this expression is true."),
        option("unless", "EXPR", "Skip the resource if this expression is true."),
    ]


def take_controls(given: Properties, prefix: str) -> Properties:
    """The properties that `control_options` gave, taken out of those of a command."""
    check, tries, pause = (given.pop(f"{prefix}{name}") for name in _CHECK)
    control = {name: value for name in CONTROLS if (value := given.pop(f"{prefix}{name}"))}
    found: Properties = {"control": control} if control else {}
    if check:
        found["health_checks"] = [{"command": check, "tries": tries, "try_sleep": pause}]
    return found


def split_pair(text: str) -> tuple[str, str] | None:
    """The key and the value of `KEY=VALUE` or `KEY:VALUE`, at the first of both marks; None without a key or a mark."""
    mark = min("=:", key=lambda one: text.find(one) if one in text else len(text))
    key, mark, value = text.partition(mark)
    return (key, value) if key and mark else None
