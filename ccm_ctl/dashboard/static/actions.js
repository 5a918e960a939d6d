// Actions on a run. Each asks once more; the server decides who may.
import { html, useState, ask, go, plural, session, unusable, MessageField, Problem, runPath } from "./lib.js";
import { Undo } from "./undo.js";

const ACTIONS = {
  pause: ["Pause", "No further node starts. Nodes that have started continue.", ["running", "baking"]],
  resume: ["Resume", "Nodes that failed so far no longer count.", ["paused"]],
  promote: ["Promote", "Continues without the wait and the gate after this wave.", ["paused", "baking"]],
  abort: ["Abort", "Ends it. Nodes that have started skip their remaining resources. This cannot be undone.", ["running", "baking", "paused"]],
};

// What drives a rollout that goes on, and the command if nothing would.
function Drives({ rollout, run }) {
  if (rollout.driver) return html`<p>${rollout.driver} drives it.</p>`;
  if (rollout.servers.length) return html`<p>A rollout server will drive it: ${rollout.servers.join(", ")}.</p>`;
  return html`<p><b>No rollout server runs, so nothing would drive it.</b> Run <code>ccmctl run resume ${run.slice(0, 8)}</code> instead, which drives it from your terminal, or start a server: <code>ccmctl rollout serve</code>.</p>`;
}

function RolloutActions({ run, onDone }) {
  const [chosen, choose] = useState("");
  const [why, setWhy] = useState("");
  const [state, set] = useState({ error: null, isBusy: false });
  if (session.right !== "act" || !run.rollout) return null;
  const possible = Object.entries(ACTIONS).filter(([, [, , phases]]) => phases.includes(run.rollout.phase));
  if (!possible.length) return null;
  const act = async (event) => {
    event.preventDefault();
    set({ error: null, isBusy: true });
    try {
      await ask(`/api/runs/${run.run}/${chosen}`, { method: "POST", body: { why, alongside: isConcurrent(state) } });
      choose("");
      setWhy("");
      set({ error: null, isBusy: false });
      document.getElementById("rollout-title")?.focus(); // the button that had it is gone
      onDone();
    } catch (error) {
      set({ error, isBusy: false });
    }
  };
  return html`<div>
    <div class="actions" role="group" aria-label="Actions">${possible.map(
      ([name, [text]]) => html`<button type="button" class=${name === "abort" ? "danger" : ""} aria-expanded=${chosen === name} onClick=${() => (choose(chosen === name ? "" : name), set({ error: null, isBusy: false }))} key=${name}>${text} …</button>`,
    )}</div>
    ${chosen && html`<form class="actions" onSubmit=${act}>
      <p>${ACTIONS[chosen][1]}</p>
      ${["resume", "promote"].includes(chosen) && html`<${Drives} rollout=${run.rollout} run=${run.run} />`}
      ${["pause", "abort"].includes(chosen) && html`<label class="inline">Why <input value=${why} maxlength="500" onInput=${(event) => setWhy(event.target.value)} /></label>`}
      <button type="submit" class=${chosen === "abort" ? "danger" : "primary"} ...${unusable(state.isBusy)}>${ACTIONS[chosen][0]} the rollout${isConcurrent(state) && " anyway"}</button>
    </form>`}
    <${Problem} error=${state.error} />
  </div>`;
}

const RETRIED = ["failed", "stopped", "refused", "superseded", "expired", "lost", "unreachable", "offline", "skipped"];
const RETRIED_ACTIONS = ["apply", "plan", "check", "undo"];

// The same request again, to the nodes on which it did not succeed.
function Retry({ run }) {
  const [isOpen, setOpen] = useState(false);
  const [state, set] = useState({ error: null, isBusy: false });
  const found = RETRIED.filter((one) => run.counts[one]);
  const [left, setLeft] = useState([]);
  const [message, setMessage] = useState("");
  if (session.right !== "act" || !["request", "schedule"].includes(run.cause) || !RETRIED_ACTIONS.includes(run.action) || !found.length) return null;
  if (run.rollout && !["done", "aborted"].includes(run.rollout.phase)) return null;
  const states = found.filter((one) => !left.includes(one));
  const count = states.reduce((sum, one) => sum + run.counts[one], 0);
  const act = async (event) => {
    event.preventDefault();
    set({ error: null, isBusy: true });
    try {
      const said = await ask(`/api/runs/${run.run}/retry`, { method: "POST", body: { states, message, alongside: isConcurrent(state) } });
      go(runPath(said.run));
    } catch (error) {
      set({ error, isBusy: false });
    }
  };
  if (!run.is_stored) return html`<p class="quiet">Its manifest is not stored. To retry, name the file again: <code>ccmctl run retry ${run.run} FILE</code></p>`;
  return html`<div>
    <div class="actions" role="group" aria-label="Actions on the run"><button type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>Retry …</button></div>
    ${isOpen && html`<form class="actions" onSubmit=${act}>
      <p>Sends exactly the same request to the nodes in these states:</p>
      ${found.map((one) => html`<label class="inline" key=${one}><input type="checkbox" checked=${!left.includes(one)} onChange=${(event) => setLeft(event.target.checked ? left.filter((each) => each !== one) : [...left, one])} /> ${run.counts[one]} ${one}</label>`)}
      <${MessageField} value=${message} onInput=${setMessage} />
      <button type="submit" class="primary" ...${unusable(state.isBusy || !count)}>Retry on ${plural(count, "node")}${isConcurrent(state) && " anyway"}</button>
    </form>`}
    <${Problem} error=${state.error} />
  </div>`;
}

const isConcurrent = (state) => state.error?.code === "rollout.concurrent";

export const RunActions = ({ run, onDone, undo }) => html`<${RolloutActions} run=${run} onDone=${onDone} /><${Retry} run=${run} /><${Undo} run=${run} chosen=${undo} key=${run.run} />`;
