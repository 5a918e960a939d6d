"""
The files of a new resource type. The type works, and its author replaces it step by step.

It manages a text file and demonstrates every part of a type: properties, state, decision, verbs and noop texts.
"""

from __future__ import annotations

import keyword
import re
from pathlib import PurePosixPath

from ccm_agent.model.errors import UsageError

OWN_PACKAGE = "ccm_agent.resources"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_IMPORTS = re.compile(r"(?:^from (?!__future__|typing|msgspec)[a-z_][\w.]* import .*\n)+", re.MULTILINE)
_META = re.compile(r"(from msgspec import Meta\n)\n((?:from ccm_agent.*\n)+)\n")
_PACKAGE = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)*")


def render_files(name: str, package: str, provider: str) -> dict[PurePosixPath, str]:
    """
    Return the files of a type, by their paths below the directory that contains the package.

    Args:
        name: The name of the type.
        package: The package of its folder: `ccm_agent.resources`, or a package of another project.
        provider: Its first provider, which is named after the tool that it uses.

    Raises:
        UsageError: One of the arguments is not a valid name.
    """
    for what, word, form in (
        ("type", name, _NAME),
        ("provider", provider, _NAME),
        ("package", package, _PACKAGE),
    ):
        if not form.fullmatch(word) or any(keyword.iskeyword(part) for part in word.split(".")):
            raise UsageError(f"`{word}` is not a valid name of a {what}; use lowercase letters, digits and _")
    folder = PurePosixPath(*package.split("."), name)
    is_own = package == OWN_PACKAGE
    tests = PurePosixPath("tests/unit/resources" if is_own else "tests", name)
    words = {
        "@name@": name,
        "@Name@": "".join(part.capitalize() for part in name.split("_")),
        "@module@": f"{package}.{name}",
        "@provider@": provider,
        "@Provider@": "".join(part.capitalize() for part in provider.split("_")),
    }
    texts = {
        folder / "__init__.py": _INIT,
        folder / "model.py": _MODEL,
        folder / "resource.py": _RESOURCE,
        folder / "providers/__init__.py": "",
        folder / f"providers/{provider}.py": _PROVIDER,
        tests / f"test_{name}.py": _TEST,
        PurePosixPath("docs/resources", f"{name}.md"): _PAGE,
    }
    if not is_own:
        texts[folder.parent / "__init__.py"] = ""
    return {path: _filled(text, words, is_own) for path, text in texts.items()}


def _filled(text: str, words: dict[str, str], is_own: bool) -> str:
    """Replace the placeholders in a text, and put its imports in the order that linters require."""
    for mark, word in words.items():
        text = text.replace(mark, word)
    if not is_own:
        # in other projects, linters treat this program as a third-party library
        text = text.replace("import pytest\n\nfrom", "import pytest\nfrom")
        text = _META.sub(r"\2\1\n", text)
    return _IMPORTS.sub(lambda block: _sorted_imports(block[0], words["@module@"], is_own), text)


def _sorted_imports(block: str, module: str, is_own: bool) -> str:
    lines = sorted(block.splitlines(), key=lambda line: line.split()[1])
    if is_own:
        return "".join(f"{line}\n" for line in lines)
    theirs = [line for line in lines if not line.startswith(f"from {module}")]
    ours = [line for line in lines if line.startswith(f"from {module}")]
    return "\n".join([*theirs, "", *ours]) + "\n" if theirs and ours else block


_INIT = '''"""The @name@ type: text in files."""

from __future__ import annotations

from typing import Any

from ccm_agent.resources.contract import ProviderSpec, ResourceContext, ResourceType
from @module@.model import @Name@Properties, @Name@State
from @module@.resource import check, decide, reach


def _make_@provider@(context: ResourceContext) -> Any:
    from @module@.providers.@provider@ import @Provider@

    return @Provider@(context.files)


TYPE: ResourceType[@Name@Properties, @Name@State] = ResourceType(
    name="@name@",
    summary="Text in files.",
    properties=@Name@Properties,
    state=@Name@State,
    decide=decide,
    reach=reach,
    check=check,
    ensure=("present", "absent"),
    default_ensure="present",
    is_extension=True,
    providers=(ProviderSpec(name="@provider@", make=_make_@provider@),),
)
'''

_MODEL = '''"""Properties and state of @name@ resources."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ccm_agent.model.formats.field_rules import PublishDigest
from ccm_agent.model.resource import CommonProperties, CommonState


class @Name@Properties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Text in a file."""

    name: Annotated[str, Meta(description="Absolute path of the file.")]
    ensure: Annotated[str, Meta(description="`present` (default) or `absent`.")] = ""
    text: Annotated[str, PublishDigest, Meta(description="The file's content.")] = ""


class @Name@State(CommonState, kw_only=True):
    """
    The current state of the file; `ensure` is "present" or "absent".

    Attributes:
        text: The content; "" if the file is absent.
    """

    text: str = ""
'''

