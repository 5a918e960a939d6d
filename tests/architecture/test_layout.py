"""The layout's rules: imports point down, one importer per library, modules of a size that can be read."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]

# What each room may import besides itself, the standard library and `model`.
AGENT_ROOMS: dict[str, set[str]] = {
    "model": set(),
    "system": set(),
    "bus": set(),
    "storage": {"bus"},
    "policy": set(),
    "templates": set(),
    "facts": set(),
    "sessions": set(),
    "metrics": set(),
    "hiera": {"templates"},
    "health": {"templates"},
    "registration": {"bus"},
    "resources": {"templates", "health"},
    "manifest": {"templates", "hiera", "health", "resources"},
    "engine": {
        "policy", "templates", "hiera", "health", "registration", "sessions", "resources", "metrics", "manifest",
    },
    "agent": {
        "bus", "storage", "facts", "hiera", "engine", "metrics", "policy", "templates", "sessions", "registration",
    },
    "app": {
        "system", "bus", "policy", "templates", "facts", "sessions", "metrics", "hiera", "health", "registration",
        "resources", "manifest", "engine", "agent", "app_expressions",
    },
    "app_expressions": {"manifest", "templates"},
    "app_agent": {
        "app", "system", "bus", "policy", "templates", "facts", "sessions", "metrics", "hiera", "registration",
        "engine", "agent", "joining", "app_import",
    },
    "app_import": {"app", "engine", "resources"},
    "app_policy": {"app", "engine", "agent", "policy", "resources"},
    "app_render": {"system", "templates", "facts"},
    "clikit": set(),
    "joining": {"bus", "storage", "agent"},
    "plugins": {"templates", "hiera"},
    "cli": {"app", "app_agent", "app_import", "app_policy", "clikit", "joining", "manifest", "plugins", "resources"},
    "testing": {"resources", "bus"},
    "__main__": {"cli"},
}  # fmt: skip
CONTROLLER_ROOMS: dict[str, set[str]] = {
    "fleet": set(),
    "render": set(),
    "dashboard": {"fleet", "render"},
    "notify": {"fleet"},
    "secret_sources": {"fleet"},
    "top": {"fleet", "render", "dashboard"},
    "studio": {"fleet", "render", "dashboard"},
    "demo": set(),
    "commands": {"fleet", "render", "dashboard", "notify", "top", "studio", "demo", "secret_sources", "app"},
    "app": {"fleet", "render", "dashboard", "commands"},
    "python_client": {"fleet", "app", "commands"},
    "main": {"app", "commands"},
    "__main__": {"main", "app", "commands"},
}
FROM_AGENT_DEFAULT = {"model"}
"""What rooms of the controller that are not named below take from the agent's package: the words only."""
FROM_AGENT_BY_ROOM = {
    "fleet": {"model", "bus", "templates", "registration", "hiera"},
    "notify": {"model", "bus", "templates"},
    "render": {"model", "clikit"},
    # testing: the broker of tests
    "demo": {"model", "testing"},
    # clikit: the sentences of what needs attention, which `top` shows as well
    "dashboard": {"model", "clikit"},
    "top": {"model", "clikit", "templates"},
    # resources: their schemas, which none of the code that changes a host is imported for
    "studio": {"model", "clikit", "templates", "hiera", "manifest", "resources"},
    # engine: `bundle get` unpacks a bundle with the same checks as an agent
    "commands": {"model", "bus", "clikit", "templates", "registration", "manifest", "engine"},
    # system: the render process, which renders templates of users of the studio
    "app": {"model", "bus", "clikit", "templates", "registration", "system"},
    "main": {"model", "bus", "clikit"},
}

