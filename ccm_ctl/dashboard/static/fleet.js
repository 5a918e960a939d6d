// The Fleet page: nodes × assignments as a heat map, with filters that stand in the address.
import { html, useEffect, useMemo, useRef, useState, ask, go, withQuery, natural, number, plural, signOf, meaningOf, nodePath, runPath, Ago, Export, Link, Problem, State } from "./lib.js";
import { live, useLive } from "./live.js";
import { HeatMap } from "./heat.js";
import { Timeline } from "./timeline.js";
import { EventList } from "./events.js";
import { NodePanel } from "./panel.js";

// The states of nodes, the worst first, as `ccm_ctl.fleet.nodes.node_condition` decides them.
const ORDER = [
  "failed", "duplicate", "clock", "refused", "plans only", "stopped", "disk", "expired", "silent", "refresh pending", "undelivered", "drifted",
  "offline", "never seen", "disabled", "waiting", "running", "unassigned", "converged",
];

// The rows of the nodes that the filter means, kept up with the fleet by asking for what changed.
function useRows(filter) {
  const [shown, set] = useState({ rows: null, assignments: [], attention: [], problem: "", error: null });
  const kept = useRef({ filter: null, version: 0, rows: new Map(), isAsking: false, wanted: "" });
  const { version, loads } = useLive();
  useEffect(() => {
    const mine = kept.current;
    mine.wanted = filter;
    if (mine.isAsking) return; // it goes on until it has what is wanted
    mine.isAsking = true;
    (async () => {
      do await read(mine, set);
      while (mine.wanted !== mine.filter || (live.version > mine.version && mine.version));
      mine.isAsking = false;
    })();
  }, [filter, version, loads]);
  return shown;
}

async function read(mine, set) {
  const filter = mine.wanted;
  if (mine.filter !== filter) Object.assign(mine, { filter, version: 0, rows: new Map() });
  try {
    const said = await ask(`/api/fleet?since=${mine.version}${filter && `&${filter}`}`);
    const rows = said.since ? new Map(mine.rows) : new Map();
    for (const name of said.gone) rows.delete(name);
    for (const row of said.rows) rows.set(row.node, row);
    Object.assign(mine, { rows, version: said.version });
    if (mine.wanted !== filter) return;
    set({ rows, assignments: said.assignments, attention: said.attention, total: said.total, problem: said.problem || said.broker_problem, error: null });
  } catch (error) {
    mine.version = 0;
    set((before) => ({ ...before, rows: before.rows || new Map(), error }));
  }
}

function useFacts(paths, rows) {
  const [facts, set] = useState({});
  const isKnown = (path) => path === "" || [...(rows?.values() || [])].some((row) => path in row.facts);
  const wanted = rows ? paths.filter((path) => !isKnown(path)) : [];
  const query = wanted.map((path) => `path=${encodeURIComponent(path)}`).join("&");
  useEffect(() => {
    if (!query) return set({});
    ask(`/api/facts?${query}`).then(set, () => set({}));
  }, [query]);
  return (row, path) => (path in row.facts ? row.facts[path] : facts[row.node]?.[path]);
}

const words = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);

function Filters({ query, factNames }) {
  const [targets, setTargets] = useState(query.getAll("targets").join(" or "));
  const [where, setWhere] = useState(query.get("where") || "");
  const [facts, setFacts] = useState(query.get("facts") || "");
  useEffect(() => {
    setTargets(query.getAll("targets").join(" or "));
    setWhere(query.get("where") || "");
    setFacts(query.get("facts") || "");
  }, [query.toString()]);
  const submit = (event) => {
    event.preventDefault();
    go(withQuery({ targets: targets.split(/\s+or\s+/).map((one) => one.trim()), where: where.trim(), facts: words(facts).join(",") }));
  };
  const clear = () => go(withQuery({ targets: "", where: "", state: "" }));
  return html`<form class="filters" role="search" onSubmit=${submit}>
    <label>Nodes <input name="targets" value=${targets} placeholder="role=web,env!=dev" spellcheck=${false} autocomplete="off" autocapitalize="off" onInput=${(event) => setTargets(event.target.value)} /></label>
    <label>Where <input name="where" value=${where} placeholder='Facts.zone in ["a", "b"]' spellcheck=${false} autocomplete="off" autocapitalize="off" onInput=${(event) => setWhere(event.target.value)} /></label>
    <label>Facts as columns <input name="facts" value=${facts} list="fact-names" placeholder="role, zone" spellcheck=${false} autocomplete="off" autocapitalize="off" onInput=${(event) => setFacts(event.target.value)} /></label>
    <datalist id="fact-names">${factNames.map((name) => html`<option value=${name} />`)}</datalist>
    <span class="buttons"><button type="submit" class="primary">Show</button><button type="button" onClick=${clear}>All nodes</button></span>
  </form>`;
}

function Counts({ rows, chosen }) {
  const counts = {};
  for (const row of rows.values()) counts[row.status] = (counts[row.status] || 0) + 1;
  const toggle = (state) => go(withQuery({ state: chosen === state ? "" : state }));
  return html`<div class="counts" role="group" aria-label="Nodes by state">
    ${ORDER.filter((state) => counts[state] || chosen === state).map(
      (state) => html`<button type="button" class=${`chip ${meaningOf(state)}`} aria-pressed=${chosen === state} onClick=${() => toggle(state)} key=${state}>
        <span aria-hidden="true">${signOf(state)}</span> <b>${number(counts[state] || 0)}</b> ${state}
      </button>`,
    )}
  </div>`;
}

