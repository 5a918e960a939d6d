// What a node was at a time, and its sessions. The time stands in the address.
import { html, useEffect, useState, ask, go, withQuery, plural, stamp, State, Ago, Link, Problem, Export, Output, session, short, runPath } from "./lib.js";
import { stateWord } from "./runs.js";
import { undoPath } from "./undo.js";

const STEP_S = 60;
const WAIT_MS = 300;

const starter = (one) =>
  one.cause === "request" ? one.requester || "unknown" : one.cause === "schedule" ? `schedule ${one.origin}` : one.cause === "assignment" ? `assignment ${one.origin}` : one.cause === "node" ? "the node itself" : "unknown";
const seconds = (time) => Math.ceil(Date.parse(time) / 1000);

function usePast(path, when) {
  const [shown, set] = useState({ said: null, error: null });
  useEffect(() => {
    const stop = new AbortController();
    ask(`${path}/past`, { signal: stop.signal }).then((said) => set({ said, error: null }), (error) => stop.signal.aborted || set((before) => ({ ...before, error })));
    return () => stop.abort();
  }, [path, when]);
  return shown;
}

// The state at a time, asked for when the slider rests.
function useStateAt(path, at) {
  const [shown, set] = useState({ said: null, at: 0, error: null });
  useEffect(() => {
    if (!at) return set({ said: null, at: 0, error: null });
    const stop = new AbortController();
    const read = () => ask(`${path}/state?at=${at}`, { signal: stop.signal }).then((said) => set({ said, at, error: null }), (error) => stop.signal.aborted || set({ said: null, at, error }));
    const timer = setTimeout(read, WAIT_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [path, at]);
  return shown;
}

const columns = ["manifest", "resource", "state", "outcome", "time", "changed", "changed_run", "drift"];
const table = (manifests) => [columns, manifests.flatMap((manifest) => manifest.resources.map((one) => [manifest.name, one.resource, one.ensure, one.outcome, one.time, one.changed, one.changed_run, one.corrective]))];

function Manifest({ manifest }) {
  const { session } = manifest;
  return html`<h3>${manifest.name || "resource"}: <${State} state=${session.state} /> <span class="quiet">${stamp(session.time)}, by ${starter(session)}, run <${Link} to=${runPath(session.run)}><code>${short(session.run)}</code><//></span></h3>
    ${manifest.resources.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label=${`Resources of ${manifest.name} at that time`}><table>
      <thead><tr><th scope="col">Resource</th><th scope="col">State</th><th scope="col">Outcome</th><th scope="col">When</th><th scope="col">Last change</th></tr></thead>
      <tbody>${manifest.resources.map((one) => html`<tr key=${one.resource}><td class="long">${one.resource}${one.error.map((text) => html`<p class="bad">${text}</p>`)}</td><td>${one.ensure}</td><td><${State} state=${one.outcome} />${one.corrective && html` <span class="change">drift</span>`}</td>
        <td>${stamp(one.time)}</td><td>${one.changed && html`<${Link} to=${runPath(one.changed_run)}>${stamp(one.changed)}<//>`}</td></tr>`)}</tbody>
    </table></div>`}
    ${manifest.silent > 0 && html`<p class="quiet">${plural(manifest.silent, "resource")} without an event: unchanged since the stream of events began.</p>`}`;
}

function StateAt({ path, at }) {
  const { said, at: shownAt, error } = useStateAt(path, at);
  if (!at) return null;
  return html`<${Problem} error=${error} />
    ${said
      ? html`<div class="title"><p class="lead" role="status">At ${stamp(shownAt * 1000)}</p><span class="spacer"></span>${said.manifests.length > 0 && html`<${Export} name=${`state-${shownAt}`} table=${() => table(said.manifests)} />`}</div>
        ${said.manifests.length ? said.manifests.map((one) => html`<${Manifest} manifest=${one} key=${one.name} />`) : html`<p class="empty">No state is known for this time.</p>`}`
      : !error && html`<p class="quiet" aria-busy="true">Reading …</p>`}`;
}

const sessionColumns = ["time", "run", "manifest", "state", "cause", "origin", "requester", "message", "changed", "failed"];

function Sessions({ sessions, onChoose, name }) {
  if (!sessions.length) return html`<p class="empty">No session changed or failed anything in the last 30 days.</p>`;
  return html`<div class="title"><p class="sub">${plural(sessions.length, "session")} of the last 30 days that changed or failed something</p><span class="spacer"></span>
      <${Export} name=${`sessions-${name}`} table=${() => [sessionColumns, sessions.map((one) => sessionColumns.map((column) => one[column]))]} /></div>
    <div class="scroll" tabindex="0" role="region" aria-label="Sessions"><table class="cards">
    <thead><tr><th scope="col">When</th><th scope="col">What</th><th scope="col">State</th><th scope="col">By</th><th scope="col">Changed or failed</th><th scope="col">Run</th></tr></thead>
    <tbody>${sessions.slice(0, 100).map((one) => html`<tr key=${one.run}>
      <td><button type="button" class="plain link" title="Show the state after it" onClick=${() => onChoose(seconds(one.until))}>${stamp(one.time)}</button></td>
      <td>${one.is_plan && "plan "}${one.manifest}</td><td><${State} state=${one.state} word=${stateWord(one.state, one.is_plan ? "plan" : "")} /></td><td>${starter(one)}${one.message && html`<p class="quiet">${one.message}</p>`}</td>
      <td class="long">${one.failed.map((each) => html`<span class="bad">${each} failed </span>`)}${one.changed.slice(0, 5).join(", ")}${one.changed.length > 5 && ` and ${one.changed.length - 5} more`}${one.corrective && html` <span class="change">drift</span>`}</td>
      <td><${Link} to=${runPath(one.run)}><code>${short(one.run)}</code><//>${session.right === "act" && !one.is_plan && one.changed.length > 0 && html` <${Link} to=${undoPath(one.run, name)}>Undo …<//>`}</td></tr>`)}</tbody></table></div>`;
}

export function NodePast({ path, name, when, address }) {
  const { said, error } = usePast(path, when);
  const [moved, setMoved] = useState(0);
  const given = Number(address.searchParams.get("at")) || 0;
  useEffect(() => setMoved(0), [given]);
  if (!said) return html`<${Problem} error=${error} />`;
  const end = seconds(said.now);
  const begin = said.begins ? Math.min(end, Math.floor(Date.parse(said.begins) / 1000)) : end;
  const at = moved || given;
  const choose = (time) => go(withQuery({ at: time ? String(Math.min(time, end)) : "" }), { replace: true });
  const changes = said.sessions.map((one) => Math.min(end, seconds(one.until)));
  const earlier = changes.find((one) => one < (at || end + 1));
  const later = at ? changes.findLast((one) => one > at) : undefined;
  return html`<div class="brushing past">
      <label>State at <input type="range" min=${begin} max=${end} step=${Math.max(1, Math.min(STEP_S, Math.round((end - begin) / 200)))} value=${at || end} aria-valuetext=${at ? stamp(at * 1000) : "now"} onInput=${(event) => setMoved(Number(event.target.value))} onChange=${(event) => choose(Number(event.target.value))} /></label>
      <span>${at ? stamp(at * 1000) : "now"}</span>
      <button type="button" disabled=${earlier === undefined} onClick=${() => choose(earlier)}>Earlier change</button>
      <button type="button" disabled=${later === undefined} onClick=${() => choose(later)}>Later change</button>
      ${at > 0 && html`<button type="button" onClick=${() => { setMoved(0); choose(0); }}>Now</button>`}
      <span class="quiet">${said.begins ? html`events are stored since ${stamp(said.begins)}` : "no events are stored"}</span>
    </div>
    <${StateAt} path=${path} at=${at} />
    <${Sessions} sessions=${said.sessions} onChoose=${choose} name=${name} />`;
}
