"""
Options made from the properties of a resource type, for both programs.

`ccm` reads the properties from the type itself. `ccmctl` does not have the code of types, so it reads the type's JSON Schema.
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
"""The kinds of options for properties. Options of the kinds LIST and MAP can be repeated. MAP takes KEY=VALUE."""

_METAVARS = {NUMBER: "N", NUMBERS: "N", MAP: "KEY=VALUE"}
_QUOTED = lazy_pattern(r"`(\w+)`")
_CHECK = ("check", "check_tries", "check_sleep")
CONTROLS = ("if", "unless")

Properties = dict[str, Any]
"""The properties of a resource, from the options of a command. Only the type's schema defines their names and types."""


class Property(Struct, frozen=True, kw_only=True):
    """
    A property for use as an option.

    Attributes:
        about: The description.
        kind: The kind of option, such as TEXT; "" if no option can express the property.
        values: The allowed values; empty if any value is allowed.
        is_secret: Whether the value is secret. If so, there is no option, because other users can read command lines.
    """

    about: str
    kind: str
    values: tuple[str, ...] = ()
    is_secret: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        """The values that a shell offers. If any value is allowed, these are the quoted values in the description."""
        return self.values or tuple(_QUOTED.findall(self.about))


def section_of(type_name: str) -> str:
    """Return the title of the help section for the options of a type."""
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
    Return the option of a property.

    Args:
        names: The names of the option and of its parameter, in click's form.
        what: The property.
        section: The section of the help screen.
        metavar: The placeholder of the value in help.
        default: The value that is used if the option is not given.
        hidden: Whether the option is omitted from the help.
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
    """Return the options of every resource that are not plain properties: a health check, `--if` and `--unless`."""

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
    """Remove the properties of `control_options` from those of a command, and return them."""
    check, tries, pause = (given.pop(f"{prefix}{name}") for name in _CHECK)
    control = {name: value for name in CONTROLS if (value := given.pop(f"{prefix}{name}"))}
    found: Properties = {"control": control} if control else {}
    if check:
        found["health_checks"] = [{"command": check, "tries": tries, "try_sleep": pause}]
    return found


def split_pair(text: str) -> tuple[str, str] | None:
    """Split `KEY=VALUE` or `KEY:VALUE` at the first `=` or `:`; None if the key or the separator is missing."""
    mark = min("=:", key=lambda one: text.find(one) if one in text else len(text))
    key, mark, value = text.partition(mark)
    return (key, value) if key and mark else None
