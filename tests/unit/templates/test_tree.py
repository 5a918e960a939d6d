"""A directory of templates to the files that it renders to."""

from typing import Any

import pytest

from ccm_agent.model.errors import CcmError, FileError, TemplateError
from ccm_agent.model.ports import Tree
from ccm_agent.templates import tree as module
from ccm_agent.templates.rendering import DirectoryOptions, RenderedDirectory
from ccm_agent.templates.tree import render_apart
from tests.support.scaffold import SOURCE, Host, wish

ENGINES = ["jet", "go", "jinja"]
CIRCLES = {
    "jet": '[[ render("_partials/p", .) ]]',
    "go": '{{ render "_partials/p" . }}',
    "jinja": '{{ render("_partials/p") }}',
}


def render(host: Host, tree: Tree, **properties: Any) -> RenderedDirectory:
    """What the templates of a scaffold with these properties render to."""
    wanted = wish(**properties)
    wanted_tree = DirectoryOptions(
        source=wanted.source,
        engine=wanted.engine,
        left_delimiter=wanted.left_delimiter,
        right_delimiter=wanted.right_delimiter,
        skip_empty=wanted.skip_empty,
    )
    return render_apart(tree, wanted_tree, host.environment(wanted.data or None))


async def rendered(host: Host, **properties: Any) -> dict[str, str]:
    """Files with their content."""
    tree: Tree = await host.port("trees").read(SOURCE, 1 << 20)
    result = render(host, tree, **properties)
    return {path: content.decode(errors="surrogateescape") for path, content in result.files.items()}


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("jet", "[[ data.name ]] [[ Data.name ]] [[ facts.role ]] [[ environ.APP_ENV ]] [[ .data.name ]]"),
        ("go", "{{ .data.name }} {{ .Data.name }} {{ .facts.role }} {{ .environ.APP_ENV }} {{ .data.name }}"),
        ("jinja", "{{ data.name }} {{ Data.name }} {{ facts.role }} {{ environ.APP_ENV }} {{ data.name }}"),
    ],
)
async def test_templates_see_facts_data_and_environment(engine: str, text: str) -> None:
    host = Host({"a": text}, facts={"role": "web"})

    assert await rendered(host, engine=engine) == {"a": "world world web prod world"}


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("jet", '[[ lookup("data.name") ]] [[ lookup("data.no", "none") ]]'),
        ("go", '{{ lookup "data.name" }} {{ lookup "data.no" "none" }}'),
        ("jinja", '{{ lookup("data.name") }} {{ lookup("data.no", "none") }}'),
    ],
)
async def test_lookup_takes_its_default(engine: str, text: str) -> None:
    assert await rendered(Host({"a": text}), engine=engine) == {"a": "world none"}


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("jet", "[[ range k, v := data.map ]][[ k ]]=[[ v ]] [[ end ]]"),
        ("go", "{{ range $k, $v := .data.map }}{{ $k }}={{ $v }} {{ end }}"),
        ("jinja", "{% for k, v in data.map | dictsort %}{{ k }}={{ v }} {% endfor %}"),
    ],
)
async def test_a_range_over_a_map_is_sorted(engine: str, text: str) -> None:
    host = Host({"a": text}, data={"map": {"b": 2, "c": 3, "a": 1}})

    assert await rendered(host, engine=engine) == {"a": "a=1 b=2 c=3 "}


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("jet", "<[[ data.name ]]> {{ data.name }}"),
        ("go", "<{{ .data.name }}> [[ data.name ]]"),
        ("jinja", "<{{ data.name }}> [[ data.name ]]"),
    ],
)
async def test_other_delimiters_are_text(engine: str, text: str) -> None:
    (content,) = (await rendered(Host({"a": text}), engine=engine)).values()

    assert content.startswith("<world> ")
    assert content.endswith("data.name }}" if engine == "jet" else "data.name ]]")


