// Tables of what is stored: assignments, data, schedules, registrations.
import { html, natural, plural, span, fact, go, withQuery, Problem, Ago, Link, State, Unverified, author, short, runPath } from "./lib.js";
import { Tally } from "./runs.js";
import { Diff } from "./diffs.js";
import { TablePage, TableSection, useRead } from "./tables.js";

const whom = (row) => (row.targets.join(" or ") || "all nodes") + (row.where ? ` where ${row.where}` : "");
const time = (name) => [(row) => html`<${Ago} time=${row[name]} />`, (row) => row[name]];
const unverified = (row) => html`<${Unverified} reason=${row.unverified} />`;

const revisions = [
  ["Revision", (row) => row.revision],
  ["Bundle", (row) => html`<code>${short(row.digest)}</code>`, (row) => row.digest],
  ["Data", (row) => (row.removed ? "" : row.data_revision || "newest")],
  ["Targets", (row) => (row.removed ? "removed" : whom(row))],
  ["By", ...author],
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
    ["By", ...author],
    ["When", ...time("time")],
  ]} />`;
}

// The lines that a revision changed, or that a rollback to it would change. Secrets are masked by the server.
function RevisionChanges({ path, kind, revision, rows }) {
  const { said, error } = useRead(rows.length && `${path}&${kind}=${revision}`, rows[0]?.time, false);
  const title = kind === "rollback" ? `Changes by a rollback to revision ${revision}` : `Changes of revision ${revision}`;
  const files = (said?.diff.files || []).map((one) => ({ ...one, path: one.path || "the assignment" }));
  return html`<section aria-label=${title}>
    <div class="title"><h2>${title}</h2>${said && !said.problem && html`<p class="sub">${said.before ? `compared with revision ${said.before}` : "no earlier revision is stored"}</p>`}</div>
    <${Problem} error=${error || (said?.problem && { message: said.problem })} />
    ${said?.unverified.map((one) => html`<p key=${one}>Revision ${one} is left out:<${Unverified} reason=${rows.find((row) => row.revision === one && row.unverified)?.unverified} /></p>`)}
    ${said && !said.problem && (files.length ? html`<${Diff} diff=${{ ...said.diff, files }} />` : html`<p class="empty">No line is different.</p>`)}
    ${said?.command && html`<p class="hint quiet"><code>${said.command}</code> rolls back.</p>`}
    <p class="hint quiet">Values of keys such as <code>password</code> are <code>***</code>.</p>
  </section>`;
}

export function AssignmentPage({ params, address }) {
  const scope = address.searchParams.get("scope") || "";
  const path = `/api/assignments/${encodeURIComponent(params[0])}?scope=${encodeURIComponent(scope)}`;
  const { said, error } = useRead(path);
  const kind = address.searchParams.get("rollback") ? "rollback" : "changes";
  const chosen = address.searchParams.get(kind) || "";
  const newest = said?.revisions[0]?.revision;
  const show = (row, its, text, hidden) => {
    const isOpen = its === kind && chosen === String(row.revision);
    return html`<button type="button" class="plain link" aria-expanded=${isOpen} onClick=${() => go(withQuery({ changes: "", rollback: "", [its]: isOpen ? "" : String(row.revision) }))}>${text}<span class="hidden"> ${hidden} revision ${row.revision}</span></button> `;
  };
  return html`<${TablePage} title=${params[0]} name=${`assignment-${params[0]}`} error=${error} rows=${said?.revisions} sub="revisions that are kept, newest first" columns=${[
    revisions[0],
    ["Changes", (row) => !row.removed && !row.unverified && html`${show(row, "changes", "show", "changes of")}${row.revision !== newest && show(row, "rollback", "preview rollback", "to")}`, () => ""],
    ...revisions.slice(1),
  ]} />
  ${chosen && html`<${RevisionChanges} key=${kind + chosen} path=${path} kind=${kind} revision=${chosen} rows=${said?.revisions || []} />`}`;
}

export function DataPage() {
  const { said, error } = useRead("/api/data");
  return html`<${TablePage} title="Data" name="data" error=${error} rows=${said?.documents} sub="Hiera documents" empty="No data yet." columns=${[
    ["Key", (row) => html`<${Link} to=${`/data/${row.key}`}>${row.key}<//>`, (row) => row.key],
    ["Revision", (row) => row.revision],
    ["By", ...author],
    ["When", ...time("time")],
    ["Message", (row) => row.message],
  ]} />`;
}

const KINDS = { added: "good", removed: "bad", changed: "change" };
const changes = [
  ["Value", (row) => html`<code class="value">${row.path}</code>`, (row) => row.path],
  ["What", (row) => html`<span class=${KINDS[row.kind]}>${row.kind}</span>`, (row) => row.kind],
  ["Before", (row) => html`<code class="value">${fact(row.before)}</code>`, (row) => row.before],
  ["After", (row) => html`<code class="value">${fact(row.after)}</code>`, (row) => row.after],
];

// What one revision changed. Secrets are masked by the server.
function DocumentChanges({ path, revision, name }) {
  const { said, error } = useRead(`${path}?changes=${revision}`);
  const sub = said && (said.before ? `compared with revision ${said.before}` : "the first stored revision");
  return html`<${Problem} error=${error || (said?.problem && { message: said.problem })} />
    ${said && html`<${TableSection} title=${`Changes of revision ${revision}`} sub=${sub} name=${`changes-${name}-${revision}`} rows=${said.changes} columns=${changes} empty="No value is different.">
      ${said.left_out > 0 && html`<p class="quiet">${plural(said.left_out, "more change")} left out.</p>`}
      <p class="hint quiet">Secrets are <code>***</code>. <code>ccmctl data diff ${name} ${said.before || revision} ${said.before ? revision : ""}</code> shows the texts.</p>
    <//>`}`;
}

export function DocumentPage({ params, address }) {
  const path = `/api/data/${params[0].split("/").map(encodeURIComponent).join("/")}`;
  const { said, error } = useRead(path);
  const chosen = address.searchParams.get("changes") || "";
  return html`<${TablePage} title=${params[0]} name="revisions" error=${error} rows=${said?.revisions} sub="revisions that are kept, newest first" columns=${[
    ["Revision", (row) => row.revision],
    ["By", ...author],
    ["When", ...time("time")],
    ["Message", (row) => (row.removed ? "removed" : row.message)],
    ["Changes", (row) => html`<button type="button" class="plain link" aria-expanded=${chosen === String(row.revision)} onClick=${() => go(withQuery({ changes: chosen === String(row.revision) ? "" : String(row.revision) }))}>show<span class="hidden"> changes of revision ${row.revision}</span></button>`, () => ""],
  ]} />
  ${chosen && html`<${DocumentChanges} key=${chosen} path=${path} revision=${chosen} name=${params[0]} />`}`;
}

export function SchedulesPage() {
  const { said, error } = useRead("/api/schedules");
  return html`<${TablePage} title="Schedules" name="schedules" error=${error} rows=${said?.schedules} empty="No schedule." columns=${[
    ["Name", (row) => html`${row.name}${unverified(row)}`, (row) => row.name],
    ["What", (row) => `${row.action} ${row.manifest}${row.rollout ? `, rollout with ${row.rollout}` : ""}`],
    ["Targets", whom],
    ["When", (row) => `${row.when} ${row.zone}`.trim()],
    ["Last", (row) => (row.last ? html`${row.last_run ? html`<${Link} to=${runPath(row.last_run)}><${Ago} time=${row.last} /><//>` : html`<${Ago} time=${row.last} />`}` : "not yet"), (row) => row.last],
    ["Next", (row) => (row.next ? html`<${Ago} time=${row.next} />` : "not again"), (row) => row.next],
    ["Signature ends", (row) => (row.ends ? html`<${Ago} time=${row.ends} />` : "not signed"), (row) => row.ends],
  ]} />`;
}

// Why the broker says that an entry is no longer there.
const GONE = { MaxAge: "its node did not renew it: the service is not healthy, or the node is offline", Remove: "its node removed it", Purge: "an operator removed it" };

export function RegistrationsPage() {
  const { said, error } = useRead("/api/registrations");
  const rows = said?.registrations && [...said.registrations].sort((one, other) => Number(one.is_gone) - Number(other.is_gone) || natural(one.service, other.service) || natural(one.address, other.address));
  return html`<${TablePage} title="Registrations" name="registrations" error=${error || (said?.problem && { message: said.problem })} rows=${rows} sub="services that nodes registered while they were healthy" empty="No service is registered." columns=${[
    ["Health", (row) => (row.is_gone ? html`<${State} state="gone" /> <span class="quiet">${GONE[row.reason] || row.reason}</span>` : html`<${State} state="healthy" />`), (row) => (row.is_gone ? "gone" : "healthy")],
    ["Service", (row) => html`${row.service}${unverified(row)}`, (row) => row.service],
    ["Cluster", (row) => row.cluster],
    ["Protocol", (row) => row.protocol],
    ["Address", (row) => row.address],
    ["Port", (row) => row.port ?? ""],
    ["Priority", (row) => row.priority ?? ""],
    ["Last renewed", (row) => html`<${Ago} time=${row.time} />${!row.is_gone && row.ttl && html` <span class="quiet">expires after ${row.ttl}</span>`}`, (row) => row.time],
    ["Annotations", (row) => Object.entries(row.annotations || {}).map(([name, value]) => `${name}=${value}`).join(", ")],
  ]} />`;
}
