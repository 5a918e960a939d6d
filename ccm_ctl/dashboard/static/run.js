// The page of a run: its nodes by state, what failed there and with which output, and the waves of a rollout.
import { html, useEffect, useState, ask, go, withQuery, natural, number, plural, span, State, Ago, Link, Problem, Export, Output, meaningOf, signOf, nodePath, runPath, short, stamp } from "./lib.js";
import { useLive } from "./live.js";
import { Diff, RunDiffs } from "./diffs.js";
import { mayUndo, undoPath } from "./undo.js";
import { Origin } from "./origin.js";
import { stateWord } from "./runs.js";

const ORDER = ["failed", "stopped", "refused", "lost", "unreachable", "expired", "superseded", "running", "queued", "accepted", "expected", "planned", "changed", "stable", "offline", "skipped"];
const FINAL = new Set(["stable", "changed", "failed", "stopped", "refused", "superseded", "expired", "lost", "unreachable", "offline", "skipped"]);

function useRun(id) {
  const { events, loads } = useLive();
  const [shown, set] = useState({ run: null, error: null });
  const newest = events.find((one) => one.run && one.run.startsWith(id))?.id || 0;
  const isOpen = shown.run && (shown.run.results.some((one) => !FINAL.has(one.state)) || (shown.run.rollout && !["done", "aborted"].includes(shown.run.rollout.phase)));
  const [tick, setTick] = useState(0);
  useEffect(() => {
    if (!isOpen) return undefined;
    const timer = setInterval(() => setTick((count) => count + 1), 2000); // answers, refusals and orders are no events
    return () => clearInterval(timer);
  }, [isOpen]);
  const reload = () => ask(`/api/runs/${encodeURIComponent(id)}`).then((run) => set({ run, error: null }), (error) => set((before) => ({ ...before, error })));
  useEffect(() => {
    const timer = setTimeout(reload, shown.run ? 300 : 0);
    return () => clearTimeout(timer);
  }, [id, newest, loads, tick]);
  return { ...shown, reload };
}