@pytest.mark.parametrize(
    ("engine", "text"), [("jet", "<% data.name %>"), ("go", "<% .data.name %>"), ("jinja", "<% data.name %>")]
)
async def test_delimiters_can_be_chosen(engine: str, text: str) -> None:
    host = Host({"a": text})

    assert await rendered(host, engine=engine, left_delimiter="<%", right_delimiter="%>") == {"a": "world"}


async def test_data_of_the_resource_stand_in_the_place_of_the_manifests() -> None:
    host = Host({"a": '[[ data.name ]] [[ lookup("data.name") ]] [[ template("{{ Data.name }}") ]]'})

    assert await rendered(host, data={"name": "moon"}) == {"a": "moon moon moon"}
    assert await rendered(host, data={}) == {"a": "world world world"}


async def test_changes_of_data_in_a_template_end_with_the_scaffold() -> None:
    host = Host({"a": '[[ data.name = "moon" ]][[ data.name ]]', "b": "[[ data.name ]]"})

    assert await rendered(host) == {"a": "moon", "b": "moon"}
    assert host.data == {"name": "world"}


@pytest.mark.parametrize("engine", ENGINES)
async def test_bytes_that_are_not_text_pass_through(engine: str) -> None:
    blob = bytes(range(256)).replace(b"[", b"").replace(b"{", b"") + b"\r\n\r\n"

    (content,) = (await rendered(Host({"a": blob}), engine=engine)).values()

    assert content.encode(errors="surrogateescape") == blob


class TestWalk:
    async def test_the_tree_of_the_source_is_the_tree_of_the_target(self) -> None:
        host = Host({"b": "1", "d/e/x": "2", "empty/": "", ".hidden": "3", "[[ data.name ]]": "4"})
        tree = await host.port("trees").read(SOURCE, 100)

        result = render(host, tree)

        assert result.directories == ["d", "d/e", "empty"]
        assert result.files == {".hidden": b"3", "[[ data.name ]]": b"4", "b": b"1", "d/e/x": b"2"}

    async def test_directories_of_partials_are_left_out_at_any_depth(self) -> None:
        host = Host(
            {"_partials/p": "[[ fails", "sub/_partials/deep/p": "[[ fails", "sub/a": "a", "_partials2/b": "b"}
        )

        assert await rendered(host) == {"sub/a": "a", "_partials2/b": "b"}

    async def test_a_plain_file_named_partials_is_a_file_like_others(self) -> None:
        host = Host({"_a": "a", "_partials": "p", "later": "l", "zub/x": "x"})

        assert await rendered(host) == {"_a": "a", "_partials": "p", "later": "l", "zub/x": "x"}

    @pytest.mark.parametrize(
        ("kind", "what"), [("symlink", "a symlink"), ("fifo", "neither file nor directory")]
    )
    async def test_a_special_file_fails_the_whole_directory(self, kind: str, what: str) -> None:
        host = Host({"a": "a"})
        if kind == "symlink":
            host.files.put_symlink(f"{SOURCE}/b", "a")
        else:
            host.files.put_fifo(f"{SOURCE}/b")

        with pytest.raises(FileError) as caught:
            await rendered(host)

        assert (
            caught.value.message == f"src: b is {what}, but a source may contain only files and directories"
        )

    async def test_a_failing_template_names_its_place(self) -> None:
        host = Host({"a": "fine", "d/b": "line\n[[ nothing() ]]"})

        with pytest.raises(TemplateError) as caught:
            await rendered(host)

        assert (caught.value.place.source, caught.value.place.line) == ("d/b", 2)  # type: ignore[union-attr]


class TestSkipEmpty:
    SOURCES = {"full": "x\n", "blank": " \n\t\u00a0\n", "none": "", "cond": "[[ if false ]]x[[ end ]]"}

    async def test_empty_files_are_made_unless_they_are_to_be_skipped(self) -> None:
        assert sorted(await rendered(Host(self.SOURCES))) == ["blank", "cond", "full", "none"]
        assert sorted(await rendered(Host(self.SOURCES), skip_empty=True)) == ["full"]

    async def test_a_partial_may_be_empty(self) -> None:
        host = Host({"a": 'x[[ render("_partials/p", .) ]]y', "_partials/p": "[[ if false ]]x[[ end ]]"})

        assert await rendered(host, skip_empty=True) == {"a": "xy"}


