"""
Every command that signs, with every stored input that it reads, forged in every way: refused or marked, and never signed.

The commands come from the tree of `ccmctl`, and which of them sign comes from their code, as mypy resolves the names in it. So a
new command that signs fails here until it has rows. Those that sign nothing are run as well.

All commands of an administrator renew the timestamp in passing, when they connect: what they read is that of `signers renew`.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
from msgspec import Struct

from ccm_agent.bus.access.permissions import Role, node_permissions
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.trust import SignedText, Trust, sign_signers
from ccm_agent.bus.subjects import key_subject, request_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.records.rollout_records import RolloutPlan, RolloutState, Wave
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.wire import MANIFEST_APPLY
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.__main__ import VERBS
from ccm_ctl.commands.command_tree import CtlProgram
from ccm_ctl.fleet.keys.join_keys import JoinKeys
from ccm_ctl.fleet.keys.keys import Keys
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import History
from tests.support.authorship import Root
from tests.support.call_graph import CallGraph
from tests.support.controller import NOW, FakeNode, Said, event, fleet_on
from tests.support.signed_desk import FORGED, FORGERIES, NEW, OLD, Crew, SignedDesk, copy_broker
from tests.support.signing import OWN, Keyring, new_key

TOP = Path(__file__).resolve().parents[4]

MANIFEST = """\
ccm:
  resources:
    - file:
        - /etc/motd: {{ensure: present, content: '{}', owner: root, group: root, mode: "0644"}}