const ATTENTION_SHOWN = 8;
const where = ({ run, nodes, state }) => (!nodes.length ? runPath(run) : nodes.length === 1 ? nodePath(nodes[0]) : withQuery({ state }));

// What needs an operator, the worst first: what is wrong, since when, the command to run, and the page that shows it.
function Attention({ items }) {
  const [isOpen, setOpen] = useState(false);
  const shown = isOpen ? items : items.slice(0, ATTENTION_SHOWN);
  return html`<section class="card attention" aria-labelledby="attention-title">
    <h2 id="attention-title">Needs attention</h2>
    ${
      items.length
        ? html`<ul>${shown.map(
            (item) => html`<li key=${`${item.state} ${item.sentence}`}><${State} state=${item.state} /> <${Link} to=${where(item)}>${item.sentence}<//>${item.since && html` <span class="quiet"><${Ago} time=${item.since} /></span>`} <code>${item.command}</code></li>`,
          )}</ul>`
        : html`<p class="quiet">Nothing: no node failed, drifted or is missing, and no rollout waits for you.</p>`
    }
    ${items.length > ATTENTION_SHOWN && html`<button type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "Show fewer" : `Show all ${number(items.length)}`}</button>`}
  </section>`;
}

// How old what is shown is: the dashboard reads the fleet every few seconds while the broker answers.
function ReadAt() {
  const { read } = useLive();
  return read ? html`, read <${Ago} time=${read} every=${1000} />` : "";
}

const SORTS = { name: "name", problems: "problems first", run: "last run" };
function sorted(rows, by) {
  const byName = (one, other) => natural(one.node, other.node);
  if (by === "problems") return rows.sort((one, other) => ORDER.indexOf(one.status) - ORDER.indexOf(other.status) || byName(one, other));
  if (by === "run") return rows.sort((one, other) => (other.last_time || "").localeCompare(one.last_time || "") || byName(one, other));
  return rows.sort(byName);
}

function exported(rows, assignments, paths, factOf) {
  const columns = ["node", "state", "agent", "heard", ...assignments.map((one) => one.name), ...paths, "last_run", "last_state", "last_time", "version", "note"];
  return [
    columns,
    rows.map((row) => [
      row.node, row.status, row.state, row.heard, ...assignments.map((one) => row.standings[one.name]?.state), ...paths.map((path) => factOf(row, path)),
      row.last_run, row.last_state, row.last_time, row.version, [row.unverified && `unverified ${row.unverified}`, row.late && "missed its heartbeat", row.detail].filter(Boolean).join("; "),
    ]),
  ];
}

export function FleetPage({ address }) {
  const query = address.searchParams;
  const filter = useMemo(() => {
    const said = new URLSearchParams();
    for (const one of query.getAll("targets")) said.append("targets", one);
    if (query.get("where")) said.set("where", query.get("where"));
    return said.toString();
  }, [address.search]);
  const { rows, assignments, attention, problem, error, total } = useRows(filter);
  const paths = words(query.get("facts") || "").slice(0, 8);
  const factOf = useFacts(paths, rows);
  const chosen = query.get("state") || "";
  const sort = query.get("sort") in SORTS ? query.get("sort") : "name";
  const list = useMemo(() => sorted([...(rows?.values() || [])].filter((row) => !chosen || row.status === chosen), sort), [rows, chosen, sort]);
  const factNames = useMemo(() => [...new Set([...(rows?.values() || [])].slice(0, 200).flatMap((row) => Object.keys(row.facts)))].sort(), [rows]);
  const [open, setOpen] = useState("");
  const brush = query.get("from") ? [Number(query.get("from")), Number(query.get("to")) || Infinity] : null;
  const isFiltered = Boolean(filter || chosen);
  return html`
    <div class="title">
      <h1>Fleet</h1>
      ${rows && html`<p class="sub">${isFiltered ? `${number(list.length)} of ${plural(total || 0, "node")}` : plural(list.length, "node")}, ${plural(assignments.length, "assignment")}<${ReadAt} /></p>`}
      <span class="spacer"></span>
      <label class="sort">Sort by <select value=${sort} onChange=${(event) => go(withQuery({ sort: event.target.value === "name" ? "" : event.target.value }))}>
        ${Object.entries(SORTS).map(([key, text]) => html`<option value=${key}>${text}</option>`)}
      </select></label>
      <${Export} isOfPage name="fleet" table=${() => exported(list, assignments, paths, factOf)} />
    </div>
    ${rows && rows.size + total > 0 && html`<${Attention} items=${attention} />`}
    <${Filters} query=${query} factNames=${factNames} />
    <${Problem} error=${error} />
    ${problem && html`<p class="problem" role="status">${problem}</p>`}
    ${rows && html`<${Counts} rows=${rows} chosen=${chosen} />`}
    ${rows && rows.size === 0 && !problem && !error && html`<p class="empty">No node has connected yet. An agent appears here a few seconds after it has connected.</p>`}
    ${rows && rows.size > 0 && html`<${HeatMap} rows=${list} assignments=${assignments} paths=${paths} factOf=${factOf} onOpen=${setOpen} open=${open} />`}
    ${!rows && html`<p class="empty" aria-busy="true">Reading the fleet …</p>`}
    ${open && rows?.get(open) && html`<${NodePanel} row=${rows.get(open)} onClose=${() => setOpen("")} />`}
    <section class="events-section" aria-labelledby="events-title">
      <div class="title"><h2 id="events-title">Events of the last hour</h2></div>
      <${Timeline} brush=${brush} />
      <${EventList} brush=${brush} nodes=${filter && rows ? rows : null} />
    </section>`;
}