class TestRender:
    @pytest.mark.parametrize(
        ("engine", "text", "partial"),
        [
            ("jet", '[[ render("_partials/p", .) ]]!', "<[[ data.name ]]>"),
            ("go", '{{ render "_partials/p" . }}!', "<{{ .data.name }}>"),
            ("jinja", '{{ render("_partials/p") }}!', "<{{ data.name }}>"),
        ],
    )
    async def test_a_partial_sees_its_templates_variables(self, engine: str, text: str, partial: str) -> None:
        host = Host({"a": text, "_partials/p": partial})

        assert await rendered(host, engine=engine) == {"a": "<world>!"}

    @pytest.mark.parametrize(
        ("engine", "text", "partial"),
        [
            ("jet", '[[ render("_partials/p", data.map) ]]', "<[[ .k ]]>"),
            ("go", '{{ render "_partials/p" .data.map }}', "<{{ .k }}>"),
            ("jinja", '{{ render("_partials/p", data.map) }}', "<{{ k }}>"),
        ],
    )
    async def test_a_partial_can_be_given_something_else(self, engine: str, text: str, partial: str) -> None:
        host = Host({"a": text, "_partials/p": partial}, data={"map": {"k": "v"}})

        assert await rendered(host, engine=engine) == {"a": "<v>"}

    async def test_in_jet_a_partial_that_is_given_something_else_sees_nothing_else(self) -> None:
        host = Host(
            {"a": '[[ render("_partials/p", data.map) ]]', "_partials/p": "[[ data.map.k ]]"},
            data={"map": {"k": "v"}},
        )

        with pytest.raises(TemplateError, match="data"):
            await rendered(host)

    async def test_paths_are_from_the_top_of_the_source(self) -> None:
        host = Host({"sub/a": '[[ render("sub/../sub/_partials/p", .) ]]', "sub/_partials/p": "p"})

        assert await rendered(host) == {"sub/a": "p"}

    async def test_a_partial_may_be_a_symlink_to_a_file(self) -> None:
        host = Host({"a": '[[ render("_partials/link", .) ]]', "_partials/p": "p [[ data.name ]]"})
        host.files.put_symlink(f"{SOURCE}/_partials/link", "p")

        assert await rendered(host) == {"a": "p world"}

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("../secret", "render: '../secret' leads out of the directory"),
            ("_partials/../../secret", "render: '_partials/../../secret' leads out of the directory"),
            ("none", "render: 'none': there is no such file in the source"),
            ("_partials", "render: '_partials': it is a directory, not a file"),
        ],
    )
    async def test_a_path_outside_the_source_is_refused(self, path: str, message: str) -> None:
        host = Host({"a": f'[[ render("{path}", .) ]]', "_partials/p": "p"})
        host.files.put("/site/secret", "s")

        with pytest.raises(TemplateError) as caught:
            await rendered(host)

        assert caught.value.message == message

    @pytest.mark.parametrize("engine", ENGINES)
    async def test_a_circle_is_an_error(self, engine: str) -> None:
        host = Host({"a": CIRCLES[engine], "_partials/p": CIRCLES[engine]})

        with pytest.raises(TemplateError, match="more than 20 deep: is there a circle"):
            await rendered(host, engine=engine)

    async def test_templates_without_end_are_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "RENDERS_MAX", 5)
        host = Host({"a": '[[ range data.l ]][[ render("p", .) ]][[ end ]]', "p": "p"}, data={"l": [1] * 5})

        with pytest.raises(TemplateError, match="renders more than 5 templates"):
            await rendered(host)


