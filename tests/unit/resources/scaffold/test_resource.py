"""What a scaffold is refused for, and every row of its stability table."""

from typing import Any

import pytest

from ccm_agent.model.errors import CommandError, PropertyError
from ccm_agent.model.formats.field_rules import field_rules
from ccm_agent.model.resource import CommonProperties
from ccm_agent.resources.contract import DecisionContext
from ccm_agent.resources.scaffold import TYPE
from ccm_agent.resources.scaffold.model import ScaffoldMetadata, ScaffoldProperties, ScaffoldState
from ccm_agent.resources.scaffold.resource import check, check_when_applied, decide


def wanted(**properties: Any) -> ScaffoldProperties:
    return ScaffoldProperties(**{"name": "/out", "ensure": "present", "source": "src", **properties})


class TestCheck:
    @pytest.mark.parametrize(
        ("properties", "path", "message"),
        [
            pytest.param(
                {"name": "out"}, "name", "`name` must be an absolute path, not `out`", id="a relative name"
            ),
            *(
                pytest.param(
                    {"name": name},
                    "name",
                    f"`name` must be a path without `.`, `..` and a slash at its end, not `{name}`",
                    id=f"a name that is not canonical: {name}",
                )
                for name in ("/x/../out", "/./out", "/out/", "//out", "/x//out")
            ),
            pytest.param(
                {"source": ""},
                "source",
                "`source` cannot be empty: name the directory of templates",
                id="no source",
            ),
            pytest.param(
                {"engine": "erb"},
                "engine",
                "`engine` must be one of jet, go, jinja, not `erb`",
                id="an unknown engine",
            ),
            pytest.param(
                {"post": [{"": "chmod +x {}"}]},
                "post",
                "a glob in `post` cannot be empty",
                id="an empty glob",
            ),
            pytest.param(
                {"post": [{"*.sh": ""}]},
                "post",
                "the command of `*.sh` in `post` cannot be empty",
                id="an empty command",
            ),
            pytest.param(
                {"post": [{"*": " \t"}]},
                "post",
                "the command of `*` in `post` cannot be empty",
                id="a blank command",
            ),
            pytest.param(
                {"post": [{"*.a": "x", "*.b": "y"}]},
                "post",
                "each entry of `post` must be one glob with its command: begin each with `- `",
                id="two globs in one entry",
            ),
            pytest.param(
                {"timeout": "soon"},
                "timeout",
                "`soon` is not a duration: write a number and a unit, such as 30s, 5m or 1h30m",
                id="a timeout that is not a duration",
            ),
            *(
                pytest.param(
                    {"timeout": timeout},
                    "timeout",
                    f"`timeout` must be more than 0, not `{timeout}`",
                    id=f"no time at all: {timeout}",
                )
                for timeout in ("0", "-1s")
            ),
            pytest.param(
                {"post": [{}]},
                "post",
                "each entry of `post` must be one glob with its command: begin each with `- `",
                id="an entry of nothing",
            ),
            pytest.param(
                {"name": "/", "purge": True},
                "purge",
                "`purge` would remove everything on this host",
                id="a purge of everything",
            ),
            pytest.param(
                {"engine": "jinja", "left_delimiter": "{%"},
                "left_delimiter",
                "`left_delimiter` cannot be one of {% %} {# #}, which have another meaning",
                id="a delimiter that Jinja has for blocks",
            ),
        ],
    )
    def test_an_invalid_combination_is_refused(
        self, properties: dict[str, Any], path: str, message: str
    ) -> None:
        with pytest.raises(PropertyError) as caught:
            check(wanted(**properties))

        assert caught.value.message == message
        assert caught.value.place is not None
        assert caught.value.place.path == f"$.{path}"

    def test_a_url_as_source_is_refused_when_it_is_applied(self) -> None:
        given = wanted(source="https://joe:secret@example.net/x")

        check(given)
        with pytest.raises(PropertyError) as caught:
            check_when_applied(given, {})

        assert caught.value.message == (
            "cannot read source directory: stat https://***@example.net/x: no such file or directory; "
            "`source` cannot be a URL: fetch it with an `archive` resource first"
        )

    @pytest.mark.parametrize(
        ("given", "engine", "left", "right"),
        [
            pytest.param({}, "jet", "[[", "]]", id="jet is the default"),
            pytest.param({"engine": "jet"}, "jet", "[[", "]]", id="jet"),
            pytest.param({"engine": "go"}, "go", "{{", "}}", id="go"),
            pytest.param({"engine": "jinja"}, "jinja", "{{", "}}", id="jinja"),
            pytest.param({"left_delimiter": "<%"}, "jet", "<%", "]]", id="one delimiter of two"),
            pytest.param(
                {"engine": "go", "left_delimiter": "<<", "right_delimiter": ">>"}, "go", "<<", ">>", id="both"
            ),
        ],
    )
    def test_engine_and_delimiters_are_filled_in(
        self, given: dict[str, Any], engine: str, left: str, right: str
    ) -> None:
        properties = wanted(**given)

        check(properties)

        assert (properties.engine, properties.left_delimiter, properties.right_delimiter) == (
            engine,
            left,
            right,
        )

    def test_the_root_directory_may_be_rendered_into(self) -> None:
        check(wanted(name="/"))

    def test_our_extensions_are_named_for_lint(self) -> None:
        assert (TYPE.rules.extensions, TYPE.rules.extension_values) == (
            field_rules(CommonProperties).extensions | {"diff", "timeout"},
            {"engine": {"jinja"}},
        )