_RESOURCE = '''"""Decides the steps of a @name@ resource. Pure functions without I/O."""

from __future__ import annotations

from ccm_agent.model.errors import Place, PropertyError
from ccm_agent.model.resource import ABSENT
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from @module@.model import @Name@Properties, @Name@State


def check(wanted: @Name@Properties) -> None:
    """Refuse invalid properties."""
    if not wanted.name.startswith("/"):
        raise PropertyError(f"the path must be absolute, not `{wanted.name}`", place=Place(path="$.name"))


def reach(wanted: @Name@Properties) -> HostAccess:
    """Return the paths that the resource accesses, for the node's policy."""
    return HostAccess(paths=(wanted.name,))


def decide(wanted: @Name@Properties, found: @Name@State, context: DecisionContext) -> Decision:
    """Decide the steps; see docs/resources/@name@.md."""
    if wanted.ensure == ABSENT:
        if found.ensure == ABSENT:
            return Decision()
        step = Step(noop="Would have removed the text", action=lambda p: p.remove(wanted))
        return Decision(steps=(step,), reason="the file still exists")
    if found.ensure != ABSENT and found.text == wanted.text:
        return Decision()
    step = Step(noop="Would have written the text", action=lambda p: p.write(wanted))
    return Decision(steps=(step,), reason=f"the text is {found.text!r}")
'''

_PROVIDER = '''"""Manages text in files of this host through the files port."""

from __future__ import annotations

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import Files
from ccm_agent.model.resource import ABSENT, PRESENT
from @module@.model import @Name@Properties, @Name@State

LIMIT_BYTES = 1 << 20
MODE = 0o644


class @Provider@:
    """
    The provider `@provider@`. It reads and changes the state. All methods raise HostError if the host refuses.

    Args:
        files: The port.
    """

    def __init__(self, files: Files) -> None:
        self._files = files

    async def status(self, wanted: @Name@Properties) -> @Name@State:
        """Read the file; FileError if it is not a regular file."""
        look = (await self._files.inspect([wanted.name], digest=False))[0]
        if look.kind not in ("absent", "file"):
            raise FileError(f"{wanted.name} is not a file: {look.error or look.kind}")
        text = ""
        if look.kind == "file":
            text = (await self._files.read(wanted.name, LIMIT_BYTES)).decode(errors="replace")
        return @Name@State(
            protocol="io.choria.ccm.v1.resource.@name@.state",
            type="@name@",
            name=wanted.name,
            ensure=ABSENT if look.kind == "absent" else PRESENT,
            text=text,
        )

    async def write(self, wanted: @Name@Properties) -> None:
        """Write the text into the file."""
        await self._files.write(wanted.name, wanted.text.encode(), mode=MODE)

    async def remove(self, wanted: @Name@Properties) -> None:
        """Remove the file if it exists."""
        await self._files.remove(wanted.name)
'''

_TEST = '''"""Tests the decisions of the @name@ type, and its provider with files in memory."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import PropertyError
from ccm_agent.resources.contract import DecisionContext
from ccm_agent.testing.files import FakeFiles
from @module@ import TYPE
from @module@.model import @Name@Properties, @Name@State
from @module@.providers.@provider@ import @Provider@


def found(ensure: str, text: str = "") -> @Name@State:
    state = @Name@State(protocol=TYPE.state_protocol, type="@name@", name="/srv/x", ensure=ensure)
    state.text = text
    return state


@pytest.mark.parametrize(
    ("ensure", "state", "noop"),
    [
        pytest.param("present", found("present", "hi"), [], id="as desired"),
        pytest.param("present", found("absent"), ["Would have written the text"], id="missing"),
        pytest.param("present", found("present", "no"), ["Would have written the text"], id="different text"),
        pytest.param("absent", found("absent"), [], id="absent, as desired"),
        pytest.param("absent", found("present", "hi"), ["Would have removed the text"], id="still exists"),
    ],
)
def test_decide_returns_the_steps_to_the_desired_state(
    ensure: str, state: @Name@State, noop: list[str]
) -> None:
    wanted = @Name@Properties(name="/srv/x", ensure=ensure, text="hi")

    assert [step.noop for step in TYPE.decide(wanted, state, DecisionContext()).steps] == noop


def test_a_relative_path_is_refused() -> None:
    assert TYPE.check is not None

    with pytest.raises(PropertyError) as caught:
        TYPE.check(@Name@Properties(name="x"))

    assert caught.value.message == "the path must be absolute, not `x`"


async def test_the_provider_writes_reads_and_removes_the_text() -> None:
    wanted = @Name@Properties(name="/srv/x", ensure="present", text="hi")
    files = FakeFiles()
    files.put_directory("/srv")
    provider = @Provider@(files)

    await provider.write(wanted)
    written = await provider.status(wanted)
    await provider.remove(wanted)

    assert written == found("present", "hi")
    assert await provider.status(wanted) == found("absent")
'''

_PAGE = """# @name@

Manages the text of a file.

```yaml
ccm:
  resources:
    - @name@:
        - /srv/notice:
            text: closed on Sundays
```

<!-- properties -->

<!-- /properties -->

## Actions

| Desired | Current | Action |
|---|---|---|
| `present` (default) | the same text | – |
| `present` | no file, or different text | write the text |
| `absent` | no file | – |
| `absent` | a file | remove the file |

## Provider

`@provider@`, on every host.
"""