"""

FACTS, DATA, ASSIGNMENT = ("CCM_FACTS", "web1"), ("CCM_DATA", "common"), ("CCM_ASSIGNMENTS", "all.web")
OWN_DATA, GROUP = ("CCM_DATA", "node/web1"), ("CCM_TRUST", "group.edge")
FAILED, ROLLOUT, CHANGED = ("CCM_RUNS", "failed"), ("CCM_RUNS", "rollout"), ("CCM_RUNS", "changed")
"""Stored inputs as bucket and key; of runs, which one."""

CONNECTED = "ccm_ctl.app.connected"
"""Connects each command, and renews the timestamp in passing."""

OF_OBJECTS = "ccm_agent.bus.signatures.signatory.Signatory.object"
"""`ccmctl` signs no objects: its object store has no signatory."""

IN_BETWEEN = "a made-up revision in between"
WITHHELD, ERASED = "newer revisions withheld", "an erased history"
WRITTEN_ONCE = ("an older revision", IN_BETWEEN, WITHHELD, ERASED)
"""A record of a run has one revision, so there is none before it, none in between, and none without it."""


GENUINE_IS_TAKEN = {("rollback web --yes", "an older revision")}
"""The newest verified revision is restored, whatever comes after it. Revision 1 is genuine, so it can be asked for by number."""


class Row(Struct, frozen=True, kw_only=True):
    """
    A command that signs, and a stored input that it reads.

    Attributes:
        words: The command line. `SITE` is a manifest of the operator, `DATA` a document, and `RUN` the run of the input.
        stored: The input.
        is_present: The node answers.
        replaces: The command takes nothing from the input: it replaces or removes it, whatever it holds.
        picks: What is appended to take the forged revision, if the command can take one by its number; "": it cannot.
    """

    words: str
    stored: tuple[str, str]
    is_present: bool = True
    replaces: bool = False
    picks: str = ""


ROWS = {
    "facts set": [
        Row(words="facts set web1 tier=x", stored=FACTS),
        Row(words="facts set web1 tier=x --replace", stored=FACTS, replaces=True),
    ],
    "facts unset": [Row(words="facts unset web1 tier", stored=FACTS)],
    "data edit": [
        Row(words="data edit common --yes", stored=DATA),
        Row(words="data edit node/web1 --yes", stored=OWN_DATA),
    ],
    "data put": [Row(words="data put common DATA --yes", stored=DATA, replaces=True)],
    "data rm": [Row(words="data rm common --yes", stored=DATA, replaces=True)],
    "data rollback": [Row(words="data rollback common", stored=DATA, picks="{revision}")],
    "data protect": [Row(words="data protect node/web1", stored=OWN_DATA)],
    "group set": [Row(words="group set edge -t node=web1", stored=GROUP, replaces=True)],
    "group rm": [Row(words="group rm edge", stored=GROUP, replaces=True)],
    "assign": [
        Row(words="assign web SITE -t role=web --yes", stored=ASSIGNMENT, replaces=True),
        Row(words="assign other SITE -t @edge --yes", stored=GROUP),
    ],
    "unassign": [Row(words="unassign web --yes", stored=ASSIGNMENT, replaces=True)],
    "rollback": [Row(words="rollback web --yes", stored=ASSIGNMENT, picks="--to {count}")],
    "plan": [Row(words="plan SITE -t @edge", stored=GROUP, is_present=False)],
    "apply": [Row(words="apply SITE -t @edge --yes", stored=GROUP, is_present=False)],
    "ensure": [
        Row(
            words="ensure file /tmp/x present owner=root group=root mode=0644 content=x -t @edge --yes",
            stored=GROUP,
            is_present=False,
        )
    ],
    "exec": [Row(words="exec -t @edge --yes -- /bin/true", stored=GROUP, is_present=False)],
    "node rm": [Row(words="node rm web1 --yes --force", stored=FACTS, replaces=True)],
    "run-now": [Row(words="run-now -t @edge --yes", stored=GROUP)],
    "disable": [Row(words="disable -t @edge --yes --why x", stored=GROUP)],
    "enable": [Row(words="enable -t @edge --yes", stored=GROUP)],
    "lock": [Row(words="lock -t @edge --for 1h --why x --yes", stored=GROUP)],
    "unlock": [Row(words="unlock -t @edge --yes", stored=GROUP)],
    "import": [Row(words="import -t @edge --types sysctl --out FRESH", stored=GROUP, is_present=False)],
    "ping": [Row(words="ping -t @edge", stored=GROUP)],
    "run retry": [
        Row(words="run retry RUN --yes --only offline", stored=FAILED, is_present=False),
    ],
    "undo": [Row(words="undo RUN --yes", stored=CHANGED)],
    "run pause": [Row(words="run pause RUN", stored=ROLLOUT)],
    "run promote": [Row(words="run promote RUN --detach", stored=ROLLOUT)],
    "run resume": [Row(words="run resume RUN --detach", stored=ROLLOUT)],
    "run abort": [Row(words="run abort RUN", stored=ROLLOUT)],
    "run stop": [Row(words="run stop RUN --yes", stored=ROLLOUT)],
}
"""Commands that sign and read something signed, with their rows."""

READS_NOTHING_SIGNED = {"why": "why web1"}
"""Commands that sign a question to a node, and read nothing from the broker that an operator signed."""

ELSEWHERE = {
    **dict.fromkeys(
        ("secret init", "secret put", "secret remove", "secret sync"), "tests/e2e/test_secrets.py"
    ),
    "secret rotate": "tests/e2e/test_secret_rotation.py",
    **dict.fromkeys(
        ("join serve", "node accept", "token create", "token revoke"), "tests/nats/test_join_threats.py"
    ),
    "dashboard": "tests/contract/dashboard/test_actions.py",
    "init": "tests/nats/test_security.py",
    "node add": "tests/nats/test_signing_matrix.py",
    "rollout serve": "tests/unit/ccm_ctl/fleet/rollout/test_starter.py",
    "schedule add": "tests/nats/test_signing_matrix.py",
    "schedule run": "tests/nats/test_signing_matrix.py",
    "signers publish": "tests/nats/test_signing_matrix.py",
    "signers renew": "tests/nats/test_signing_matrix.py",
    "studio": "tests/contract/dashboard/test_studio.py",
    "top": "tests/unit/ccm_ctl/top/test_screen.py",
}
"""Commands that sign and are not in this matrix, because they need a server or a screen; with the test that runs them."""

OF_THE_ROOT = {
    "join reset": "join reset",
    "node revoke": "node revoke web1",
    "operator add": "operator add eve",
    "operator revoke": "operator revoke ann",
    "signers allow-unsigned": "signers allow-unsigned 1h",
    "signers max-age": "signers max-age 2h",
}
"""Commands that sign with the root key what they make of the signers list in its folder."""

UNTRIED = {
    *("audit", "demo", "schedule list", "schedule rm", "signers list"),
    *("join list", "secret history", "secret list", "secret who", "token list"),
}
"""Commands that sign nothing, as their code says. They need a server or the fleet's keys, so they are not run here."""