A, B, EXTRA = "/out/a", "/out/b", "/out/extra"


def state(*, exists: bool = True, **lists: Any) -> ScaffoldState:
    metadata = ScaffoldMetadata(name="/out", provider="choria", target_exists=exists, **lists)
    return ScaffoldState(protocol="p", type="scaffold", name="/out", ensure="present", metadata=metadata)


class TestDecide:
    @pytest.mark.parametrize("purge", [False, True])
    @pytest.mark.parametrize(
        ("ensure", "found", "stable"),
        [
            pytest.param("absent", state(exists=False), True, id="absent, target missing"),
            pytest.param("absent", state(), True, id="absent, no managed files"),
            pytest.param("absent", state(purged=[EXTRA]), True, id="absent, no managed files but others"),
            pytest.param("absent", state(changed=[A]), False, id="absent, changed files remain"),
            pytest.param("absent", state(stable=[A]), False, id="absent, stable files remain"),
            pytest.param(
                "absent", state(stable=[A], purged=[EXTRA]), False, id="absent, files remain, and others"
            ),
            pytest.param("present", state(stable=[A]), True, id="present, all stable"),
            pytest.param("present", state(changed=[A], stable=[B]), False, id="present, some changed"),
            pytest.param(
                "present", state(changed=[A], purged=[EXTRA]), False, id="present, changed, and others"
            ),
            pytest.param("present", state(exists=False, changed=[A]), False, id="present, target missing"),
            pytest.param("present", state(), False, id="present, nothing rendered"),
        ],
    )
    def test_stability(self, ensure: str, found: ScaffoldState, stable: bool, purge: bool) -> None:
        decision = decide(wanted(ensure=ensure, purge=purge), found, DecisionContext())

        assert (decision.error, not decision.steps, decision.is_stable) == (None, stable, stable)

    @pytest.mark.parametrize(
        ("purge", "stable"),
        [
            pytest.param(False, True, id="present, all stable, others without purge"),
            pytest.param(True, False, id="present, all stable, others with purge"),
        ],
    )
    def test_others_count_only_with_purge(self, purge: bool, stable: bool) -> None:
        decision = decide(wanted(purge=purge), state(stable=[A], purged=[EXTRA]), DecisionContext())

        assert decision.is_stable is stable

    def test_the_target_itself_is_never_purged(self) -> None:
        decision = decide(wanted(purge=True), state(stable=[A], purged=["/out"]), DecisionContext())

        assert decision.is_stable

    @pytest.mark.parametrize(
        ("properties", "found", "message"),
        [
            pytest.param(
                {}, state(changed=[A, B], stable=["/out/c"], purged=[EXTRA]), "Would have changed 2 scaffold files",
                id="changed files",
            ),
            pytest.param(
                {"purge": True},
                state(changed=[A, B], purged=[EXTRA, "/out"]),
                "Would have changed 3 scaffold files",
                id="changed files and others, with purge",
            ),
            pytest.param(
                {"ensure": "absent", "purge": True},
                state(changed=[A], stable=[B], purged=[EXTRA]),
                "Would have removed 2 scaffold files",
                id="what would be removed, which is not the others",
            ),
        ],
    )  # fmt: skip
    def test_noop_counts(self, properties: dict[str, Any], found: ScaffoldState, message: str) -> None:
        (step,) = decide(wanted(**properties), found, DecisionContext(noop=True)).steps

        assert step.noop == message

    def test_noop_does_not_promise_a_change_that_failed_last_time(self) -> None:
        found = state(changed=[A, B], failing=[A])

        under_noop = decide(wanted(), found, DecisionContext(noop=True))
        for_real = decide(wanted(), found, DecisionContext())

        assert isinstance(under_noop.error, CommandError)
        assert under_noop.error.message == (
            "a `post` command failed in an earlier run on the rendered /out/a, and noop does not run it: apply to try again"
        )
        assert (for_real.error, len(for_real.steps)) == (None, 1)

    def test_noop_reports_that_nothing_is_rendered(self) -> None:
        decision = decide(
            wanted(), state(reason="the source src has no templates"), DecisionContext(noop=True)
        )

        assert decision.error is not None
        assert decision.error.message == (
            "failed to reach desired state present: the source src has no templates"
        )

    def test_changing_output_is_not_a_failure(self) -> None:
        decision = decide(wanted(), state(changed=[A]), DecisionContext(verifying=True))

        assert decision.steps == ()

    @pytest.mark.parametrize(
        ("properties", "found", "reason"),
        [
            pytest.param({}, state(), "no rendered file exists", id="no file is there"),
            pytest.param(
                {}, state(reason="the source src is not a directory"), "the source src is not a directory", id="no source"
            ),
            pytest.param(
                {"ensure": "absent"}, state(changed=[A], stable=[B]), "2 of its files still exist", id="removal"
            ),
        ],
    )  # fmt: skip
    def test_a_change_that_had_no_effect_is_a_failure(
        self, properties: dict[str, Any], found: ScaffoldState, reason: str
    ) -> None:
        decision = decide(wanted(**properties), found, DecisionContext(verifying=True))

        assert (len(decision.steps), decision.reason) == (1, reason)