ONE_IMPORTER: dict[str, set[str]] = {
    "nats": {"ccm_agent/bus"},
    "nkeys": {"ccm_agent/bus"},
    "dns": {"ccm_agent/system/http/name_servers.py"},
    "re2": {"ccm_agent/templates/regex.py"},
    "jinja2": {"ccm_agent/templates", "ccm_ctl/dashboard", "ccm_ctl/notify"},
    "subprocess": {"ccm_agent/system", "ccm_agent/testing/nats_server.py", "ccm_ctl/demo"},
    "aiofiles": {"ccm_agent/system"},
    "aiohttp": {
        "ccm_agent/system",
        "ccm_agent/agent/node/metrics_server.py",
        "ccm_ctl/dashboard",
        "ccm_ctl/studio",
        "ccm_ctl/notify/channels.py",
        "ccm_ctl/secret_sources/vault.py",
        "ccm_ctl/fleet/http_problems.py",
    },
    "joserfc": {"ccm_ctl/dashboard/id_token.py"},
    "ruamel": {"ccm_agent/resources/config/formats"},
    "tomlkit": {"ccm_agent/resources/config/formats"},
    "pyrage": {"ccm_ctl/secret_sources/age_file.py"},
    "yaml": {"ccm_agent/model"},
    "rich": {"ccm_agent/clikit", "ccm_ctl/render", "ccm_ctl/top"},
    "textual": {"ccm_ctl/top"},
    "click": {
        "ccm_agent/cli",
        "ccm_agent/clikit",
        "ccm_ctl/commands",
    },
}
SIZE_LIMIT = 500
FILES_LIMIT = 25
LARGER_ON_PURPOSE: dict[str, str] = {
    "ccm_agent/model/wire.py": "the messages of the protocol, which are read side by side",
    "ccm_agent/model/ports.py": "one page holds all that the core asks of the world; it is documentation more than code",
}
"""Modules over the limit, each with the reason."""


def modules(package: str) -> list[Path]:
    """The package's modules."""
    return sorted((TOP / package).rglob("*.py"))


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A module's syntax tree, parsed once for all tests."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def imports(path: Path, top: Path) -> tuple[str, ...]:
    """Full names of what a module imports, wherever in it the import stands."""
    return tuple(_imports(path, top))


def _imports(path: Path, top: Path) -> Iterator[str]:
    package = path.relative_to(top).with_suffix("").parts
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level]) if node.level else []
            name = ".".join([*base, node.module] if node.module else base)
            yield from (f"{name}.{alias.name}" for alias in node.names)


def room(name: str) -> tuple[str, str]:
    """The package and room of a dotted name: `ccm_agent.bus.kv` is in ("ccm_agent", "bus")."""
    parts = name.split(".")
    return parts[0], parts[1] if len(parts) > 1 else ""


def wrong_imports(path: Path) -> list[str]:
    """What a module imports although its room may not."""
    package, own = room(".".join(path.relative_to(TOP).with_suffix("").parts))
    rooms = AGENT_ROOMS if package == "ccm_agent" else CONTROLLER_ROOMS
    found = []
    for name in imports(path, TOP):
        theirs, other = room(name)
        if theirs not in ("ccm_agent", "ccm_ctl") or other in ("", "version"):
            continue
        if theirs == package:
            allowed = (
                rooms.get(own, set()) | {own, "model"}
                if own not in ("", "__init__", "version")
                else {"version", "python_client"}
            )
        elif package == "ccm_ctl":
            allowed = FROM_AGENT_BY_ROOM.get(own, FROM_AGENT_DEFAULT)
        else:
            allowed = set()
        if other not in allowed:
            found.append(name)
    return found


@pytest.mark.parametrize("package", ["ccm_agent", "ccm_ctl"])
def test_imports_point_down(package: str) -> None:
    wrong = {str(path.relative_to(TOP)): bad for path in modules(package) if (bad := wrong_imports(path))}

    assert wrong == {}


