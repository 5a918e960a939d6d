"""
All errors that this project raises intentionally, in one tree.

    CcmError
    ├── InputError                the input cannot be used: nothing was changed
    │   ├── DocumentError         a document does not parse or does not fit its schema (file, line, `$.path`)
    │   │   └── MisfitError       a key is unknown, or a value has the wrong type
    │   ├── ManifestError         a manifest parses but is invalid
    │   ├── ExpressionError       an expression does not parse, does not type-check or fails (place in its text)
    │   │   └── ExpressionLimitError  it exceeds the limits of steps, time or memory
    │   ├── TemplateError         a whole-file template does not parse or fails (file, line)
    │   │   └── TemplateLimitError    it exceeds the limits of time or memory
    │   ├── DataError             hiera data cannot be resolved or violates its own rules
    │   ├── PropertyError         a property of a resource has a value that its type refuses
    │   ├── SelectorError         a target selector does not parse
    │   │   └── SelectorLimitError    it exceeds the limits of steps or time
    │   └── UsageError            a command line is wrong
    ├── HostError                 an operation on this host failed
    │   ├── FileError             a file operation failed
    │   ├── CommandError          a program could not be started, failed or took too long
    │   ├── DownloadError         a URL could not be fetched
    │   ├── LockError             another process holds a needed lock
    │   ├── FactUnavailableError  a fact cannot be read on this host
    │   ├── NoProviderError       no provider of a type works on this host
    │   ├── TimeLimitError        a resource took longer than its `timeout`
    │   └── DesiredStateError     a resource was changed but is still not in its desired state
    ├── BusError                  a problem with the broker or a message
    │   ├── BusUnavailableError   cannot connect to the broker
    │   ├── BusDeniedError        the broker refused: credentials or permissions
    │   ├── BusSetupError         a stream or bucket is missing, or the server is too old
    │   ├── RevisionError         a key was changed after it was read
    │   ├── UnsettledError        an answer may be incomplete, because the broker was recently unreachable
    │   ├── NotFoundError         a key, object or message does not exist
    │   ├── RevisionGoneError     the requested revision is no longer stored
    │   └── ProtocolError         a message violates the protocol and is refused
    ├── PolicyError               the node's policy forbids it
    ├── PlanError                 a plan cannot be applied: the node does not have it, or has changed since
    ├── UndoError                 a run cannot be undone on this node
    ├── PruneError                more resources left the manifest than a run may remove
    ├── Refusal                   a node does not start a run now (the code is the reason)
    └── FleetError                the controller cannot perform an operation on the fleet
        ├── NoTargetError         a target matches no node
        ├── ConflictError         two assignments manage the same resource
        └── RunError              a run does not exist or does not allow the change

Each has a stable `code`, which is part of events and of `--json`. The message contains the problem, its reason and a fix.
"""

from __future__ import annotations

from msgspec import Struct


class Place(Struct, frozen=True):
    """
    A position in a text.

    Attributes:
        source: File name, bucket key or other name of the text; "" if it has none.
        line: Line, from 1; 0 if unknown.
        column: Column in characters, from 1; 0 if unknown.
        path: Path to a value, similar to JSONPath, such as `$.ccm.resources[0].file`; "" if unknown. It is
            shown only if the line is unknown.
    """

    source: str = ""
    line: int = 0
    column: int = 0
    path: str = ""

    def __str__(self) -> str:
        text = self.source
        if self.line:
            text += f":{self.line}" if text else f"line {self.line}"
            if self.column:
                text += f":{self.column}"
        elif self.path:
            text += f": {self.path}" if text else self.path
        return text


class CcmError(Exception):
    """An expected error without a code of its own."""

    code = "ccm.error"

    def __init__(self, message: str, *, place: Place | None = None) -> None:
        self.message = message
        self.place = place
        super().__init__(f"{place}: {message}" if place and str(place) else message)


class InputError(CcmError):
    """The input cannot be used; nothing was changed."""

    code = "input.invalid"


class DocumentError(InputError):
    """
    A document does not parse or does not fit its schema.

    Attributes:
        others: Further errors of the same document.
    """

    code = "input.document"
    others: tuple[DocumentError, ...] = ()


class MisfitError(DocumentError):
    """
    A key is unknown, a value is missing or has the wrong type.

    Attributes:
        path: The path from the converted value.
        unknown_key: The unknown key; "" if a value is invalid.
        known: The known keys at this place; empty if they cannot be determined.
    """

    def __init__(
        self,
        message: str,
        *,
        place: Place | None = None,
        path: tuple[str | int, ...] = (),
        unknown_key: str = "",
        known: tuple[str, ...] = (),
    ) -> None:
        self.path = path
        self.unknown_key = unknown_key
        self.known = known
        super().__init__(message, place=place)


class ManifestError(InputError):
    """A manifest parses but is invalid: an unknown type, two resources of the same name, no resources."""

    code = "input.manifest"


class ExpressionError(InputError):
    """
    An expression does not parse, does not type-check or fails while it runs.

    Attributes:
        expression: The whole text of the expression.
        offset: The position of the error, in characters from 0.
    """

    code = "input.expression"

    def __init__(
        self, message: str, *, expression: str = "", offset: int = 0, place: Place | None = None
    ) -> None:
        self.expression = expression
        self.offset = offset
        super().__init__(message, place=place)


