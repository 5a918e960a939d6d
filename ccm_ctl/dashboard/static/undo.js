// The undo of a run: a preview, which changes nothing, then the undo itself. The server decides who may, and on which nodes.
import { html, useEffect, useRef, useState, ask, go, plural, session, unusable, withQuery, MessageField, Problem, runPath } from "./lib.js";
import { Group } from "./diffs.js";

const LOOK_MS = 1000;
const NODES_LISTED = 500;
const OPEN_GROUPS = 5;
const ALL = "all";

export const mayUndo = (run) => session.right === "act" && run.undoable?.length > 0;
// The address of the page of a run with the undo open, of one node or of all.
export const undoPath = (run, node = ALL) => `${runPath(run)}?undo=${encodeURIComponent(node)}`;

const counted = (counts) => Object.entries(counts).filter(([, count]) => count).map(([state, count]) => `${count} ${{ changed: "would change", stable: "would not change" }[state] || state}`).join(", ");
const named = (nodes) => nodes.slice(0, 8).join(", ") + (nodes.length > 8 ? ` and ${nodes.length - 8} more` : "");

// What the plan found, read again until all nodes have ended.
function usePreview(run, plan) {
  const [shown, set] = useState({ said: null, error: null });
  useEffect(() => {
    set({ said: null, error: null });
    if (!plan) return undefined;
    const stop = new AbortController();
    let timer = 0;
    const look = async () => {
      try {
        const said = await ask(`/api/runs/${run}/undo/${plan}`, { signal: stop.signal });
        set({ said, error: null });
        if (!said.is_done) timer = setTimeout(look, LOOK_MS);
      } catch (error) {
        if (!stop.signal.aborted) set((before) => ({ ...before, error }));
      }
    };
    look();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [run, plan]);
  return shown;
}

function Rows({ title, rows }) {
  if (!rows.length) return null;
  return html`<h3>${title}</h3><ul class="steps">${rows.map((one) => html`<li key=${`${one.resource} ${one.why}`}><b>${one.resource}</b> on ${named(one.nodes)}${one.why && `: ${one.why}`}</li>`)}</ul>`;
}

function Found({ said }) {
  const is = said.is_done ? (said.would_change ? "Preview done" : "There is nothing to undo on these nodes now") : "Waiting for nodes";
  return html`<p role="status">${is}: ${counted(said.counts)}.</p>
    ${said.groups.length + said.without_diff.length > 0 && html`<h3>Changes</h3>`}
    ${said.groups.map((one, place) => html`<${Group} one=${one} isFirst=${place < OPEN_GROUPS} key=${place} />`)}
    ${said.left_out > 0 && html`<p class="quiet">${plural(said.left_out, "other diff")} left out; the page of the preview's run has them.</p>`}
    <${Rows} title="Also, without a diff" rows=${said.without_diff} />
    <${Rows} title="Not undone" rows=${said.not_undone} />
    ${said.problems.length > 0 && html`<h3>Nodes without a preview</h3><ul class="steps">${said.problems.map((one) => html`<li key=${one.node}><b>${one.node}</b> ${one.state}${one.reason && `: ${one.reason}`}${(one.failed || []).map((each) => html` <span class="bad">${each.resource}: ${each.error.join("; ")}</span>`)}</li>`)}</ul>`}`;
}

// `chosen` is the node that the address names, "all", or "" while the undo is closed.
export function Undo({ run, chosen }) {
  const [state, set] = useState({ plan: null, node: "", error: null, isBusy: false });
  const [message, setMessage] = useState("");
  const form = useRef(null);
  const isOpen = Boolean(chosen);
  const nodes = run.undoable || [];
  const node = nodes.includes(chosen) ? chosen : "";
  const verb = run.undo ? "Redo" : "Undo";
  const { said, error } = usePreview(run.run, state.plan?.run);
  useEffect(() => void (isOpen && form.current?.scrollIntoView({ block: "nearest" })), [isOpen]);
  if (!mayUndo(run)) {
    if (!isOpen || session.right !== "act") return null;
    return html`<p class="problem">There is nothing to undo: the run changed nothing, or it has not ended on all nodes.</p>`;
  }
  const choose = (name) => {
    set({ plan: null, node: "", error: null, isBusy: false });
    go(withQuery({ undo: name }), { replace: true });
  };
  const send = async (path, body) => {
    set((before) => ({ ...before, error: null, isBusy: true }));
    try {
      return await ask(`/api/runs/${run.run}/${path}`, { method: "POST", body: { redo: Boolean(run.undo), ...body } });
    } catch (problem) {
      set((before) => ({ ...before, error: problem, isBusy: false }));
      return null;
    }
  };
  const preview = async (event) => {
    event.preventDefault();
    const plan = await send("undo/plan", { node });
    if (plan) set({ plan, node, error: null, isBusy: false });
  };
  const isConcurrent = state.error?.code === "rollout.concurrent";
  const undo = async () => {
    const started = await send("undo", { node: state.node, plan: state.plan.run, message, alongside: isConcurrent });
    if (started) go(runPath(started.run));
  };
  return html`<div>
    <div class="actions" role="group" aria-label="Undo of the run"><button type="button" aria-expanded=${isOpen} onClick=${() => choose(isOpen ? "" : ALL)}>${verb} …</button></div>
    ${isOpen && html`<form class="actions" ref=${form} onSubmit=${preview}>
      <p>A preview shows what each node would restore. It changes nothing.</p>
      ${chosen !== ALL && !node && html`<p class="bad">The run changed nothing on ${chosen}.</p>`}
      <label class="inline">On <select value=${node || ALL} onChange=${(event) => choose(event.target.value)}>
        <option value=${ALL}>${nodes.length === 1 ? nodes[0] : `all nodes that it may have changed (${nodes.length})`}</option>
        ${nodes.length > 1 && nodes.slice(0, NODES_LISTED).map((one) => html`<option value=${one} key=${one}>${one}</option>`)}
      </select></label>
      <button type="submit" class="primary" ...${unusable(state.isBusy)}>${state.plan ? "Preview again" : `Preview the ${verb.toLowerCase()}`}</button>
    </form>`}
    ${isOpen && state.plan && html`<section class="card preview" aria-label=${`Preview of the ${verb.toLowerCase()}`}>
      <div class="title"><h2>Preview of the ${verb.toLowerCase()}</h2><a href=${runPath(state.plan.run)} target="_blank" rel="noopener">its run, in a new tab</a></div>
      ${state.plan.warnings.map((text) => html`<p class="problem" key=${text}>${text}</p>`)}
      <${Problem} error=${error} />
      ${said ? html`<${Found} said=${said} />` : !error && html`<p class="quiet" aria-busy="true">Asking the nodes …</p>`}
      ${said?.is_done && said.would_change && html`<div class="actions"><${MessageField} value=${message} onInput=${setMessage} /><button type="button" class="danger" ...${unusable(state.isBusy, undo)}>${verb} on ${plural(state.plan.nodes, "node")}${isConcurrent && " anyway"}</button></div>`}
    </section>`}
    <${Problem} error=${state.error} />
  </div>`;
}
