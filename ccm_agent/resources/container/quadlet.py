"""
Writes and reads quadlets in the form of this type. No I/O.

Each free-text value is a single quoted word on its line. Percent signs and dollar signs are doubled, because systemd expands
specifiers, and variables in `ExecStart=`.

Source: podman-systemd.unit(5), systemd.syntax(7); podman 5.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import MsgspecError, json

from ccm_agent.resources.container.model import ContainerProperties

START_LIMIT_S = 15 * 60
"""The time limit for starting a unit. A start may have to fetch the image."""

_HEAD = "# Managed by CCM: changes are lost.\n"
_ESCAPED = re.compile(r"\\(x22|\\)")
_MULTIPLE = {"PublishPort": "ports", "Volume": "volumes", "EnvironmentFile": "environment_files"}
_SINGLE = {"Image": "image", "Network": "network", "HealthInterval": "health_interval"}
KEYS = frozenset(
    {*_MULTIPLE, *_SINGLE, "ContainerName", "Exec", "User", "Group", "Label", "PodmanArgs", "HealthCmd"}
)
"""The settings of `[Container]` that this type writes."""


def render(wanted: ContainerProperties) -> bytes:
    """Return the content of the quadlet."""
    container = "".join(f"{key}={value}\n" for key, value in _container(wanted))
    service = f"[Service]\nRestart={wanted.restart}\nTimeoutStartSec={START_LIMIT_S}\n"
    install = "\n[Install]\nWantedBy=multi-user.target\n" if wanted.enable else ""
    return f"{_HEAD}[Unit]\nDescription=Container {wanted.name}\n\n[Container]\n{container}\n{service}{install}".encode()


def render_variables(wanted: ContainerProperties) -> bytes:
    """Return the content of the file with the variables. podman reads each whole line and does not interpret quotes."""
    return "".join(f"{one}\n" for one in wanted.environment).encode()


def is_written_by_us(quadlet: bytes) -> bool:
    """Whether a quadlet begins with the header that this type writes."""
    return quadlet.startswith(_HEAD.encode())


def parse(name: str, quadlet: bytes, variables: bytes) -> ContainerProperties | None:
    """Return the properties in a quadlet and its variables. None if this type would write the files differently."""
    found = ContainerProperties(name=name, enable=b"\n[Install]\n" in quadlet)
    try:
        for line in quadlet.decode().splitlines():
            key, equals, value = line.partition("=")
            if equals:
                _read(found, key, value)
        found.environment = variables.decode().splitlines()
    except (ValueError, MsgspecError):
        return None
    return found if (render(found), render_variables(found)) == (quadlet, variables) else None


def _container(wanted: ContainerProperties) -> Iterator[tuple[str, str]]:
    yield "ContainerName", wanted.name
    yield "Image", wanted.image
    if wanted.command:
        yield "Exec", " ".join(_quote(one) for one in wanted.command)
    if wanted.environment:
        yield "EnvironmentFile", wanted.variables_path
    for key, field in _MULTIPLE.items():
        for value in getattr(wanted, field):
            yield key, value
    if wanted.network:
        yield "Network", wanted.network
    user, _, group = wanted.user.partition(":")
    if user:
        yield "User", user
    if group:
        yield "Group", group
    for label, value in sorted(wanted.labels.items()):
        yield "Label", _quote(f"{label}={value}")
    if wanted.memory:
        yield "PodmanArgs", f"--memory={wanted.memory}"
    if wanted.health_command:
        yield "HealthCmd", _double(json.encode(wanted.health_command).decode())
        if wanted.health_interval:
            yield "HealthInterval", wanted.health_interval


def _read(found: ContainerProperties, key: str, value: str) -> None:
    if key in _MULTIPLE:
        if value != found.variables_path:
            getattr(found, _MULTIPLE[key]).append(value)
    elif key in _SINGLE:
        setattr(found, _SINGLE[key], value)
    elif key == "Exec":
        found.command = [_unquote(one) for one in value[1:-1].split('" "')]
    elif key == "User":
        found.user = value
    elif key == "Group":
        found.user += f":{value}"
    elif key == "Label":
        label, _, text = _unquote(value[1:-1]).partition("=")
        found.labels[label] = text
    elif key == "PodmanArgs":
        found.memory = value.removeprefix("--memory=")
    elif key == "HealthCmd":
        found.health_command = json.decode(value.replace("%%", "%").replace("$$", "$"), type=list[str])
    elif key == "Restart":
        found.restart = value


def _quote(word: str) -> str:
    # escape quotes as numbers, so that quotes only delimit words
    escaped = word.replace("\\", "\\\\").replace('"', "\\x22")
    return f'"{_double(escaped)}"'


def _unquote(text: str) -> str:
    plain = text.replace("%%", "%").replace("$$", "$")
    return _ESCAPED.sub(lambda found: '"' if found[1] == "x22" else "\\", plain)


def _double(text: str) -> str:
    return text.replace("%", "%%").replace("$", "$$")
