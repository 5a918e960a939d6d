"""
Render a directory of templates to files in memory.

Templates are rendered in the order of a directory walk. `write` can only use directories that the walk has reached, and a later
file replaces an earlier one.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ccm_agent.model.errors import FileError, Place, TemplateError, TemplateLimitError
from ccm_agent.model.ports import Tree, TreeEntry
from ccm_agent.templates.engines import TemplateEngine, engine
from ccm_agent.templates.env import Environment
from ccm_agent.templates.rendering import BYTES_MAX, DirectoryOptions, RenderedDirectory
from ccm_agent.templates.scan import GO_SPACE
from ccm_agent.templates.values import from_bytes, to_bytes

PARTIALS = "_partials"
DEPTH_MAX = 20
"""
The maximum nesting of templates that render templates. It is deeper than any real use, and far below the
limit of the stack.
"""
RENDERS_MAX = 100_000
_NOTHING_GIVEN = object()


def render_tree(
    source: Tree,
    wanted: DirectoryOptions,
    environment: Environment,
    on_template: Callable[[str], None] = lambda _name: None,
) -> RenderedDirectory:
    """
    Render all templates of a source. Blocking: call it in a thread.

    Args:
        source: The templates.
        wanted: The engine, the delimiters, and whether empty files are left out.
        environment: The environment of the templates. A template can change its data for later templates.
        on_template: Called with the path of each template before it is rendered.

    Raises:
        FileError: An entry of the source is neither a file nor a directory.
        TemplateError: A template does not parse or fails.
    """
    return _Renderer(source, wanted, environment, on_template).run()


def render_apart(source: Tree, wanted: DirectoryOptions, environment: Environment) -> RenderedDirectory:
    """
    Render all templates of a source in the environment's render process, or in this process if there is none.

    Blocking: call it in a thread. Changes that templates make to the data are discarded.

    Raises:
        FileError: An entry of the source is neither a file nor a directory.
        TemplateError: A template does not parse, fails, or exceeds a limit.
    """
    if environment.renderer is not None:
        return environment.renderer.tree(source, wanted, environment)
    return render_tree(source, wanted, environment.copied())


class _Renderer:
    def __init__(
        self,
        source: Tree,
        wanted: DirectoryOptions,
        environment: Environment,
        on_template: Callable[[str], None],
    ) -> None:
        self._source = {entry.path: entry for entry in source.entries}
        self._on_template = on_template
        self._wanted = wanted
        self._engine: TemplateEngine = engine(wanted.engine)
        self._rendered = RenderedDirectory()
        self._directories = {""}
        self._depth = 0
        self._renders = 0
        self._bytes = 0
        self._variables: dict[str, Any] = {
            "facts": environment.facts,
            "data": environment.data,
            "environ": environment.environ,
        }
        self._top = {**self._variables, **{name.title(): value for name, value in self._variables.items()}}
        self._functions = {
            **environment.template_functions(wanted.engine),
            "render": self._render_with_variables if wanted.engine == "jinja" else self._render,
            "write": self._write,
        }

    def run(self) -> RenderedDirectory:
        for entry in _without_partials(self._source):
            if entry.kind == "directory":
                self._rendered.directories.append(entry.path)
                self._directories.add(entry.path)
            elif entry.kind == "file":
                self._on_template(entry.path)
                text = self._text_of(entry, self._top)
                if not (self._wanted.skip_empty and not text.strip(GO_SPACE)):
                    self._put(entry.path, text)
            else:
                what = "a symlink" if entry.kind == "symlink" else "neither file nor directory"
                raise FileError(
                    f"{self._wanted.source}: {entry.path} is {what}, but a source may contain only files and directories"
                )
        return self._rendered

    def _put(self, path: str, text: str) -> None:
        content = to_bytes(text)
        self._bytes += len(content)
        if self._bytes > BYTES_MAX:
            raise TemplateLimitError(
                f"the scaffold renders to more than {BYTES_MAX} bytes", place=Place(source=path)
            )
        self._rendered.files[path] = content

    def _text_of(self, entry: TreeEntry, context: Any) -> str:
        self._renders += 1
        if self._renders > RENDERS_MAX:
            raise TemplateLimitError(f"the scaffold renders more than {RENDERS_MAX} templates")
        text = from_bytes(entry.content)
        wanted = self._wanted
        if wanted.engine == "jinja" and not any(mark in text for mark in (wanted.left_delimiter, "{%", "{#")):
            return text  # Jinja would normalize line ends, even in binary files
        is_top = context is self._top
        load = self._load if wanted.engine == "jinja" and _names_others(text) else None
        if wanted.engine == "jet":
            variables: Mapping[str, Any] = self._variables if is_top else {}
        else:
            variables = self._top if wanted.engine == "jinja" else self._variables
        try:
            return self._engine.render(
                text,
                variables,
                name=entry.path,
                left=wanted.left_delimiter,
                right=wanted.right_delimiter,
                context=None if wanted.engine == "jinja" and is_top else context,
                functions=self._functions,
                load=load,
            )
        except RecursionError:
            raise TemplateError("template is nested too deeply", place=Place(source=entry.path)) from None

    # functions for templates

    def _render(self, path: Any, context: Any) -> str:
        """Render another template of the source to text. In Jet and Go, its `.` is the given value."""
        entry = self._source.get(_inside("render", path))
        if entry is None or entry.kind == "directory" or entry.kind == "other":
            what = (
                "there is no such file in the source"
                if entry is None
                else f"it is a {entry.kind}, not a file"
            )
            raise TemplateError(f"render: {path!r}: {what}")
        if self._depth == DEPTH_MAX:
            raise TemplateError(
                f"render: templates render each other more than {DEPTH_MAX} deep: is there a circle?"
            )
        self._depth += 1
        try:
            return self._text_of(entry, context)
        finally:
            self._depth -= 1

    def _render_with_variables(self, path: Any, context: Any = _NOTHING_GIVEN) -> str:
        """Render another template in Jinja. The optional mapping adds names to the variables."""
        return self._render(path, self._top if context is _NOTHING_GIVEN else context)

    def _write(self, path: Any, content: Any) -> str:
        """Add a file to the target; returns an empty text."""
        if not isinstance(content, str):
            raise TemplateError("write: the content must be text")
        inside = _inside("write", path)
        if inside in self._directories:
            raise TemplateError(f"write: {path!r} is a directory")
        if posixpath.dirname(inside) not in self._directories:
            raise TemplateError(
                f"write: the directory of {path!r} does not exist yet: put one into the source that sorts before this template"
            )
        self._put(inside, content)
        return ""

    def _load(self, path: str) -> str | None:
        entry = self._source.get(_inside("include", path))
        return from_bytes(entry.content) if entry is not None and entry.kind == "file" else None


def _inside(function: str, path: Any) -> str:
    """Resolve a path in a template relative to a directory. A path that leaves the directory is refused."""
    if not isinstance(path, str):
        raise TemplateError(f"{function}: the path must be text")
    clean = posixpath.normpath(f"./{path}")
    if clean == ".." or clean.startswith("../") or "\0" in clean:
        raise TemplateError(f"{function}: {path!r} leads out of the directory")
    return "" if clean == "." else clean


def _names_others(text: str) -> bool:
    """Whether a Jinja template may include another one. If not, it is compiled once for all runs."""
    return any(word in text for word in ("include", "import", "extends"))


def _without_partials(source: Mapping[str, TreeEntry]) -> Iterator[TreeEntry]:
    """Yield the entries to render: all except directories `_partials` and their contents."""
    left_out = ""
    for entry in source.values():
        if left_out and entry.path.startswith(left_out):
            continue
        if entry.kind == "directory" and posixpath.basename(entry.path) == PARTIALS:
            left_out = f"{entry.path}/"
            continue
        yield entry