function NodeEvents({ run, node, offersUndo }) {
  const [shown, set] = useState({ events: null, error: null });
  useEffect(() => {
    ask(`/api/runs/${run}/nodes/${encodeURIComponent(node)}`).then((said) => set(said), (error) => set({ events: [], error }));
  }, [run, node]);
  if (!shown.events) return html`<p class="quiet" aria-busy="true">Reading …</p>`;
  return html`<div class="failure">
    <${Problem} error=${shown.error} />
    ${!shown.events.length && html`<p class="quiet">No resource changed, failed or was skipped.</p>`}
    ${shown.events.map(
      (one) => html`<div class="resource"><p><${State} state=${one.outcome} /> <b>${one.parent && `${one.parent} > `}${one.resource}</b> <span class="quiet">${one.seconds < 1 ? `${Math.round(one.seconds * 1000)} ms` : span(one.seconds)}</span>
        ${one.corrective && html` <span class="change">corrected drift</span>`}${one.triggered_by && html` <span class="quiet">refreshed by ${one.triggered_by}</span>`}</p><${Origin} run=${run} node=${node} resource=${one.resource} isOnRunPage />
        ${one.noop_message && html`<p>${one.noop_message}</p>`}${one.error.map((text) => html`<p class="bad">${text}</p>`)}<${Output} text=${one.output} />${one.diff && html`<${Diff} diff=${one.diff} />`}</div>`,
    )}
    ${offersUndo && html`<p><${Link} to=${undoPath(run, node)}>Undo on ${node} …<//></p>`}
  </div>`;
}

function Result({ run, action, one, isOpen, offersUndo, onOpen }) {
  const first = one.failed?.[0];
  return html`<tr key=${one.node}>
    <td><${Link} to=${nodePath(one.node)}>${one.node}<//></td>
    <td><${State} state=${one.state} word=${stateWord(one.state, action)} />${one.joined && html` <span class="tag">joined</span>`}</td>
    <td class="long">${(one.seconds !== undefined || isOpen || one.state === "running") && html`<button type="button" class="plain link" aria-expanded=${isOpen} onClick=${onOpen}>${first ? first.resource : one.changed_count ? `${action === "plan" ? "would make " : ""}${plural(one.changed_count, "change")}` : isOpen ? "hide" : "details"}</button>`}
      ${first && html` <span class="bad">${first.error.join("; ")}</span>`}${one.failed?.length > 1 && html` <span class="quiet">and ${one.failed.length - 1} more</span>`}${one.reason && html` <span>${one.reason}</span>`}
      ${first && !isOpen && html`<${Output} text=${first.output} lines=${4} />`}
      ${isOpen && html`<${NodeEvents} run=${run} node=${one.node} offersUndo=${offersUndo} />`}</td>
    <td class="when">${one.seconds !== undefined && (one.seconds < 1 ? `${Math.round(one.seconds * 1000)} ms` : span(one.seconds))}</td>
  </tr>`;
}

function Wave({ wave, place, rollout, states }) {
  const counts = {};
  for (const node of wave.nodes) counts[states.get(node) || "planned"] = (counts[states.get(node) || "planned"] || 0) + 1;
  const ended = wave.nodes.filter((node) => FINAL.has(states.get(node))).length;
  const word = place < rollout.wave || rollout.phase === "done" ? "ended" : place > rollout.wave ? "waits" : rollout.phase;
  return html`<li class=${`wave ${word}`} aria-current=${place === rollout.wave && rollout.phase !== "done" ? "step" : undefined}>
    <p><b>${wave.name}</b> <span class="tag">${word}</span> ${ended} of ${plural(wave.nodes.length, "node")}, ${wave.slots} at once</p>
    <div class="blocks" role="img" aria-label=${Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", ")}>${wave.nodes.slice(0, 400).map(
      (node) => html`<i class=${meaningOf(states.get(node)) || "open"} title=${`${node}: ${states.get(node)}`} key=${node}></i>`,
    )}</div>
    <p class="quiet">${Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", ")}${wave.bake_s ? `; waits ${span(wave.bake_s)} after it` : ""}${wave.gate && html`; then <code>${wave.gate}</code> must be true`}${wave.limits && `; pauses if ${wave.limits}`}</p>
  </li>`;
}

function Rollout({ run, children }) {
  const { rollout } = run;
  const states = new Map(run.results.map((one) => [one.node, one.state]));
  const driver = rollout.driver ? `driven by ${rollout.driver}` : ["done", "aborted"].includes(rollout.phase) ? "" : rollout.is_detached && rollout.phase !== "paused" ? (rollout.servers.length ? "waits for a rollout server" : html`waits for a rollout server, and none runs; <code>ccmctl rollout serve</code> starts one`) : html`no driver; <code>ccmctl run resume</code> continues it`;
  return html`<section class="card" aria-labelledby="rollout-title">
    <div class="title"><h2 id="rollout-title" tabindex="-1">Rollout</h2><span class=${`tag phase ${rollout.phase}`} role="status">${rollout.phase}</span><span class="sub">${rollout.asked} of ${rollout.total} nodes have started${driver && html`; ${driver}`}</span></div>
    ${rollout.reason && html`<p class="problem">${rollout.by && `${rollout.by}: `}${rollout.reason}</p>`}
    ${rollout.bake_until && rollout.phase === "baking" && html`<p>The next wave begins <${Ago} time=${rollout.bake_until} />.</p>`}
    ${children}
    <ol class="waves">${rollout.waves.map((wave, place) => html`<${Wave} wave=${wave} place=${place} rollout=${rollout} states=${states} />`)}</ol>
    ${rollout.limits && html`<p class="quiet">The whole rollout pauses if ${rollout.limits}.</p>`}
  </section>`;
}

export function RunPage({ params, address, Actions }) {
  const { run, error, reload } = useRun(params[0]);
  const [open, setOpen] = useState("");
  const chosen = address.searchParams.get("state") || "";
  if (!run) return html`<div class="title"><h1>Run ${short(params[0])}</h1></div><${Problem} error=${error} />${!error && html`<p class="empty" aria-busy="true">Reading …</p>`}`;
  const results = run.results
    .filter((one) => !chosen || one.state === chosen)
    .sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state) || natural(one.node, other.node));
  const columns = ["node", "state", "reason", "code", "changed", "failed", "resource", "error"];
  const table = () => [columns, results.map((one) => [one.node, one.state, one.reason, one.code, one.changed_count, one.failed_count, one.failed?.[0]?.resource, one.failed?.[0]?.error.join("; ")])];
  return html`
    <div class="title"><h1>Run ${short(run.run)}</h1><span class="sub">${run.action} ${run.undo ? short(run.undo) : run.name} by ${run.cause === "request" ? `${run.requester || "unknown"}${run.user ? ` for ${run.user} (dashboard)` : ""}` : run.cause === "node" ? "the node itself" : `an ${run.cause}`.replace("an schedule", "a schedule")}, <${Ago} time=${run.time} /></span><span class="spacer"></span>
      <${Export} isOfPage name=${`run-${short(run.run)}`} table=${table} /></div>
    ${run.message && html`<p class="lead">${run.message}</p>`}
    <p>For ${run.targets.join(" or ") || "all nodes"}${run.where && html` where <code>${run.where}</code>`}: ${plural(run.nodes, "node")}${run.offline ? `, ${run.offline} of them offline then` : ""}.
      ${run.retry_of && html` Sends run <${Link} to=${runPath(run.retry_of)}><code>${short(run.retry_of)}</code><//> again.`}${run.stopped_by && ` Stopped by ${run.stopped_by}.`}${run.unverified && html` <b>Unverified:</b> ${run.unverified}.`}</p>
    <${Problem} error=${error} />
    ${!run.rollout && Actions && html`<${Actions} run=${run} onDone=${reload} undo=${address.searchParams.get("undo") || ""} />`}
    ${run.rollout && html`<${Rollout} run=${run}>${Actions && html`<${Actions} run=${run} onDone=${reload} undo=${address.searchParams.get("undo") || ""} />`}<//>`}
    <div class="counts" role="group" aria-label="Nodes by state">${ORDER.filter((state) => run.counts[state] || chosen === state).map(
      (state) => html`<button type="button" class=${`chip ${meaningOf(state) || "quiet"}`} aria-pressed=${chosen === state} onClick=${() => go(withQuery({ state: chosen === state ? "" : state }))} key=${state}>
        <span aria-hidden="true">${signOf(state)}</span> <b>${number(run.counts[state] || 0)}</b> ${stateWord(state, run.action)}</button>`,
    )}</div>
    <div class="scroll tall" tabindex="0" role="region" aria-label="Nodes of the run"><table class="cards">
      <thead><tr><th scope="col">Node</th><th scope="col">State</th><th scope="col">What happened</th><th scope="col">Took</th></tr></thead>
      <tbody>${results.slice(0, 500).map((one) => html`<${Result} run=${run.run} action=${run.action} one=${one} isOpen=${open === one.node} offersUndo=${mayUndo(run) && run.undoable.includes(one.node)} onOpen=${() => setOpen(open === one.node ? "" : one.node)} key=${one.node} />`)}</tbody>
    </table></div>
    ${results.length > 500 && html`<p class="quiet">The first 500 of ${number(results.length)} nodes; CSV and JSON have all of them.</p>`}
    <${RunDiffs} run=${run} key=${run.run} />`;
}
