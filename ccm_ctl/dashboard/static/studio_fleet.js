// The part of the Studio page that needs a fleet: the manifest on one node, a plan on nodes, and a bundle in the store.
import { html, useEffect, useRef, useState, ask, session, plural, runPath, unusable, Draft, Export, Problem } from "./lib.js";

const PAUSE_MS = 400;
const LOOK_MS = 1500;
const OPEN_LINES = 30; // a longer file is folded

export function Fleet(properties) {
  if (!session.fleet) {
    return html`<section class="fleet" aria-label="Fleet"><h2>On the fleet</h2>
      <p class="quiet">There is no broker, so nothing can be evaluated on nodes. Start <code>ccmctl studio</code> again when the broker is there.</p></section>`;
  }
  return html`<section class="fleet" aria-label="Fleet"><${OnNode} ...${properties} />${session.right === "act" && html`<${Actions} ...${properties} />`}</section>`;
}

// What a node makes of the manifest. One question is asked at a time: what is typed meanwhile is asked when its answer is there.
function useEvaluation(question) {
  const [{ said, of, error }, set] = useState({ said: null, of: null, error: null });
  const key = question && JSON.stringify(question);
  const wanted = useRef(null);
  const isBusy = useRef(false);
  useEffect(() => {
    wanted.current = key;
    if (!key) return undefined;
    let isGone = false;
    const put = async () => {
      if (isBusy.current || isGone || wanted.current !== key) return;
      isBusy.current = true;
      try {
        set({ said: await ask("/api/studio/evaluate", { method: "POST", body: JSON.parse(key) }), of: key, error: null });
      } catch (problem) {
        set({ said: null, of: key, error: problem });
      } finally {
        isBusy.current = false;
      }
    };
    // an answer that comes late sets `of`, and this effect runs again
    const timer = of === key ? 0 : setTimeout(put, PAUSE_MS);
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [key, of]);
  return { said: key ? said : null, error, isCurrent: of === key };
}

// Sets of documents that the assignments of a node read, each with the names of its assignments.
function choicesOf(sources) {
  const found = new Map();
  for (const [name, urls] of Object.entries(sources)) found.set(urls.join(" "), [...(found.get(urls.join(" ")) || []), name]);
  return [...found].map(([urls, names]) => ({ urls, label: `${urls.split(" ").map((url) => url.replace("kv://CCM_DATA/", "")).join(", ")}, as in ${names.join(", ")}` }));
}

function OnNode({ text, name, isBroken, onShow }) {
  const [nodes, setNodes] = useState([]);
  const [problem, fail] = useState(null);
  const [node, choose] = useState("");
  const [expression, setExpression] = useState("");
  const [{ sources, of }, setData] = useState({ sources: {}, of: "" });
  const [picked, pick] = useState({ urls: "", name: null });
  useEffect(() => void ask("/api/studio/nodes").then((got) => setNodes(got.nodes), fail), []);
  useEffect(() => {
    if (!node) return;
    let isGone = false;
    const set = (sources, error) => {
      if (isGone) return;
      setData({ sources, of: node });
      fail(error);
    };
    ask(`/api/studio/data?node=${encodeURIComponent(node)}`).then((got) => set(got.sources, null), (error) => set({}, error));
    return () => {
      isGone = true;
    };
  }, [node]);
  const choices = choicesOf(sources);
  // an assignment with the name of the file is the one that the file is for; the file may arrive after the node is chosen
  const stem = (name.split("/").pop() || "").replace(/\.ya?ml$/, "");
  const isPicked = picked.name === name && (!picked.urls || choices.some((one) => one.urls === picked.urls));
  const ownUrls = Object.hasOwn(sources, stem) ? sources[stem].join(" ") : "";
  const chosen = isPicked ? picked.urls : ownUrls;
  const isAsked = node && of === node && !isBroken && !problem;
  const { said, error, isCurrent } = useEvaluation(isAsked ? { node, text, expression, path: name, data: chosen ? chosen.split(" ") : [] } : null);
  return html`<h2>On a node</h2>
    <div class="add">
      <span class="pair"><label for="studio-node">Node</label>
        <${Draft} id="studio-node" list="studio-nodes" value=${node} autocomplete="off" spellcheck=${false} onDone=${(value) => choose(value.trim())} /></span>
      <datalist id="studio-nodes">${nodes.slice(0, 2000).map((one) => html`<option key=${one} value=${one}></option>`)}</datalist>
      ${choices.length > 0 && html`<span class="pair"><label for="studio-data">Data</label>
      <select id="studio-data" value=${chosen} onChange=${(event) => pick({ urls: event.target.value, name })}>
        <option value="">only of the manifest</option>
        ${choices.map((one) => html`<option key=${one.urls} value=${one.urls}>${one.label}</option>`)}
      </select></span>`}
      <span class="pair"><label for="studio-expression">Expression</label>
        <input id="studio-expression" value=${expression} placeholder="Facts.role" autocomplete="off" spellcheck=${false} onInput=${(event) => setExpression(event.target.value)} /></span>
    </div>
    <${Problem} error=${problem || error} />
    ${!node && html`<p class="quiet">Choose a node to see the values of expressions and the manifest's files on it.</p>`}
    ${chosen && html`<p class="hint">Secrets of these documents are <code>***</code> here.</p>`}
    ${said?.error && html`<p class="problem" role="alert">${said.error}</p>`}
    ${expression.trim() && said?.result && html`<div role="status"><${Value} one=${said.result} /></div>`}
    ${said && !said.error && html`<${OnThisNode} ...${{ said, node, onShow, isCurrent }} />`}`;
}

// The place of a value: its resource, then the way to it.
function place(path) {
  const [, , , type, ...rest] = path;
  return typeof rest[0] === "number" ? [`${type}#${rest[1]}`, ...rest.slice(2)].join(" › ") : path.slice(type === undefined ? 1 : 3).join(" › ");
}

function OnThisNode({ said, node, onShow, isCurrent }) {
  const more = (count, word) => (count ? `; ${plural(count, `more ${word}`)} left out` : "");
  return html`<div aria-busy=${isCurrent ? "false" : "true"}>
    ${said.rendered.length > 0 && html`<div class="title"><h3>Values on ${node}</h3><p class="sub">${plural(said.rendered.length, "value")} with expressions${more(said.left_out, "value")}</p><span class="spacer"></span>
      <${Export} name=${`values-${node}`} table=${() => [["where", "value", "error"], said.rendered.map((one) => [place(one.path), one.value, one.error])]} /></div>`}
    ${!said.rendered.length && !said.files.length && html`<p class="sub">The manifest has neither expressions nor files.</p>`}
    ${said.rendered.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Values on the node"><table class="rendered">
      <thead><tr><th scope="col">Where</th><th scope="col">Value</th></tr></thead>
      <tbody>${said.rendered.map((one, number) => html`<tr key=${number}>
        <td><button type="button" class="plain" onClick=${() => onShow(one.path)}>${place(one.path)}</button></td><td><${Value} one=${one} /></td></tr>`)}</tbody>
    </table></div>`}
    ${said.files.length > 0 && html`<h3>Files on ${node}</h3>
      ${said.files.map((one, place) => html`<${Preview} key=${`${one.name} ${place}`} one=${one} onShow=${onShow} />`)}
      ${said.files_left_out > 0 && html`<p class="sub">${plural(said.files_left_out, "more file")} left out.</p>`}`}
  </div>`;
}

// A file that the node would have. Its text is a text node, whatever it contains.
function Preview({ one, onShow }) {
  const lines = one.text.split("\n").length - (one.text.endsWith("\n") ? 1 : 0);
  return html`<details class="fold preview" open=${lines <= OPEN_LINES}>
    <summary><code class="name">${one.name || one.origin}</code>${one.name && html` <span class="sub">${one.origin}</span>`}${one.error && html` <span class="bad">✗ error</span>`}</summary>
    <div class="tools"><button type="button" onClick=${() => onShow(one.path)}>Show in the YAML</button></div>
    ${one.note && html`<p class="hint">${one.note}</p>`}
    ${one.error ? html`<p class="bad">${one.error}</p>` : (one.text || !one.note) && html`<pre class="output" tabindex="0" aria-label=${`Content of ${one.name || one.origin}`}>${one.text || " "}</pre>`}
  </details>`;
}

const Value = ({ one }) => (one.error ? html`<p class="bad">${one.error}</p>` : html`<pre class="result">${one.value}</pre>`);

function Actions({ text, name, hasErrors }) {
  const [targets, setTargets] = useState("");
  const [{ said, error, isBusy, planned }, set] = useState({ said: null, error: null, isBusy: false, planned: null });
  const called = (name.split("/").pop() || "studio").replace(/\.ya?ml$/, "").replace(/[^\w.-]/g, "-").slice(0, 64) || "studio";
  const act = async (path, body, kept = {}) => {
    set({ said: kept.said, planned: kept.planned, error: null, isBusy: true });
    try {
      const got = await ask(path, { method: "POST", body: { text, name: called, ...body } });
      set((before) => ({ ...before, said: { ...before.said, ...got }, isBusy: false }));
    } catch (problem) {
      set((before) => ({ ...before, error: problem, isBusy: false }));
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
      <span class="pair"><label for="studio-targets">Nodes</label>
        <input id="studio-targets" value=${targets} placeholder="role=web or node=db1" autocomplete="off" spellcheck=${false} onInput=${(event) => setTargets(event.target.value)} /></span>
      <button type="submit" class="primary" ...${unusable(!isIdle || !targets.trim())}>Plan on these nodes</button>
      <button type="button" ...${unusable(!isIdle, () => act("/api/studio/bundle", {}, { said: said?.run && { ...said, digest: "" }, planned }))}>Store as a bundle</button>
    </form>
    <p class="hint">A plan changes nothing. Only the text above is sent; <code>ccmctl plan DIR</code> sends a directory.</p>
    ${hasErrors && html`<p class="quiet">First correct the errors that lint finds.</p>`}
    <${Problem} error=${error} />
    <div role="status">
      ${said?.run && html`<p>The plan of ${plural(said.nodes, "node")} has started${said.offline ? `; ${plural(said.offline, "node")} offline` : ""}. <a href=${runPath(said.run)} target="_blank" rel="noopener">Show it in a new tab</a></p>`}
      ${said?.digest && html`<p>Stored. <code>ccmctl bundle get ${said.digest} --out DIR</code> extracts it.</p>`}
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