class TestWrite:
    @pytest.mark.parametrize(
        ("engine", "text"),
        [
            ("jet", '[[ range data.l ]][[ write("i-" + ., "item " + .) ]][[ end ]]done'),
            ("go", '{{ range .data.l }}{{ write (print "i-" .) (print "item " .) }}{{ end }}done'),
            ("jinja", '{% for i in data.l %}{{ write("i-" ~ i, "item " ~ i) }}{% endfor %}done'),
        ],
    )
    async def test_a_template_can_make_more_files(self, engine: str, text: str) -> None:
        host = Host({"a": text}, data={"l": ["x", "y"]})

        assert await rendered(host, engine=engine) == {"i-x": "item x", "i-y": "item y", "a": "done"}

    async def test_a_later_file_takes_the_place_of_an_earlier_one(self) -> None:
        host = Host(
            {"a": "rendered", "b": '[[ write("a", "written") ]][[ write("c", "written") ]]', "c": "c"}
        )

        assert await rendered(host) == {"a": "written", "b": "", "c": "c"}

    async def test_write_needs_a_directory_that_the_walk_has_reached(self) -> None:
        before = Host({"d/a": '[[ write("d/extra", "x") ]]a'})
        behind = Host({"a": '[[ write("z/extra", "x") ]]', "z/b": "b"})

        assert await rendered(before) == {"d/extra": "x", "d/a": "a"}
        with pytest.raises(TemplateError, match="the directory of 'z/extra' does not exist yet"):
            await rendered(behind)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ('"../x", ""', "write: '../x' leads out of the directory"),
            ('"d/../../x", ""', "write: 'd/../../x' leads out of the directory"),
            ('"d", ""', "write: 'd' is a directory"),
            ('".", ""', "write: '.' is a directory"),
            ('"x", 1', "write: the content must be text"),
            ('1, ""', "write: the path must be text"),
        ],
    )
    async def test_an_invalid_target_is_refused(self, arguments: str, message: str) -> None:
        host = Host({"d/a": "a", "e": f"[[ write({arguments}) ]]"})

        with pytest.raises(TemplateError) as caught:
            await rendered(host)

        assert caught.value.message == message

    async def test_files_without_end_are_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "BYTES_MAX", 5)

        with pytest.raises(TemplateError, match="renders to more than 5 bytes"):
            await rendered(Host({"a": '[[ write("x", "123") ]]', "b": "456"}))


class TestFunctions:
    async def test_jet_names_no_other_template_by_itself(self) -> None:
        with pytest.raises(CcmError):
            await rendered(Host({"a": '[[ include "b" ]]', "b": "b"}))

    async def test_jinja_includes_extends_and_imports_from_the_source(self) -> None:
        host = Host(
            {
                "a": '{% extends "_partials/base" %}{% block body %}{% include "_partials/p" %}{% endblock %}',
                "b": '{% import "_partials/m" as m %}{{ m.twice("x") }}',
                "_partials/base": "<{% block body %}{% endblock %}>",
                "_partials/p": "{{ data.name }}",
                "_partials/m": "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}",
            }
        )

        assert await rendered(host, engine="jinja") == {"a": "<world>", "b": "xx"}

    async def test_jinja_includes_nothing_from_elsewhere(self) -> None:
        host = Host({"a": '{% include "../secret" %}'})
        host.files.put("/site/secret", "s")

        with pytest.raises(TemplateError):
            await rendered(host, engine="jinja")

    @pytest.mark.parametrize(
        ("engine", "text"),
        [
            ("jet", '[[ template("{{ Data.name }}") ]]'),
            ("go", '{{ jet "[[ data.name ]]" }}'),
            ("jinja", '{{ template("{{ Data.name }}") }}'),
            ("jinja", '{{ jet("[[ data.name ]]") }}'),
        ],
    )
    async def test_the_languages_reach_each_other(self, engine: str, text: str) -> None:
        assert await rendered(Host({"a": text}), engine=engine) == {"a": "world"}
