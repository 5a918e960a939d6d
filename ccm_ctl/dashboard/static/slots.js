// Slots and locks: who holds a slot of the fleet, who waits, and what is locked on which node.
import { html, plural, Ago, Link, Problem, State, Share, Unverified, short, nodePath, runPath, useTick } from "./lib.js";
import { TableSection, useRead } from "./tables.js";

const node = ["Node", (row) => html`<${Link} to=${nodePath(row.node)}>${row.node}<//>`, (row) => row.node];
const since = ["Since", (row) => (row.since ? html`<${Ago} time=${row.since} />` : ""), (row) => row.since];
const slots = [
  ["Slot", (row) => `${row.slot}${row.count ? `/${row.count}` : ""}`],
  node,
  ["State", (row) => (row.unverified ? html`<${Unverified} reason=${row.unverified} />` : row.position ? `waits, number ${row.position}` : row.state === "failed" ? html`<${State} state="failed" /> kept after a failure` : "held"), (row) => (row.unverified ? `unverified: ${row.unverified}` : row.state)],
  ["Position", (row) => row.position ?? ""],
  ["For", (row) => row.resource || ""],
  ["Run", (row) => (row.run ? html`<${Link} to=${runPath(row.run)}><code>${short(row.run)}</code><//>` : ""), (row) => row.run],
  since,
];
const locks = [
  node,
  ["Resource", (row) => html`${row.resource === "all" ? "the whole node" : row.resource}<${Unverified} reason=${row.unverified} />`, (row) => row.resource],
  ["Until", (row) => (row.until ? html`<${Ago} time=${row.until} />` : "it is enabled"), (row) => row.until],
  ["By", (row) => row.by],
  ["Why", (row) => row.why],
  since,
];

const EVERY_MS = 5000; // neither slots nor locks are events

export function SlotsPage() {
  const { said, error } = useRead("/api/slots", useTick(EVERY_MS));
  return html`
    <div class="title"><h1>Slots and locks</h1><span class="spacer"></span><span class="export"><${Share} /></span></div>
    <${Problem} error=${error || (said?.problem && { message: said.problem })} />
    ${!said && !error && html`<p class="empty" aria-busy="true">Reading …</p>`}
    ${said && html`
      <${TableSection} title="Slots" sub=${plural(said.slots.length, "entry").replace("entrys", "entries")} name="slots" rows=${said.slots} columns=${slots} empty="No node holds a slot or waits for one." />
      <${TableSection} title="Locks" sub="resources that nodes skip for a time" name="locks" rows=${said.locks} columns=${locks} empty="Nothing is locked." />`}`;
}