@pytest.mark.parametrize("package", ["ccm_agent", "ccm_ctl"])
def test_every_room_is_in_the_table(package: str) -> None:
    rooms = AGENT_ROOMS if package == "ccm_agent" else CONTROLLER_ROOMS
    there = {path.relative_to(TOP / package).parts[0].removesuffix(".py") for path in modules(package)}

    assert there - set(rooms) - {"__init__", "version"} == set()


def import_graph(folders: Sequence[Path], top: Path) -> dict[str, set[str]]:
    """
    Each module's name, and the modules among them that it imports, also in functions.

    Args:
        folders: Of the modules.
        top: The folder that their names begin at.
    """
    paths = {
        ".".join(path.relative_to(top).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in folders
        for path in folder.rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        found: set[str] = set()
        for one in ast.walk(parsed(path)):
            if isinstance(one, ast.Import):
                found |= {alias.name for alias in one.names}
            elif isinstance(one, ast.ImportFrom):
                members = {f"{one.module}.{alias.name}" for alias in one.names}
                found |= members & paths.keys() or {one.module or ""}
        graph[name] = (found & paths.keys()) - {name}
    return graph


def circle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of one import circle, in order; empty when there is none."""
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as err:
        return list(err.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports in functions count, and those that only the type checker reads."""
    graph = import_graph([TOP / "ccm_agent", TOP / "ccm_ctl"], TOP)

    assert len(graph) > 300
    assert circle_in(graph) == []


@pytest.mark.parametrize(
    "line", ["def b():\n    from pack import a\n", "if TYPE_CHECKING:\n    from pack.a import a\n"]
)
def test_an_import_circle_is_found(line: str, tmp_path: Path) -> None:
    """The check itself: a circle through a function, and one through an annotation."""
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "a.py").write_text("from pack.b import b\n")
    (tmp_path / "pack" / "b.py").write_text(line)
    (tmp_path / "pack" / "c.py").write_text("import pack.a\n")

    assert set(circle_in(import_graph([tmp_path / "pack"], tmp_path))) == {"pack.a", "pack.b"}


@pytest.mark.parametrize("library", sorted(ONE_IMPORTER))
def test_a_library_has_one_importer(library: str) -> None:
    allowed = ONE_IMPORTER[library]
    others = [
        place
        for path in [*modules("ccm_agent"), *modules("ccm_ctl")]
        if not any((place := str(path.relative_to(TOP))).startswith(start) for start in allowed)
        and any(name.split(".")[0] == library for name in imports(path, TOP))
    ]

    assert others == []


def test_modules_can_be_read_in_one_go() -> None:
    sizes = {
        str(path.relative_to(TOP)): lines
        for path in [*modules("ccm_agent"), *modules("ccm_ctl")]
        if (lines := len(path.read_text().splitlines())) > SIZE_LIMIT
    }

    assert {place: lines for place, lines in sizes.items() if place not in LARGER_ON_PURPOSE} == {}


def test_folders_can_be_read_at_a_glance() -> None:
    files = Counter(
        str(path.parent.relative_to(TOP)) for path in [*modules("ccm_agent"), *modules("ccm_ctl")]
    )

    assert {folder: count for folder, count in files.items() if count > FILES_LIMIT} == {}


@pytest.mark.parametrize("word", ["utils", "helpers", "common", "manager", "misc"])
def test_no_module_is_named_for_nothing(word: str) -> None:
    named = [
        str(path.relative_to(TOP))
        for path in [*modules("ccm_agent"), *modules("ccm_ctl")]
        if path.stem == word
    ]

    assert named == []


def test_an_upward_import_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself: a room that imports what is above it, hidden in a function and under TYPE_CHECKING."""
    module = tmp_path / "ccm_agent/model/word.py"
    module.parent.mkdir(parents=True)
    module.write_text("def f():\n    from ccm_agent.engine import run\nimport ccm_agent.bus.kv\n")
    monkeypatch.setattr(f"{__name__}.TOP", tmp_path)

    assert sorted(wrong_imports(module)) == ["ccm_agent.bus.kv", "ccm_agent.engine.run"]
