// Lists of events.
import { html, useEffect, useState, ask, clock, stamp, Link, nodePath, Export } from "./lib.js";
import { live, useLive } from "./live.js";
import { Origin } from "./origin.js";

const SHOWN = 100;
const WORDS = { good: "ok", change: "change", bad: "problem", "": "" };

export function EventRow({ event, isDated = false }) {
  return html`<tr class=${event.meaning || ""}>
    <td class="when"><time dateTime=${event.time} title=${stamp(event.time)}>${isDated ? stamp(event.time).slice(0, 19) : clock(event.time)}</time></td>
    <td class="node"><${Link} to=${nodePath(event.node)}>${event.node}<//></td>
    <td class="sign">${WORDS[event.meaning || ""]}</td>
    <td class="text">${event.verdict && html`<b class="bad">[${event.verdict}] </b>`}${event.text}${event.kind === "resource" && event.run && html`<${Origin} run=${event.run} node=${event.node} resource=${event.resource} />`}</td>
  </tr>`;
}

export function EventTable({ events, label, isDated = false }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class="events">
    <thead><tr><th scope="col">Time (UTC)</th><th scope="col">Node</th><th scope="col">Outcome</th><th scope="col">Event</th></tr></thead>
    <tbody>${events.map((event) => html`<${EventRow} event=${event} isDated=${isDated} key=${event.id} />`)}</tbody>
  </table></div>`;
}

export const exportedEvents = (events) => [
  ["id", "time", "node", "run", "kind", "outcome", "resource", "manifest", "verdict", "text"],
  events.map((one) => [one.id, one.time, one.node, one.run, one.kind, one.word, one.resource, one.manifest, one.verdict, one.text]),
];

export function EventList({ brush, nodes }) {
  useLive();
  const [past, setPast] = useState(null);
  const [held, setHeld] = useState(null);
  const key = brush ? brush.join() : "";
  useEffect(() => {
    setPast(null);
    if (!brush) return;
    const to = Number.isFinite(brush[1]) ? `&to=${brush[1]}` : "";
    ask(`/api/events?from=${brush[0]}${to}`).then((said) => setPast(said.events), () => setPast([]));
  }, [key]);
  const source = held || (brush ? past || [] : live.events);
  const events = (nodes ? source.filter((one) => nodes.has(one.node)) : source).slice(0, SHOWN);
  return html`<div class="event-list">
    <div class="title">
      <p class="sub">${brush ? "Events of the selected period" : "Newest events"}${nodes ? " of these nodes" : ""}</p>
      <span class="spacer"></span>
      ${!brush && html`<button type="button" aria-pressed=${Boolean(held)} onClick=${() => setHeld(held ? null : live.events)}>${held ? "Continue" : "Hold"}</button>`}
      <${Export} name="events" table=${() => exportedEvents(events)} />
    </div>
    ${events.length ? html`<${EventTable} events=${events} label="Events" />` : html`<p class="empty">${brush && !past ? "Reading …" : "No events."}</p>`}
  </div>`;
}
