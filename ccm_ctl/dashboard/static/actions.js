// Actions on a rollout. Each asks once more; the server decides who may.
import { html, useState, ask, session, Problem } from "./lib.js";

const ACTIONS = {
  pause: ["Pause", "No further node starts. Nodes that have started go on.", ["running", "baking"]],
  resume: ["Resume", "Nodes that failed so far no longer count. A rollout without a driver waits for a rollout server.", ["paused"]],
  promote: ["Promote", "Continues, and skips the wait and the gate after this wave.", ["paused", "baking"]],
  abort: ["Abort", "Ends it. Nodes that have started skip their remaining resources. This cannot be undone.", ["running", "baking", "paused"]],
};

export function RolloutActions({ run, onDone }) {
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
      await ask(`/api/runs/${run.run}/${chosen}`, { method: "POST", body: { why } });
      choose("");
      setWhy("");
      set({ error: null, isBusy: false });
      onDone();
    } catch (error) {
      set({ error, isBusy: false });
    }
  };
  return html`<div>
    <div class="actions" role="group" aria-label="Actions">${possible.map(
      ([name, [text]]) => html`<button type="button" class=${name === "abort" ? "danger" : ""} aria-expanded=${chosen === name} onClick=${() => choose(chosen === name ? "" : name)} key=${name}>${text} …</button>`,
    )}</div>
    ${chosen && html`<form class="actions" onSubmit=${act}>
      <p>${ACTIONS[chosen][1]}</p>
      ${["pause", "abort"].includes(chosen) && html`<label class="inline">Why <input value=${why} maxlength="500" onInput=${(event) => setWhy(event.target.value)} /></label>`}
      <button type="submit" class=${chosen === "abort" ? "danger" : "primary"} disabled=${state.isBusy}>${ACTIONS[chosen][0]} the rollout</button>
    </form>`}
    <${Problem} error=${state.error} />
  </div>`;
}
