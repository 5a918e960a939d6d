// The page of a node: why it is as it is, what it should be, its resources, facts and events.
import { html, useEffect, useState, ask, go, natural, State, Ago, Link, Problem, Export, Output, Share, Unverified, fact, short, stamp, runPath } from "./lib.js";
import { live, useLive } from "./live.js";
import { Table, exported } from "./tables.js";
import { EventTable, exportedEvents } from "./events.js";
import { Origin } from "./origin.js";
import { NodePast } from "./node_past.js";
import { FactHistory, NodeData } from "./node_data.js";

// What an address gives, read again when the node has said something.
function useRead(path, when) {
  const [shown, set] = useState({ said: null, error: null });
  useEffect(() => {
    const stop = new AbortController();
    ask(path, { signal: stop.signal }).then(
      (said) => set({ said, error: null }),
      (error) => stop.signal.aborted || set((before) => ({ ...before, error })),
    );
    return () => stop.abort();
  }, [path, when]);
  return shown;
}

function flat(facts, prefix = "") {
  return Object.entries(facts).flatMap(([name, value]) =>
    value && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length
      ? flat(value, `${prefix}${name}.`)
      : [[prefix + name, value]],
  );
}

function Why({ why }) {
  return html`<section class="card" aria-labelledby="why-title">
    <h2 id="why-title">Why</h2>
    <p class="lead">${why.reason}</p>
    ${Object.entries(why.unverified || {}).map(([kind, reason]) => html`<p>${kind === "node" ? "record" : kind}<${Unverified} reason=${reason} /></p>`)}
    ${(why.failed || []).map(
      (one) => html`<div class="failure"><p><b>${one.resource}</b></p>${one.error.map((text) => html`<p class="bad">${text}</p>`)}<${Output} text=${one.output} /></div>`,
    )}
    ${why.next?.length > 0 && html`<h3>Next steps</h3><ul class="steps">${why.next.map((one) => html`<li><code>${one.command}</code> ${one.where ? `on ${one.where}, ` : ""}${one.purpose}</li>`)}</ul>`}
    <p class="quiet">Agent: ${why.answered}${why.heard_of && html`; last seen <${Ago} time=${why.heard_of} />`}</p>
  </section>`;
}

const standings = [
  ["Assignment", (one) => one.name],
  ["State", (one) => html`<${State} state=${one.state} />`, (one) => one.state],
  ["Revision", (one) => html`${one.revision || "none"}${one.revision !== one.wanted && html` <span class="change">(wanted: ${one.wanted})</span>`}`, (one) => one.revision],
  ["Since", (one) => html`<${Ago} time=${one.since} />`, (one) => one.since],
  ["Run", (one) => one.run && html`<${Link} to=${runPath(one.run)}><code>${short(one.run)}</code><//>`, (one) => one.run],
  ["Reason", (one) => html`${one.reason}${one.next_time && html` next attempt <${Ago} time=${one.next_time} />`}`, (one) => one.reason],
];

function Standings({ why, name }) {
  const rows = why.assignments || [];
  return html`<section><div class="title"><h2>Assignments</h2><span class="spacer"></span>${rows.length > 0 && html`<${Export} name=${`assignments-${name}`} table=${() => exported(standings, rows)} />`}</div>
    ${rows.length ? html`<${Table} label="Assignments" rows=${rows} columns=${standings} />` : html`<p class="empty">No assignment selects this node.</p>`}</section>`;
}

const LONG_VALUE = 200;
const columns = ["resource", "origin", "outcome", "time", "changes", "changed", "corrective", "run", "error"];