NOTHING = {
    "facts show": "facts show web1",
    "facts history": "facts history web1",
    "data get": "data get common",
    "data diff": "data diff common",
    "data history": "data history common",
    "data list": "data list",
    "data explain": "data explain word --node web1 --data kv://CCM_DATA/common",
    "group list": "group list",
    "assignment list": "assignment list",
    "assignment status": "assignment status web",
    "assignment history": "assignment history web",
    "bundle list": "bundle list",
    "bundle gc": "bundle gc --yes",
    "bundle get": "bundle get BUNDLE --out FOLDER",
    "run list": "run list",
    "run show": "run show FAILED",
    "run watch": "run watch FAILED",
    "run diff": "run diff FAILED FAILED",
    "rollout list": "rollout list",
    "slots *": "slots",
    "slots release": "slots release x web1 --yes",
    "node list": "node list -t @edge",
    "node show": "node show web1",
    "node reset": "node reset web1 --yes --force",
    "doctor": "doctor",
    "state": "state web1",
    "history": "history web1",
    "events": "events --until 1h",
    "report": "report FAILED --html REPORT",
    "schedule status": "schedule status x",
    "completion": "completion bash",
    "help": "help",
    "notify add": "notify add new --on failed --exec /bin/true --file FILE",
    "notify list": "notify list --file FILE",
    "notify rm": "notify rm old --file FILE",
    "notify test": "notify test x --file FILE",
}
"""Commands that sign nothing. They are run with everything on the broker that there is."""

ENDS = {
    "assignment status": 3,
    "run watch": 3,
    "doctor": 2,
    "slots release": 1,
    "schedule status": 1,
}
"""Exit codes of these: the node is offline, and there is no event, slot or schedule."""


class Scene(Struct, frozen=True, kw_only=True):
    """What the genuine operators stored, and their runs."""

    crew: Crew
    broker: MemoryBroker
    folder: Path
    runs: dict[str, str]
    node: FakeNode

    def desk(self, *, is_present: bool, stored: tuple[str, str] = FAILED) -> SignedDesk:
        """Anna's desk with a copy of all that, and the node; that of CHANGED signed the events of its run."""
        node = self.node if stored == CHANGED else _node(is_present=is_present, own_data=True)
        node.heard.clear()
        desk = SignedDesk(self.crew, node)
        desk.broker = copy_broker(self.broker)
        return desk

    def run(self, desk: SignedDesk, words: str, stored: tuple[str, str] = FAILED) -> Said:
        """Run a command line of a table."""
        manifest, data = self.folder / "own.yaml", self.folder / "own.data"
        manifest.write_text(MANIFEST.format("own").replace("motd", "issue"))
        data.write_text("data: {word: own}\n")
        names = {
            "SITE": str(manifest),
            "DATA": str(data),
            "RUN": self.runs.get(stored[1], ""),
            "FAILED": self.runs["failed"],
            "BUNDLE": next(iter(desk.broker.objects["CCM_MANIFESTS"])),
            "FOLDER": str(self.folder / "out"),
            "FRESH": str(self.folder / "fresh"),
            "REPORT": str(self.folder / "report.html"),
            "FILE": str(self.folder / "notify.json"),
        }
        argv = [names.get(word, word) for word in words.split()]
        return desk.ccmctl(*argv, environ={"EDITOR": "sed -i s/word/other/"})


def _node(*, is_present: bool, own_data: bool, root: Root | None = None) -> FakeNode:
    can = {"undo": True, "staged_assignments": True, "resource_locks": True, "own_data": own_data}
    facts = {"role": "web"} | dict.fromkeys(
        (OLD, NEW, FORGED), "1"
    )  # the node matches forged selectors as well
    does = (event("/etc/motd", 2),) if root is not None else ()
    return FakeNode("web1", facts, does, is_present=is_present, record=can, root=root)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`data edit` saves a text that it cannot store."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder, crew = tmp_path_factory.mktemp("matrix"), Crew()
    desk = SignedDesk(crew, _node(is_present=False, own_data=False))
    patch = pytest.MonkeyPatch()
    patch.setattr("ccm_ctl.fleet.data.fact_edits.TAKEN_WITHIN_S", 0.05)
    for word in (OLD, NEW):
        manifest, data = folder / f"{word}.yaml", folder / f"{word}.data"
        manifest.write_text(MANIFEST.format(word))
        data.write_text(f"data: {{word: {word}}}\n")
        for words in (
            f"facts set web1 rack={word} tier=1",
            f"data put common {data} --yes",
            f"data put node/web1 {data} --yes",
            f"assign web {manifest} -t node=web1 -t {word}=1 --yes",
            f"group set edge -t node=web1 -t {word}=1",
        ):
            said = desk.ccmctl(*words.split())
            assert said.code == 0, said.err
    patch.undo()
    desk.confirm()
    site = folder / NEW
    site.mkdir()
    (site / "manifest.yaml").write_text(MANIFEST.format("run"))
    applied = desk.ccmctl("apply", str(site), "-t", "node=web1", "--yes", "--json")
    runs = {"failed": applied.named("run")[0]["run"], "rollout": asyncio.run(_begin_rollout(desk))}
    changed = _node(is_present=True, own_data=True, root=crew.root)
    later = SignedDesk(crew, changed)
    later.broker = desk.broker
    applied = later.ccmctl("apply", str(site), "-t", "node=web1", "--yes", "--json")
    assert applied.code == 0, applied.err
    runs["changed"] = applied.named("run")[0]["run"]
    made = Scene(crew=crew, broker=desk.broker, folder=folder, runs=runs, node=changed)
    for name in ("old", "x"):
        assert made.run(desk, f"notify add {name} --on failed --exec /bin/true --file FILE").code == 0
    return made


