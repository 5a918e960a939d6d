"""Properties and state of containers."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ccm_agent.model.formats.field_rules import PublishNames, RunsCommand
from ccm_agent.model.resource import CommonProperties, CommonState

DIRECTORY = "/etc/containers/systemd"
MODE = 0o644
SECRET_MODE = 0o600
RUNNING, STOPPED = "running", "stopped"


class ContainerProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A container that systemd runs with podman."""

    name: Annotated[
        str,
        Meta(description="Name of the container."),
    ]
    ensure: Annotated[
        str,
        Meta(
            description="`running` (default), `stopped`, `present` (only its files are managed), or `absent`."
        ),
    ] = ""
    image: Annotated[
        str,
        RunsCommand,
        Meta(description="Image with registry and digest."),
    ] = ""
    allow_tag: Annotated[
        bool, Meta(description="Accept an image with a tag instead of a digest. Its content may change.")
    ] = False
    enable: Annotated[bool, Meta(description="Start it at boot. Default: yes.")] = True
    command: Annotated[
        list[str],
        RunsCommand,
        Meta(description="Command and arguments, instead of the image's."),
    ] = []
    environment: Annotated[
        list[str],
        PublishNames,
        Meta(description="Variables as `NAME=value`, in a file that only root can read."),
    ] = []
    environment_files: Annotated[
        list[str], Meta(description="Absolute paths of files with more variables.")
    ] = []
    ports: Annotated[
        list[str],
        Meta(description="Published ports as `[IP:]HOST:CONTAINER[/udp]`."),
    ] = []
    volumes: Annotated[
        list[str],
        Meta(
            description="Mounts as `SOURCE:TARGET[:OPTIONS]`; the source is a path or the name of a volume."
        ),
    ] = []
    network: Annotated[str, Meta(description="`host`, `none`, or the name of a network.")] = ""
    user: Annotated[str, Meta(description="User in the container as `USER[:GROUP]`.")] = ""
    labels: Annotated[dict[str, str], Meta(description="Labels of the container.")] = {}
    memory: Annotated[str, Meta(description="Memory limit, such as `512m`.")] = ""
    restart: Annotated[
        str,
        Meta(description="`on-failure` (default), `always` or `no`."),
    ] = "on-failure"
    health_command: Annotated[
        list[str],
        RunsCommand,
        Meta(description="Command in the container; exits with 0 if healthy."),
    ] = []
    health_interval: Annotated[str, Meta(description="Time between health checks. Default: `30s`.")] = ""
    health_timeout: Annotated[
        int,
        Meta(ge=1, le=3600, description="Seconds to wait for health after a start. Default: 60."),
    ] = 60
    subscribe: Annotated[
        list[str],
        Meta(description="Resources (`type#name`) that restart it when they change."),
    ] = []

    @property
    def unit(self) -> str:
        """The name of the unit that quadlet generates."""
        return f"{self.name}.service"

    @property
    def path(self) -> str:
        """The path of the quadlet."""
        return f"{DIRECTORY}/{self.name}.container"

    @property
    def variables_path(self) -> str:
        """
        The path of the file with `environment`. It is separate, because all users of the host can read arguments and generated
        units.
        """
        return f"{DIRECTORY}/{self.name}.env"

    @property
    def mode_bits(self) -> int:
        """The permissions of the quadlet."""
        return SECRET_MODE if self.sensitive else MODE


class ContainerState(CommonState, kw_only=True, dict=True):
    """
    The current state of a container. `ensure` is "present" if systemd was not queried.

    Attributes:
        path: The path of the quadlet.
        kind, variables_kind: The kinds of the entries at the paths of the quadlet and of the file with its variables: "absent",
            "file" or another kind.
        checksum, variables_checksum: SHA-256 of each file; "" if it does not exist.
        mode, variables_mode: Permissions of each file as four octal digits; "" if it does not exist.
        uid, variables_uid: Owner of each file; -1 if it does not exist.
        image: The image in the quadlet; "" if the quadlet was not read, or does not have the form that this type writes.
        active: The state of the unit as reported by systemd, such as "active" or "failed"; "" if systemd was not queried.
        health: The health as reported by podman, such as "healthy"; "" without `health_command`, or if the container does not
            run.
        needs_reload: Whether systemd must be reloaded, because it uses an earlier version of the quadlet or has not read it.
        has_quadlet: Whether podman's unit generator is installed.
        is_foreign: Whether the quadlet was not written by this type.
        unsafe_link: A symlink in the path of a volume or of an environment file that another user could replace; "" if there is
            none.
        error: The reason why a file cannot be read; "" if both can be read.
    """

    path: str
    kind: str = "absent"
    variables_kind: str = "absent"
    checksum: str = ""
    variables_checksum: str = ""
    mode: str = ""
    variables_mode: str = ""
    uid: int = -1
    variables_uid: int = -1
    image: str = ""
    active: str = ""
    health: str = ""
    needs_reload: bool = False
    has_quadlet: bool = True
    is_foreign: bool = False
    unsafe_link: str = ""
    error: str = ""

    @property
    def earlier(self) -> ContainerProperties | None:
        """
        The properties in the files; None if they do not have the form that this type writes. It is not a field, because variables
        may be secret.
        """
        found: ContainerProperties | None = self.__dict__.get("read")
        return found

    def keep(self, properties: ContainerProperties) -> None:
        """Store the properties that were read from the files."""
        self.__dict__["read"] = properties
        self.image = properties.image
