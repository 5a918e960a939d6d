"""
Checks the properties of a container. Values that are written unquoted to a quadlet may only contain characters that need no
quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ccm_agent.model.resource import ABSENT
from ccm_agent.resources.checks import canonical_path, check_each, refuse
from ccm_agent.resources.container.model import ContainerProperties

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
NAME_LENGTH = 100
LISTED = 200
TEXT_LENGTH = 4096
"""The maximum length of a text. systemd allows 1 MiB per line of a unit, and Linux allows 128 KiB per argument of a program."""
SHOWN = 100
RESTARTS = ("on-failure", "always", "no")

# If the registry has no dot or port, podman would search its configured registries. Names such as `docker-archive:/x` refer to
# files of the host.
_TRANSPORTS = (
    "dir|docker|docker-archive|docker-daemon|oci|oci-archive|containers-storage|ostree|sif|tarball|atomic"
)
_REGISTRY = (
    rf"(?!(?:{_TRANSPORTS}):)(?:localhost|(?=[^/]*\.|[^/]*:[0-9])[A-Za-z0-9][A-Za-z0-9.-]*)(?::[0-9]{{1,5}})?"
)
_REPOSITORY = rf"{_REGISTRY}(?:/[A-Za-z0-9][A-Za-z0-9._-]*)+"
_TAG = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"@sha256:[0-9a-f]{64}"
_IMAGE = re.compile(rf"{_REPOSITORY}(?:{_TAG})?(?P<digest>{_DIGEST})?")
_PATH = r"/[A-Za-z0-9_.,+@=/-]*"
_FILE = re.compile(_PATH)
_VOLUME = re.compile(
    rf"(?P<source>{_PATH}|[A-Za-z0-9][A-Za-z0-9_.-]*):(?P<target>{_PATH})(?::[A-Za-z0-9=,-]+)?"
)
_CHANGING = frozenset({"rw", "U", "z", "Z"})
"""
Volume options that permit changes of the source. With `U`, `z` and `Z`, podman changes owners or labels, even if the mount is
read-only.
"""
_RANGE = r"[0-9]{1,5}(?:-[0-9]{1,5})?"
_PORT = re.compile(rf"(?:(?:[0-9.]{{7,15}}|\[[0-9a-fA-F:]+\]):)?(?:{_RANGE}:)?{_RANGE}(?:/(?:tcp|udp|sctp))?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?::[A-Za-z0-9_][A-Za-z0-9_.-]*)?")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MEMORY = re.compile(r"[1-9][0-9]{0,17}[bkmg]?")
_INTERVAL = re.compile(r"[1-9][0-9]{0,5}(?:ms|s|m|h)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")
_QUADLETS = (".container", ".volume", ".network", ".pod", ".image", ".build", ".kube")
"""Suffixes of quadlet files. quadlet treats a name with such a suffix as a reference to one of these files."""


def check(wanted: ContainerProperties) -> None:
    """Refuse values that podman, quadlet or systemd would interpret differently."""
    check_each(
        wanted,
        _check_name,
        _check_image,
        _check_command,
        _check_environment,
        _check_files,
        _check_ports,
        _check_volumes,
        _check_network,
        _check_labels,
        _check_words,
        _check_health,
    )


def sources(wanted: ContainerProperties) -> Iterator[tuple[str, bool]]:
    """Yield each host path in `volumes`, and whether the container or podman can change its content."""
    for volume in wanted.volumes:
        source, _, rest = volume.partition(":")
        if source.startswith("/"):
            options = rest.partition(":")[2].split(",")
            yield source, "ro" not in options or not _CHANGING.isdisjoint(options)


def opened_paths(wanted: ContainerProperties) -> list[str]:
    """Return the host paths that podman opens as root."""
    return [*(path for path, _ in sources(wanted)), *wanted.environment_files]


def _check_name(wanted: ContainerProperties) -> None:
    name = wanted.name
    if len(name) > NAME_LENGTH or not NAME.fullmatch(name):
        refuse(
            f"{name[:SHOWN]!r} cannot be the name of a container: only letters, digits, `_`, `.` and `-` are allowed, at most "
            f"{NAME_LENGTH}, and the first one is a letter or a digit",
            "name",
        )


def _check_image(wanted: ContainerProperties) -> None:
    image = wanted.image
    if not image:
        if wanted.ensure != ABSENT:
            refuse("`image` is required, such as `docker.io/library/nginx@sha256:…`", "image")
        return
    match = _IMAGE.fullmatch(image) if len(image) <= TEXT_LENGTH else None
    if match is None:
        refuse(
            f"{image[:SHOWN]!r} is not an image: write it with its registry, such as `docker.io/library/nginx@sha256:…`",
            "image",
        )
    if not match["digest"] and not wanted.allow_tag:
        refuse(
            f"`{image[:SHOWN]}` has no digest, so its content may change: write `NAME@sha256:…`, as shown by `podman image "
            "inspect --format '{{.RepoDigests}}'`, or set `allow_tag: true`",
            "image",
        )


def _check_command(wanted: ContainerProperties) -> None:
    _check_arguments(wanted.command, "command")


def _check_health(wanted: ContainerProperties) -> None:
    words = wanted.health_command
    _check_arguments(words, "health_command")
    if words and (not words[0] or words[0].upper() in ("CMD", "CMD-SHELL", "NONE")):
        refuse(f"`health_command` must begin with the program, not with {words[0]!r}", "health_command[0]")
    if len(words) == 1 and not _PLAIN.fullmatch(words[0]):
        # podman passes a command of a single word to a shell
        refuse("`health_command` must be a list with one element for each argument", "health_command")
    if wanted.health_interval and not words:
        refuse("`health_interval` requires `health_command`", "health_interval")
    if wanted.health_interval and not _INTERVAL.fullmatch(wanted.health_interval):
        refuse(
            f"{wanted.health_interval[:SHOWN]!r} is not an interval, such as `10s` or `1m`", "health_interval"
        )


def _check_arguments(words: list[str], field: str) -> None:
    if len(words) > LISTED:
        refuse(f"`{field}` has more than {LISTED} arguments", field)
    for index, word in enumerate(words):
        _check_text(word, f"{field}[{index}]")


def _check_text(text: str, place: str) -> None:
    if _CONTROL.search(text):
        refuse(
            "it contains a newline or another control character, which would end the line of the quadlet",
            place,
        )
    if len(text) > TEXT_LENGTH:
        refuse(f"it is longer than {TEXT_LENGTH} characters", place)
    try:
        text.encode()
    except UnicodeEncodeError:
        refuse("it is not UTF-8", place)


def _check_environment(wanted: ContainerProperties) -> None:
    if len(wanted.environment) > LISTED:
        refuse(f"`environment` has more than {LISTED} variables", "environment")
    names: set[str] = set()
    for index, one in enumerate(wanted.environment):
        name, equals, value = one.partition("=")
        place = f"environment[{index}]"
        if not equals or not _VARIABLE.fullmatch(name):
            refuse(
                "a variable must be `NAME=value`; its name may contain only letters, digits and `_`", place
            )
        if name in names:
            refuse(f"the variable `{name}` is given twice", place)
        names.add(name)
        if _CONTROL.search(value) or not value.isprintable():
            refuse(f"the value of `{name}` has a newline or another control character", place)
        if value != value.strip():
            refuse(f"the value of `{name}` begins or ends with a space, which podman removes", place)
        if len(value) > TEXT_LENGTH:
            refuse(f"the value of `{name}` is longer than {TEXT_LENGTH} characters", place)


def _check_files(wanted: ContainerProperties) -> None:
    for index, path in enumerate(wanted.environment_files):
        place = f"environment_files[{index}]"
        _check_path(path, place)
        if path == wanted.variables_path:
            refuse(f"`{path}` is reserved for `environment`", place)


def _check_ports(wanted: ContainerProperties) -> None:
    for index, port in enumerate(wanted.ports):
        numbers = [
            int(one) for one in re.findall(r"(?<![0-9.])[0-9]{1,5}(?![0-9.])", port.partition("]")[2] or port)
        ]
        if not _PORT.fullmatch(port) or not all(0 < one <= 65535 for one in numbers):
            refuse(
                f"{port[:SHOWN]!r} is not a published port: write `[IP:]HOST:CONTAINER[/udp]`, such as `8080:80`",
                f"ports[{index}]",
            )


def _check_volumes(wanted: ContainerProperties) -> None:
    for index, volume in enumerate(wanted.volumes):
        place = f"volumes[{index}]"
        match = _VOLUME.fullmatch(volume) if len(volume) <= TEXT_LENGTH else None
        if match is None or match["source"].endswith(_QUADLETS):
            refuse(
                f"{volume[:SHOWN]!r} is not a volume: write `SOURCE:TARGET[:OPTIONS]`. The source is an absolute path or the "
                "name of a volume; paths cannot have spaces, quotes or `%`",
                place,
            )
        for path in (match["source"], match["target"]):
            if path.startswith("/"):
                _check_path(path, place)


def _check_path(path: str, place: str) -> None:
    if len(path) > TEXT_LENGTH or not _FILE.fullmatch(path):
        refuse(f"{path[:SHOWN]!r} is not an absolute path without spaces, quotes and `%`", place)
    if canonical_path(path) != path:
        refuse(f"the path must be canonical: write `{canonical_path(path)[:SHOWN]}`", place)


def _check_network(wanted: ContainerProperties) -> None:
    network = wanted.network
    if network and (len(network) > NAME_LENGTH or not NAME.fullmatch(network) or network.endswith(_QUADLETS)):
        refuse(f"{network[:SHOWN]!r} must be `host`, `none` or the name of a network", "network")


def _check_labels(wanted: ContainerProperties) -> None:
    if len(wanted.labels) > LISTED:
        refuse(f"`labels` has more than {LISTED} entries", "labels")
    for label, value in wanted.labels.items():
        if len(label) > NAME_LENGTH or not _LABEL.fullmatch(label):
            refuse(f"{label[:SHOWN]!r} is not the name of a label", "labels")
        _check_text(value, f"labels.{label}")


def _check_words(wanted: ContainerProperties) -> None:
    if wanted.user and (len(wanted.user) > NAME_LENGTH or not _USER.fullmatch(wanted.user)):
        refuse(f"{wanted.user[:SHOWN]!r} is not a valid user: write `USER` or `USER:GROUP`", "user")
    if wanted.memory and not _MEMORY.fullmatch(wanted.memory):
        refuse(f"{wanted.memory[:SHOWN]!r} is not a memory size, such as `512m`", "memory")
    if wanted.restart not in RESTARTS:
        refuse(f"`restart` must be one of {', '.join(RESTARTS)}, not {wanted.restart[:SHOWN]!r}", "restart")
