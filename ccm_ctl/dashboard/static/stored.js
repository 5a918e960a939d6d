// Tables of what is stored: assignments, data, schedules, registrations; and the search of events.
import { html, useEffect, useMemo, useState, ask, go, withQuery, natural, number, plural, span, Ago, Link, Problem, Export, short, runPath } from "./lib.js";
import { live, useLive } from "./live.js";
import { Tally } from "./runs.js";
import { EventTable, exportedEvents } from "./events.js";

function useRead(path) {
  const { version, loads } = useLive();
  const [shown, set] = useState({ said: null, error: null });
  useEffect(() => {
    const stop = new AbortController();
    ask(path, { signal: stop.signal }).then((said) => set({ said, error: null }), (error) => stop.signal.aborted || set((before) => ({ ...before, error })));
    return () => stop.abort();
  }, [path, version, loads]);
  return shown;
}

// A page that is one table. A column is its name, what stands in its cell, and the value for programs.
function TablePage({ title, sub, rows, columns, error, empty, name }) {
  const table = () => [columns.map(([text]) => text), rows.map((row) => columns.map(([, shown, value]) => (value || shown)(row)))];
  return html`
    <div class="title"><h1>${title}</h1>${sub && html`<p class="sub">${sub}</p>`}<span class="spacer"></span>${rows && html`<${Export} name=${name} table=${table} />`}</div>
    <${Problem} error=${error} />
    ${!rows && !error && html`<p class="empty" aria-busy="true">Reading …</p>`}
    ${rows && !rows.length && html`<p class="empty">${empty}</p>`}
    ${rows?.length > 0 && html`<div class="scroll tall" tabindex="0" role="region" aria-label=${title}><table>
      <thead><tr>${columns.map(([text]) => html`<th scope="col" key=${text}>${text}</th>`)}</tr></thead>
      <tbody>${rows.slice(0, 1000).map((row, place) => html`<tr key=${place}>${columns.map(([text, shown]) => html`<td key=${text}>${shown(row)}</td>`)}</tr>`)}</tbody>
    </table></div>`}`;
}

const whom = (row) => (row.targets.join(" or ") || "all nodes") + (row.where ? ` where ${row.where}` : "");
const time = (name) => [(row) => html`<${Ago} time=${row[name]} />`, (row) => row[name]];

const revisions = [
  ["Revision", (row) => row.revision],
  ["Bundle", (row) => html`<code>${short(row.digest)}</code>`, (row) => row.digest],
  ["Data", (row) => (row.removed ? "" : row.data_revision || "newest")],
  ["Targets", (row) => (row.removed ? "removed" : whom(row))],
  ["By", (row) => row.written_by],
  ["When", ...time("time")],
  ["Message", (row) => (row.rolled_back_from ? `rolled back from ${row.rolled_back_from}; ` : "") + (row.message || "")],
];

