// A node beside the heat map: what stands in its row, in full.
import { html, useEffect, useRef, State, Ago, Link, Unverified, fact, short, nodePath, runPath } from "./lib.js";

export function NodePanel({ row, onClose }) {
  const panel = useRef(null);
  useEffect(() => {
    panel.current?.focus();
    const key = (event) => event.key === "Escape" && onClose();
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, [row.node]);
  return html`<section class="panel" ref=${panel} tabindex="-1" aria-label=${`Node ${row.node}`}>
    <div class="title"><h2>${row.node}</h2><${State} state=${row.status} /><span class="spacer"></span><${Link} class="button" to=${nodePath(row.node)}>Open the node<//>
      <button type="button" onClick=${onClose}>Close</button></div>
    ${row.conflict && html`<p class="problem">${row.conflict}</p>`}
    ${row.late && html`<p class="problem">This node missed its heartbeat, so its data may be old: its agent, its network or the machine may be down.</p>`}
    ${row.unverified && html`<p><${Unverified} reason=${row.unverified} /></p>`}
    ${row.disabled && html`<p class="quiet">${row.disabled}</p>`}
    <dl class="pairs">
      <dt>Agent</dt><dd>${row.state === "expected" ? "has never connected" : row.state}${row.version && `, version ${row.version}`}${row.heard && html`, last heard <${Ago} time=${row.heard} every=${1000} />`}</dd>
      ${row.last_run && html`<dt>Last run</dt><dd><${Link} to=${runPath(row.last_run)}><code>${short(row.last_run)}</code><//> ${row.last_state} <${Ago} time=${row.last_time} /></dd>`}
      ${row.run && html`<dt>In run</dt><dd><${Link} to=${runPath(row.run)}><code>${short(row.run)}</code><//></dd>`}
      ${Object.entries(row.standings).map(
        ([name, one]) => html`<dt>${name}</dt><dd><${State} state=${one.state} /> ${one.since && html`<${Ago} time=${one.since} />`} ${one.reason || ""}</dd>`,
      )}
    </dl>
    <h3>Facts for selecting nodes</h3>
    <dl class="pairs facts">${Object.entries(row.facts).map(([name, value]) => html`<dt>${name}</dt><dd>${fact(value)}</dd>`)}</dl>
  </section>`;
}