class ExpressionLimitError(ExpressionError):
    """An expression exceeds its limits of steps, time or memory."""

    code = "expression.too_costly"


class TemplateError(InputError):
    """A whole-file template does not parse or fails while it runs."""

    code = "input.template"


class TemplateLimitError(TemplateError):
    """A whole-file template exceeds its limits of time, memory or output."""

    code = "template.too_costly"


class DataError(InputError):
    """Hiera data cannot be resolved, or violates its own rules."""

    code = "input.data"


class PropertyError(InputError):
    """
    A property of a resource has a value that its type refuses.

    Attributes:
        others: Further errors of the same resource.
    """

    code = "input.property"

    def __init__(
        self, message: str, *, place: Place | None = None, others: tuple[InputError, ...] = ()
    ) -> None:
        self.others = others
        super().__init__(message, place=place)


class SelectorError(InputError):
    """A target selector does not parse."""

    code = "input.selector"


class SelectorLimitError(SelectorError):
    """A target selector exceeds its limits of steps or time."""

    code = "selector.too_costly"


class UsageError(InputError):
    """A command line is wrong."""

    code = "input.usage"


class HostError(CcmError):
    """
    An operation on this host failed.

    Attributes:
        output: The end of the failed command's output, for the event of a failed resource; "" if there was no command.
    """

    code = "host.error"

    def __init__(self, message: str, *, output: str = "", place: Place | None = None) -> None:
        self.output = output
        super().__init__(message, place=place)


class FileError(HostError):
    """
    A file operation failed.

    Attributes:
        errno: The system's error number, such as `errno.ENOTEMPTY`; 0 if a rule of this program refused the operation.
    """

    code = "host.file"

    def __init__(self, message: str, *, errno: int = 0, place: Place | None = None) -> None:
        self.errno = errno
        super().__init__(message, place=place)


class CommandError(HostError):
    """A program could not be started, failed or took too long; `output` is the end of its output."""

    code = "host.command"


class DownloadError(HostError):
    """A URL could not be fetched."""

    code = "host.download"


class LockError(HostError):
    """Another process holds a needed lock."""

    code = "host.lock"


class FactUnavailableError(HostError):
    """A fact cannot be read on this host."""

    code = "host.fact"


class NoProviderError(HostError):
    """No provider of a resource type works on this host, or the requested provider does not."""

    code = "host.no_provider"


class TimeLimitError(HostError):
    """A resource took longer than its `timeout`, and its programs were terminated."""

    code = "host.timeout"


class DesiredStateError(HostError):
    """A resource was changed but is still not in its desired state."""

    code = "host.desired_state"


class BusError(CcmError):
    """A problem with the broker, the connection to it, or a message."""

    code = "bus.error"


class BusUnavailableError(BusError):
    """No broker answers at the configured address."""

    code = "bus.unavailable"


class BusDeniedError(BusError):
    """The broker refused the credentials or the operation."""

    code = "bus.denied"


class BusSetupError(BusError):
    """A stream or bucket is missing, or the server is too old for the operation."""

    code = "bus.setup"


class RevisionError(BusError):
    """A key was changed after it was read."""

    code = "bus.revision"


class UnsettledError(BusError):
    """The broker was recently unreachable, so an answer may be incomplete."""

    code = "bus.unsettled"


class NotFoundError(BusError):
    """A key, object or message does not exist."""

    code = "bus.not_found"


class RevisionGoneError(BusError):
    """The requested revision of a key is no longer stored, only newer revisions."""

    code = "data.revision_gone"


class ProtocolError(BusError):
    """A message violates the protocol and is refused."""

    code = "bus.protocol"


class SecretNotSealedError(BusError):
    """A secret is not sealed to this node, so the node cannot open it."""

    code = "secret.not_sealed"


class PolicyError(CcmError):
    """
    The node's policy forbids the operation.

    Attributes:
        code: `policy.` and the refused item, such as `policy.type`; UNKNOWN if a restricted plan cannot
            determine the result.
    """

    code = "policy.denied"
    UNKNOWN = "policy.unknown"

    def __init__(self, message: str, *, code: str = "policy.denied", place: Place | None = None) -> None:
        self.code = code
        super().__init__(message, place=place)

    @property
    def is_unknown(self) -> bool:
        """
        Whether the operation is not forbidden, but a restricted plan cannot determine the result of an apply.
        """
        return self.code == self.UNKNOWN


class Refusal(CcmError):
    """A node does not start a run or an assignment now; the answer contains the code."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class FleetError(CcmError):
    """The controller cannot perform an operation on the fleet."""

    code = "fleet.error"


class NoTargetError(FleetError):
    """A target matches no node."""

    code = "fleet.no_target"


class ConflictError(FleetError):
    """Two assignments manage the same resource of one node."""

    code = "fleet.conflict"


class PlanError(CcmError):
    """A plan cannot be applied: the node does not have it, or has changed since."""

    code = "run.plan"


class UndoError(CcmError):
    """A run cannot be undone on this node: there is no record of its changes."""

    code = "run.undo"


class PruneError(CcmError):
    """More resources left the manifest than `max_prune` allows a run to remove, so none was removed."""

    code = "run.prune"


class RunError(FleetError):
    """A run does not exist or does not allow the change."""

    code = "fleet.run"