async def _begin_rollout(desk: SignedDesk) -> str:
    """A rollout of anna that waits for its driver."""
    run, bus = new_id(NOW), MemoryBus(desk.broker, "anna", desk.signatory)
    fleet = fleet_on(bus, desk.crew.trust)
    digest, content = list(desk.broker.objects["CCM_MANIFESTS"].items())[-1]
    bundle = {"digest": digest, "size_bytes": len(content)}
    record = RunRecord(
        run=run,
        action="apply",
        name=NEW,
        time=NOW,
        subjects=[request_subject(MANIFEST_APPLY, "node.web1")],
        request={"protocol": MANIFEST_APPLY, "name": NEW, "digest": digest, "bundle": bundle},
        nodes=1,
    )
    await History(fleet).begin(record, ["web1"], [], OWN)
    plan = RolloutPlan(waves=(Wave(name="1", nodes=1, slots=1),))
    await RolloutStore(fleet).write(RolloutState(run=run, plan=plan, is_detached=True), 0, base=OWN)
    return run


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Each command that does something, by its path, and its function; ` *` is a group that is called without a command."""
    if not isinstance(command, click.Group):
        yield " ".join(path), _function(command)
        return
    if path and command.callback is not None and not command.no_args_is_help:
        yield f"{' '.join(path)} *", _function(command)
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _commands(found, (*path, name))


def _function(command: click.Command) -> str:
    """The full name of the function that `verb` made a command of."""
    assert command.callback is not None
    function = inspect.unwrap(command.callback)
    return f"{function.__module__}.{function.__qualname__}"


MATRIX = [
    pytest.param(row, kind, id=f"{row.words}-{kind}")
    for rows in ROWS.values()
    for row in rows
    for kind in FORGERIES
    if not (row.stored[0] == "CCM_RUNS" and kind in WRITTEN_ONCE)
]


@pytest.mark.timeout(400)  # mypy reads all modules
def test_the_tables_name_exactly_the_commands_that_can_reach_a_signature() -> None:
    graph = CallGraph()
    of_operators = {
        f"ccm_agent.bus.signatures.signatory.Signatory.{name}"
        for name, method in vars(Signatory).items()
        if not name.startswith("_") and callable(method) and "base" in inspect.signature(method).parameters
    } - {OF_OBJECTS}
    of_the_root = {
        "ccm_agent.bus.signatures.trust.sign_signers",
        "ccm_agent.bus.signatures.trust.certify_node",
    }
    commands = dict(_commands(CtlProgram(VERBS)))

    signing = graph.reaching(of_operators | of_the_root, but=[CONNECTED])

    assert {CONNECTED, *of_operators, *of_the_root, *commands.values()} <= graph.names
    signs = [name for name, function in commands.items() if function in signing]
    assert sorted(signs) == sorted([*ROWS, *READS_NOTHING_SIGNED, *OF_THE_ROOT, *ELSEWHERE])
    assert sorted({*commands} - {*signs}) == sorted([*NOTHING, *UNTRIED])
    assert [path for path in ELSEWHERE.values() if not (TOP / path).is_file()] == []


def test_the_object_store_of_ccmctl_has_no_signatory() -> None:
    calls = [
        len(node.args) + len(node.keywords)
        for path in (TOP / "ccm_ctl").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "NatsObjects"
    ]

    assert calls == [2]  # the connection and the name


@pytest.mark.parametrize("row", [pytest.param(row, id=row.words) for rows in ROWS.values() for row in rows])
def test_control_genuine_input_is_signed(scene: Scene, row: Row) -> None:
    desk = scene.desk(is_present=row.is_present, stored=row.stored)

    said = scene.run(desk, row.words, row.stored)

    assert said.code == (0 if row.is_present else 3), said.err
    assert desk.signatory.signed


@pytest.mark.parametrize(("row", "kind"), MATRIX)
def test_forged_input_is_refused_or_marked_and_never_signed(scene: Scene, row: Row, kind: str) -> None:
    desk = scene.desk(is_present=row.is_present, stored=row.stored)
    bucket, key = row.stored
    marker = (OLD if kind in ("an older revision", WITHHELD) else FORGED).encode()
    words = row.words
    if bucket == "CCM_RUNS":
        desk.forge_record(scene.runs[key], kind)
    else:
        desk.forge(bucket, key, kind)
        if row.picks and kind != ERASED and (row.words, kind) not in GENUINE_IS_TAKEN:
            words += f" {row.picks}".format(**desk.forged_revision(bucket, key, kind))

    said = scene.run(desk, words, row.stored)

    signed = [
        subject for subject, body in desk.signatory.signed if marker in body or marker in subject.encode()
    ]
    assert signed == []
    if kind == ERASED and not row.replaces:  # nothing was computed from nothing
        assert key_subject(bucket, key) not in [subject for subject, _ in desk.signatory.signed]
    is_unread = row.replaces or (kind == IN_BETWEEN and not row.picks)
    if not is_unread and (row.words, kind) not in GENUINE_IS_TAKEN:
        assert said.code != 0 or "verified" in said.err + said.out


@pytest.mark.parametrize("words", READS_NOTHING_SIGNED.values())
def test_a_question_is_signed(scene: Scene, words: str) -> None:
    desk = scene.desk(is_present=True)

    said = scene.run(desk, words)

    assert (said.code, len(desk.signatory.signed)) == (0, 1), said.err


@pytest.mark.parametrize("name", NOTHING)
def test_a_command_that_is_listed_as_signing_nothing_signs_nothing(scene: Scene, name: str) -> None:
    desk = scene.desk(is_present=False)

    said = scene.run(desk, NOTHING[name])

    assert (said.code, desk.signatory.signed) == (ENDS.get(name, 0), []), said.err


@pytest.mark.parametrize("kind", ["unsigned", "another root", "an operator", "changed after signing"])
@pytest.mark.parametrize("words", OF_THE_ROOT.values())
def test_a_forged_list_beside_the_root_key_is_not_signed_anew(tmp_path: Path, words: str, kind: str) -> None:
    keys, path = Keys(tmp_path), tmp_path / "trust.json"
    keys.make()
    keys.make_root()
    JoinKeys(keys).prepare()
    keys.add_operator("ann", Role(data=True))
    keys.add_node("web1", node_permissions("web1"))
    genuine = path.read_bytes()
    trust = msgspec.json.decode(genuine, type=Trust)
    assert trust.signers is not None
    evil = Keyring()
    evil.operator("evil", apply=(">",))
    evil.number = keys.signers.read().number
    roots = {"another root": evil.root, "an operator": new_key()}
    forged = sign_signers(roots.get(kind, evil.root), evil.listed())
    signature = {"unsigned": "", "changed after signing": trust.signers.signature}.get(kind, forged.signature)
    root = evil.root.public_key if kind == "another root" else trust.root
    signed = SignedText(body=forged.body, signature=signature)
    argv = [*words.split(), "--keys", str(tmp_path)]
    desk = SignedDesk(Crew())

    path.write_bytes(msgspec.json.encode(Trust(root=root, signers=signed)))
    before = path.read_bytes()
    attacked = desk.ccmctl(*argv)
    after = path.read_bytes()
    path.write_bytes(genuine)
    keys.add_operator("ann", Role(data=True))  # the attack may have revoked the credentials
    keys.add_node("web1", node_permissions("web1"))
    control = desk.ccmctl(*argv)

    assert (attacked.code != 0, after) == (True, before), attacked.err
    assert "trust.json" in attacked.err
    assert control.code == 0, control.err
    assert keys.signers.read().number > evil.number