function Resources({ resources, name }) {
  const [open, set] = useState("");
  if (!resources.length) return html`<p class="empty">No resource had an event in the last 30 days. Agents report resources that changed, failed or were skipped.</p>`;
  return html`<div class="title"><p class="sub">resources with events in the last 30 days</p><span class="spacer"></span>
      <${Export} name=${`resources-${name}`} table=${() => [columns, resources.map((one) => columns.map((column) => (column === "error" ? one.error.join("; ") : one[column])))]} /></div>
    <div class="scroll" tabindex="0" role="region" aria-label="Resources"><table class="cards">
    <thead><tr><th scope="col">Resource</th><th scope="col">Origin</th><th scope="col">Last outcome</th><th scope="col">When</th><th scope="col">Last change</th></tr></thead>
    <tbody>${resources.map((one) => {
      const key = `${one.origin} ${one.resource}`;
      const more = one.error.length > 0 || one.output || one.noop_message;
      return html`<tr key=${key}>
        <td class="long">${more ? html`<button type="button" class="plain link" aria-expanded=${open === key} onClick=${() => set(open === key ? "" : key)}>${one.resource}</button>` : one.resource}
          ${open === key && html`<div class="failure">${one.error.map((text) => html`<p class="bad">${text}</p>`)}${one.noop_message && html`<p>${one.noop_message}</p>`}<${Output} text=${one.output} /></div>`}<${Origin} run=${one.run} node=${name} resource=${one.resource} /></td>
        <td>${one.origin}</td><td><${State} state=${one.outcome} /></td>
        <td><${Link} to=${runPath(one.run)}><${Ago} time=${one.time} /><//></td>
        <td>${one.changed && html`<${Ago} time=${one.changed} />${one.corrective && html` <span class="change">drift</span>`}`}</td></tr>`;
    })}</tbody></table></div>`;
}

// A long value is folded: lists of processors and addresses would push everything else away.
function FactValue({ value }) {
  const text = fact(value);
  return text.length <= LONG_VALUE ? text : html`<details class="value"><summary>${text.slice(0, 100)} …</summary>${text}</details>`;
}

function Facts({ said, name: node }) {
  const [search, set] = useState("");
  const all = flat(said.facts).sort(([one], [other]) => natural(one, other));
  const assigned = new Set(flat(said.assigned).map(([name]) => name));
  const found = all.filter(([name, value]) => `${name}=${fact(value)}`.toLowerCase().includes(search.toLowerCase()));
  return html`<div class="title"><label class="inline">Search facts <input type="search" value=${search} onInput=${(event) => set(event.target.value)} /></label><span class="sub">${found.length} of ${all.length}</span><span class="spacer"></span>
      <${Export} name=${`facts-${node}`} table=${() => [["fact", "value", "assigned"], found.map(([name, value]) => [name, value, assigned.has(name)])]} /></div>
    <dl class="pairs facts">${found.slice(0, 400).map(
      ([name, value]) => html`<dt key=${name}>${name}${assigned.has(name) && html` <span class="tag">assigned</span>`}</dt><dd><${FactValue} value=${value} /></dd>`,
    )}</dl>`;
}

export function NodePage({ params, address }) {
  const name = params[0];
  const path = `/api/nodes/${encodeURIComponent(name)}`;
  const { events, loads } = useLive();
  const mine = events.filter((one) => one.node === name);
  const newest = mine.find((one) => one.kind === "summary" || one.kind === "agent")?.id || 0;
  const why = useRead(`${path}/why`, `${newest} ${loads}`);
  const facts = useRead(path, loads);
  const resources = useRead(`${path}/resources`, `${newest} ${loads}`);
  return html`
    <div class="title"><h1>${name}</h1>${why.said && html`<${State} state=${why.said.state} />`}
      ${why.said?.version && html`<span class="sub">agent ${why.said.version}</span>`}<span class="spacer"></span><span class="export"><${Share} /></span></div>
    <${Problem} error=${why.error || facts.error || resources.error} />
    ${why.said ? html`<${Why} why=${why.said} />` : !why.error && html`<p class="empty" aria-busy="true">Asking the agent …</p>`}
    ${why.said && html`<${Standings} why=${why.said} name=${name} />`}
    ${resources.said && html`<section><h2>Resources</h2><${Resources} resources=${resources.said.resources} name=${name} /></section>`}
    ${facts.said && html`<section aria-label="Past"><h2>Past</h2><${NodePast} path=${path} name=${name} when=${`${newest} ${loads}`} address=${address} /></section>`}
    <section><div class="title"><h2>Events of the last hour</h2><span class="spacer"></span><${Export} name=${`events-${name}`} table=${() => exportedEvents(mine)} /></div>
      ${mine.length ? html`<${EventTable} events=${mine.slice(0, 100)} label="Events" />` : html`<p class="empty">No events.</p>`}</section>
    ${facts.said && html`<section aria-label="Data"><h2>Data</h2><${NodeData} path=${path} name=${name} address=${address} /></section>`}
    ${facts.said && html`<section><h2>Facts</h2><${Facts} said=${facts.said} name=${name} /><${FactHistory} path=${path} name=${name} when=${loads} /></section>`}`;
}
