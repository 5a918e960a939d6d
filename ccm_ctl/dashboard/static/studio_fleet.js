// The part of the Studio page that needs a fleet: the manifest on one node, a plan on nodes, and a bundle in the store.
import { html, useEffect, useState, ask, session, plural, runPath, Problem } from "./lib.js";

const PAUSE_MS = 400;
const LOOK_MS = 1500;

export function Fleet(properties) {
  if (!session.fleet) {
    return html`<section class="fleet" aria-label="Fleet"><h2>On the fleet</h2>
      <p class="quiet">There is no broker, so nothing can be evaluated on nodes. Start <code>ccmctl studio</code> again when the broker is there.</p></section>`;
  }
  return html`<section class="fleet" aria-label="Fleet"><${OnNode} ...${properties} />${session.right === "act" && html`<${Actions} ...${properties} />`}</section>`;
}

function OnNode({ text, isBroken, onShow }) {
  const [nodes, setNodes] = useState([]);
  const [node, choose] = useState("");
  const [expression, setExpression] = useState("");
  const [{ said, error }, set] = useState({ said: null, error: null });
  useEffect(() => void ask("/api/studio/nodes").then((got) => setNodes(got.nodes), (problem) => set({ said: null, error: problem })), []);
  useEffect(() => {
    if (!node || isBroken) return undefined;
    const stop = new AbortController();
    const timer = setTimeout(
      () =>
        ask("/api/studio/evaluate", { method: "POST", body: { node, text, expression }, signal: stop.signal }).then(
          (got) => set({ said: got, error: null }),
          (problem) => stop.signal.aborted || set({ said: null, error: problem }),
        ),
      PAUSE_MS,
    );
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [node, text, expression, isBroken]);
  return html`<h2>On a node</h2>
    <div class="add">
      <label for="studio-node">Node</label>
      <input id="studio-node" list="studio-nodes" value=${node} autocomplete="off" spellcheck=${false} onChange=${(event) => choose(event.target.value.trim())} />
      <datalist id="studio-nodes">${nodes.slice(0, 2000).map((one) => html`<option key=${one} value=${one}></option>`)}</datalist>
      <label for="studio-expression">Expression</label>
      <input id="studio-expression" value=${expression} placeholder="Facts.role" autocomplete="off" spellcheck=${false} onInput=${(event) => setExpression(event.target.value)} />
    </div>
    <${Problem} error=${error} />
    ${!node && html`<p class="quiet">Choose a node to see what the expressions of the manifest give there.</p>`}
    ${node && said?.error && html`<p class="problem" role="alert">${said.error}</p>`}
    ${node && expression.trim() && said?.result && html`<div role="status"><${Value} one=${said.result} /></div>`}
    ${node && said && !said.error && html`<p class="sub">${said.rendered.length ? `${plural(said.rendered.length, "value")} with expressions, as ${node} would get them` : "The manifest has no expressions."}${said.left_out ? `; ${plural(said.left_out, "more value")} left out` : ""}</p>`}
    ${node && said?.rendered.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Values on the node"><table class="rendered">
      <thead><tr><th scope="col">Where</th><th scope="col">Value</th></tr></thead>
      <tbody>${said.rendered.map((one, place) => html`<tr key=${place}>
        <td><button type="button" class="plain" onClick=${() => onShow(one.path)}>${one.path.slice(2).join(" › ")}</button></td><td><${Value} one=${one} /></td></tr>`)}</tbody>
    </table></div>`}`;
}

const Value = ({ one }) => (one.error ? html`<p class="bad">${one.error}</p>` : html`<pre class="result">${one.value}</pre>`);

function Actions({ text, name, hasErrors }) {
  const [targets, setTargets] = useState("");
  const [{ said, error, isBusy, planned }, set] = useState({ said: null, error: null, isBusy: false, planned: null });
  const called = (name.split("/").pop() || "studio").replace(/\.ya?ml$/, "").replace(/[^\w.-]/g, "-").slice(0, 64) || "studio";
  const act = async (path, body) => {
    set({ said: null, error: null, isBusy: true });
    try {
      set({ said: await ask(path, { method: "POST", body: { text, name: called, ...body } }), error: null, isBusy: false });
    } catch (problem) {
      set({ said: null, error: problem, isBusy: false });
    }
  };
  const plan = (event) => {
    event.preventDefault();
    if (targets.trim()) act("/api/studio/plan", { targets: targets.split(" or ").map((one) => one.trim()).filter(Boolean) });
  };
  const run = said?.run;
  useEffect(() => {
    if (!run) return undefined;
    let timer = 0;
    const stop = new AbortController();
    const look = async () => {
      try {
        const planned = await ask(`/api/studio/plan/${encodeURIComponent(run)}`, { signal: stop.signal });
        set((before) => ({ ...before, planned }));
        if (!planned.is_done) timer = setTimeout(look, LOOK_MS);
      } catch (problem) {
        if (!stop.signal.aborted) set((before) => ({ ...before, error: problem }));
      }
    };
    look();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [run]);
  const isIdle = Boolean(text.trim()) && !hasErrors && !isBusy;
  return html`<h2>Plan</h2>
    <form class="add" onSubmit=${plan}>
      <label for="studio-targets">Nodes</label>
      <input id="studio-targets" value=${targets} placeholder="role=web or node=db1" autocomplete="off" spellcheck=${false} onInput=${(event) => setTargets(event.target.value)} />
      <button type="submit" class="primary" disabled=${!isIdle || !targets.trim()}>Plan on these nodes</button>
      <button type="button" disabled=${!isIdle} onClick=${() => act("/api/studio/bundle", {})}>Store as a bundle</button>
    </form>
    <p class="hint">A plan changes nothing. Only the text above is sent; <code>ccmctl plan DIR</code> sends a directory.</p>
    ${hasErrors && html`<p class="quiet">Correct the errors that lint finds first.</p>`}
    <${Problem} error=${error} />
    <div role="status">
      ${said?.run && html`<p>The plan of ${plural(said.nodes, "node")} has started${said.offline ? `; ${plural(said.offline, "node")} offline` : ""}. <a href=${runPath(said.run)} target="_blank" rel="noopener">Show it in a new tab</a></p>`}
      ${said?.digest && html`<p>Stored. <code>ccmctl bundle get ${said.digest} --out DIR</code> gets it back.</p>`}
    </div>
    ${run && planned && html`<${Planned} said=${planned} />`}`;
}

function Planned({ said }) {
  const counts = Object.entries(said.counts).filter(([, count]) => count).map(([state, count]) => `${count} ${state === "changed" ? "would change" : state}`);
  return html`<div class="planned">
    <p role="status">${said.is_done ? "Done" : "Waiting"}: ${counts.join(", ") || "no nodes"}</p>
    ${said.failed.map((one) => html`<p key=${one.node} class="bad">${one.node} ${one.state}: ${one.reason}</p>`)}
    ${said.blocks.map((one, place) => html`<pre class="output" tabindex="0" key=${place}>${one}</pre>`)}
    ${said.left_out > 0 && html`<p class="sub">${plural(said.left_out, "more node")} would change; the page of the run shows all.</p>`}
  </div>`;
}
