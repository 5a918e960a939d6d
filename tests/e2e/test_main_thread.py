"""The main job on real parts: one manifest, many nodes, every outcome known."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.fleet import Done, Fleet, a_file, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

RUN = re.compile(r"(?<=\(run )[0-9A-Za-z]{8}(?=\))")


def screen(fleet: Fleet, done: Done) -> str:
    """What a person sees, without what differs from run to run."""
    text = RUN.sub("RUN", done.out).replace(str(fleet.directory), "DIR")
    text = re.sub(r"(≤ )?\d+(\.\d+)?m?s\b", "T", text)
    return re.sub(r" +", " ", text)


def test_two_nodes_change_the_third_is_left_alone_and_the_second_time_all_is_stable(trio: Fleet) -> None:
    path = trio.write("motd.yaml", manifest(a_file("motd", "hello {{ lookup('facts.name') }}")))

    planned = trio.ctl("apply", path, "--targets", "role=web", "--noop")
    untouched = [agent.name for agent in trio.agents.values() if (agent.files / "motd").exists()]
    first = trio.ctl("apply", path, "--targets", "role=web", "--yes")
    second = trio.ctl("apply", path, "--targets", "role=web", "--yes")

    assert [done.code for done in (planned, first, second)] == [0, 0, 0], planned.err + first.err
    assert untouched == []
    assert screen(trio, planned) == (
        "NODES STATE WHAT TIME\n"
        "web1 would change file#DIR/web1/files/motd: Would have created the file T\n"
        "web2 would change file#DIR/web2/files/motd: Would have created the file T\n"
        "\n"
        "plan motd: 2 nodes: 2 would change in T (run RUN)\n"
    )
    assert screen(trio, first) == (
        "NODES STATE WHAT TIME\n"
        "web1 changed file#DIR/web1/files/motd T\n"
        "web2 changed file#DIR/web2/files/motd T\n"
        "\n"
        "apply motd: 2 nodes: 2 changed in T (run RUN)\n"
    )
    assert screen(trio, second) == (
        "NODES STATE WHAT TIME\n"
        "web[1-2] stable 1 resource T\n"
        "\n"
        "apply motd: 2 nodes: 2 stable in T (run RUN)\n"
    )
    assert (trio.agents["web1"].files / "motd").read_text() == "hello web1"
    assert (trio.agents["web2"].files / "motd").read_text() == "hello web2"
    assert not (trio.agents["db1"].files / "motd").exists()


def test_a_plan_and_the_apply_after_it_show_the_same_diffs(trio: Fleet) -> None:
    resource = a_file("motd", "new\n")
    resource[2]["diff"] = True  # the test's directory is not readable by everyone
    path = trio.write("motd.yaml", manifest(resource))
    for name in ("web1", "web2"):
        (trio.agents[name].files / "motd").write_text("old\n")
        (trio.agents[name].files / "motd").chmod(0o600)

    planned = trio.ctl("plan", path, "-t", "role=web", "--json")
    applied = trio.ctl("apply", path, "-t", "role=web", "--yes", "--diff", "--json")
    without = trio.ctl("apply", path, "-t", "role=db", "--yes", "--json")

    diffs = [
        {one["event"]["node"]: one["event"]["diff"] for one in done.records if "diff" in one.get("event", {})}
        for done in (planned, applied, without)
    ]
    assert [done.code for done in (planned, applied, without)] == [0, 0, 0], planned.err + applied.err
    assert diffs[0] == diffs[1]
    assert diffs[2] == {}
    assert diffs[0]["web1"]["properties"] == [{"property": "mode", "before": "0600", "after": "0644"}]
    assert [one["text"] for one in diffs[0]["web2"]["files"]] == ["@@ -1 +1 @@\n-old\n+new\n"]
    assert (trio.agents["web1"].files / "motd").read_text() == "new\n"


def test_a_directory_travels_with_its_files(trio: Fleet) -> None:
    trio.write("site/files/motd.txt", "from a file\n")
    trio.write("site/.ccmignore", "*.bak\n")
    trio.write("site/old.bak", "no node needs this")
    resource = a_file("motd")
    del resource[2]["content"]
    resource[2]["source"] = "files/motd.txt"
    path = trio.write("site/manifest.yaml", manifest(resource))

    done = trio.ctl("apply", path.removesuffix("/manifest.yaml"), "-t", "node=web1", "--yes", "--json")
    again = trio.ctl("apply", path.removesuffix("/manifest.yaml"), "-t", "node=web1", "--yes", "--json")

    assert (done.code, done.states) == (0, {"web1": "changed"}), done.err
    assert again.states == {"web1": "stable"}
    assert (trio.agents["web1"].files / "motd").read_text() == "from a file\n"


def test_data_and_facts_decide_on_each_node(trio: Fleet) -> None:
    common = trio.write("common.yaml", "data:\n  greeting: welcome\n")
    path = trio.write(
        "motd.yaml", manifest(a_file("motd", "{{ lookup('data.greeting') }} {{ lookup('facts.role') }}"))
    )

    put = trio.ctl("data", "put", "common", common)
    done = trio.ctl("apply", path, "--all", "--yes", "--json", "--data", "kv://CCM_DATA/common")

    assert put.code == 0, put.err
    assert (done.code, done.states) == (0, {"web1": "changed", "web2": "changed", "db1": "changed"}), done.out
    assert (trio.agents["db1"].files / "motd").read_text() == "welcome db"


def test_one_resource_is_ensured_as_a_run(trio: Fleet) -> None:
    properties = a_file("motd", "ensured")[2]
    words = [f"{key}={value}" for key, value in properties.items() if key not in ("ensure", "mode")]
    path = str(trio.agents["db1"].files / "motd")

    done = trio.ctl(
        "ensure", "file", path, "present", *words, "--mode", "0600", "-t", "role=db", "--yes", "--json"
    )

    assert (done.code, done.states) == (0, {"db1": "changed"}), done.out
    assert (trio.agents["db1"].files / "motd").read_text() == "ensured"
    assert (trio.agents["db1"].files / "motd").stat().st_mode & 0o777 == 0o600


def test_a_failed_node_shows_resource_error_and_the_tail_of_its_output(trio: Fleet) -> None:
    words = 'sh -c "echo line 1; echo line 2 >&2; exit 3"'
    path = trio.write(
        "fails.yaml", manifest(a_file("before"), ("exec", "migrate", {"command": words}), a_file("after"))
    )

    done = trio.ctl("apply", path, "-t", "role=db", "--yes")
    shown = trio.ctl("run", "show", "last")

    assert done.code == 2
    assert "db1: exec#migrate failed\n" in done.out
    assert "│ line 1\n" in done.out
    assert "│ line 2\n" in done.out
    assert shown.code == 0
    head, _, report = screen(trio, shown).partition("\n\n")
    assert re.match(r"run \S+: apply fails by tester, .*\nfor role=db: 1 node$", head)
    assert report == screen(trio, done)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ("role=wbe", "ccmctl: no node matches role=wbe, did you mean role=web?\n"),
        ("node=wbe1", "ccmctl: no node matches node=wbe1, did you mean node=web1?\n"),
        ("rolle=web", "ccmctl: no node matches rolle=web: no node has a fact rolle, did you mean role?\n"),
        ("web1", "ccmctl: no node matches web1; there is a node with that name: node=web1\n"),
        ("role=web,role=db", "ccmctl: role=web,role=db: no node matches all terms (role=web matches 2, role=db matches 1)\n"),
    ],
)  # fmt: skip
def test_a_target_that_matches_no_node_names_the_term(trio: Fleet, targets: str, said: str) -> None:
    path = trio.write("motd.yaml", manifest(a_file("motd")))

    done = trio.ctl("apply", path, "--targets", "node=db1", "--targets", targets, "--yes")

    assert (done.code, done.out, done.err) == (1, "", said)
    assert not (trio.agents["db1"].files / "motd").exists()


def test_a_script_must_say_yes(trio: Fleet) -> None:
    path = trio.write("motd.yaml", manifest(a_file("motd")))

    done = trio.ctl("apply", path, "--targets", "role=web")

    assert (done.code, done.out) == (1, "")
    assert done.err.endswith('ccmctl: cannot ask "apply motd to 2 nodes?" without a terminal; use --yes\n')


def test_an_unknown_node_is_an_error_that_names_the_nearest(trio: Fleet) -> None:
    done = trio.ctl("facts", "set", "web3x", "role=web")

    assert (done.code, done.out) == (1, "")
    assert re.fullmatch(r"ccmctl: web3x: there is no such node, did you mean web[12]\?\n", done.err)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "ccm:\n  resorces: []\n",
            "PATH:2:3: error: unknown key `resorces`, did you mean `resources`? [unknown-key]",
        ),
        ("ccm:\n\tresources: []\n", "PATH:2:1: error: "),
    ],
)
def test_an_unreadable_manifest_is_not_sent(trio: Fleet, text: str, said: str) -> None:
    path = trio.write("bad.yaml", text)
    before = trio.ctl("run", "list", "--json").named("run")

    done = trio.ctl("apply", path, "--all", "--yes")

    assert done.code == 1
    assert said.replace("PATH", path) in done.err
    assert trio.ctl("run", "list", "--json").named("run") == before


def test_facts_of_any_text_route_to_exactly_the_right_nodes(trio: Fleet) -> None:
    texts = ["a b", "a.b", "*", ">", "é", "", "a,b", "x" * 300]
    ping = {}
    for text in texts:
        assert trio.ctl("facts", "set", "web1", f"odd:={json.dumps(text)}").code == 0
        assert trio.ctl("facts", "set", "web2", f"odd:={json.dumps(text + '.')}").code == 0
        done = trio.ctl("ping", "--targets", f"odd={json.dumps(text, ensure_ascii=False)}", "--json")
        ping[text] = (done.code, [record["node"] for record in done.named("reply")])
    trio.ctl("facts", "unset", "web1", "odd")
    trio.ctl("facts", "unset", "web2", "odd")

    assert ping == {text: (0, ["web1"]) for text in texts}