export function AssignmentsPage() {
  const { said, error } = useRead("/api/assignments");
  const path = (row) => `/assignments/${encodeURIComponent(row.name)}?scope=${encodeURIComponent(row.scope)}`;
  return html`<${TablePage} title="Assignments" name="assignments" error=${error} rows=${said?.assignments} sub=${said && plural(said.assignments.length, "assignment")} empty="Nothing is assigned yet. ccmctl assign shows how." columns=${[
    ["Name", (row) => html`<${Link} to=${path(row)}>${row.name}<//>`, (row) => row.name],
    ["Targets", whom],
    ["Nodes", (row) => html`<${Tally} counts=${row.counts} />`, (row) => row.counts],
    ["Revision", (row) => row.revision],
    ["Mode", (row) => row.mode],
    ["Every", (row) => (row.interval_s ? span(row.interval_s) : "the node's own"), (row) => row.interval_s],
    ["By", (row) => row.written_by],
    ["When", ...time("time")],
  ]} />`;
}

export function AssignmentPage({ params, address }) {
  const scope = address.searchParams.get("scope") || "";
  const { said, error } = useRead(`/api/assignments/${encodeURIComponent(params[0])}?scope=${encodeURIComponent(scope)}`);
  return html`<${TablePage} title=${params[0]} name=${`assignment-${params[0]}`} error=${error} rows=${said?.revisions} sub="revisions that are kept, newest first" columns=${revisions} />`;
}

export function DataPage() {
  const { said, error } = useRead("/api/data");
  return html`<${TablePage} title="Data" name="data" error=${error} rows=${said?.documents} sub="Hiera documents; texts may contain secrets, so ccmctl data get shows them" empty="No data yet." columns=${[
    ["Key", (row) => html`<${Link} to=${`/data/${row.key}`}>${row.key}<//>`, (row) => row.key],
    ["Revision", (row) => row.revision],
    ["By", (row) => row.written_by],
    ["When", ...time("time")],
    ["Message", (row) => row.message],
  ]} />`;
}

export function DocumentPage({ params }) {
  const { said, error } = useRead(`/api/data/${params[0].split("/").map(encodeURIComponent).join("/")}`);
  return html`<${TablePage} title=${params[0]} name="revisions" error=${error} rows=${said?.revisions} sub="revisions that are kept, newest first" columns=${[
    ["Revision", (row) => row.revision],
    ["By", (row) => row.written_by],
    ["When", ...time("time")],
    ["Message", (row) => (row.removed ? "removed" : row.message)],
    ["Compare", (row) => html`<code>ccmctl data diff ${row.key} ${row.revision}</code>`, () => ""],
  ]} />`;
}

export function SchedulesPage() {
  const { said, error } = useRead("/api/schedules");
  return html`<${TablePage} title="Schedules" name="schedules" error=${error} rows=${said?.schedules} empty="No schedule." columns=${[
    ["Name", (row) => row.name],
    ["What", (row) => `${row.action} ${row.manifest}`],
    ["Targets", whom],
    ["When", (row) => `${row.when} ${row.zone}`.trim()],
    ["Last", (row) => (row.last ? html`${row.last_run ? html`<${Link} to=${runPath(row.last_run)}><${Ago} time=${row.last} /><//>` : html`<${Ago} time=${row.last} />`}` : "not yet"), (row) => row.last],
    ["Next", (row) => (row.next ? html`<${Ago} time=${row.next} />` : "not again"), (row) => row.next],
    ["Signature ends", (row) => (row.ends ? html`<${Ago} time=${row.ends} />` : "not signed"), (row) => row.ends],
  ]} />`;
}

export function RegistrationsPage() {
  const { said, error } = useRead("/api/registrations");
  const rows = said?.registrations && [...said.registrations].sort((one, other) => natural(one.service, other.service) || natural(one.address, other.address));
  return html`<${TablePage} title="Registrations" name="registrations" error=${error || (said?.problem && { message: said.problem })} rows=${rows} sub="services that nodes registered; an entry ends when its service is not healthy" empty="No service is registered." columns=${[
    ["Service", (row) => row.service],
    ["Cluster", (row) => row.cluster],
    ["Protocol", (row) => row.protocol],
    ["Address", (row) => row.address],
    ["Port", (row) => row.port ?? ""],
    ["Priority", (row) => row.priority ?? ""],
    ["Annotations", (row) => Object.entries(row.annotations || {}).map(([name, value]) => `${name}=${value}`).join(", ")],
  ]} />`;
}

const KINDS = ["", "resource", "start", "summary", "agent"];
const MEANINGS = { "": "any", bad: "problems", change: "changes", good: "as desired" };

export function ChangesPage({ address }) {
  const { last, loads } = useLive();
  const query = address.searchParams;
  const [events, set] = useState(null);
  const [error, setError] = useState(null);
  const said = ["text", "node", "kind", "meaning"].map((name) => query.get(name) || "");
  const key = said.join("\n");
  useEffect(() => {
    const asked = new URLSearchParams();
    ["text", "node", "kind", "meaning"].forEach((name, place) => said[place] && asked.set(name, said[place]));
    const timer = setTimeout(() => ask(`/api/events?${asked}`).then((found) => { set(found.events); setError(null); }, setError), events ? 1000 : 0);
    return () => clearTimeout(timer);
  }, [key, last, loads]);
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    go(withQuery(Object.fromEntries(["text", "node", "kind", "meaning"].map((name) => [name, String(form.get(name) || "").trim()]))));
  };
  return html`
    <div class="title"><h1>Changes</h1><p class="sub">search the events of the last hour</p><span class="spacer"></span><${Export} name="changes" table=${() => exportedEvents(events || [])} /></div>
    <form class="filters" role="search" onSubmit=${submit} key=${key}>
      <label>Text <input name="text" defaultValue=${said[0]} autocomplete="off" /></label>
      <label>Node <input name="node" defaultValue=${said[1]} placeholder="web*" autocomplete="off" autocapitalize="off" /></label>
      <label>Kind <select name="kind">${KINDS.map((kind) => html`<option value=${kind} selected=${kind === said[2]}>${kind || "any"}</option>`)}</select></label>
      <label>Outcome <select name="meaning">${Object.entries(MEANINGS).map(([value, text]) => html`<option value=${value} selected=${value === said[3]}>${text}</option>`)}</select></label>
      <span class="buttons"><button type="submit" class="primary">Search</button><button type="button" onClick=${() => go("/changes")}>All events</button></span>
    </form>
    <${Problem} error=${error} />
    ${events && (events.length ? html`<${EventTable} events=${events} label="Events" />` : html`<p class="empty">No such event in the last hour.</p>`)}`;
}
