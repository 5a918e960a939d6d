// The data of a node with its origin, and the facts that operators assigned to it.
import { html, useEffect, useState, ask, go, withQuery, natural, Ago, Link, Problem, Export, author, fact } from "./lib.js";
import { Table, exported } from "./tables.js";

const DEFAULT = "kv://CCM_DATA/common";
const MEANINGS = { wins: "good", merged: "good", overridden: "quiet", removes: "change" };

const query = (urls, key) => [...urls.map((url) => `data=${encodeURIComponent(url)}`), ...(key ? [`key=${encodeURIComponent(key)}`] : [])].join("&");

function useAsked(path) {
  const [shown, set] = useState({ said: null, error: null, path: "" });
  useEffect(() => {
    if (!path) return set({ said: null, error: null, path });
    const stop = new AbortController();
    ask(path, { signal: stop.signal }).then((said) => set({ said, error: null, path }), (error) => stop.signal.aborted || set({ said: null, error, path }));
    return () => stop.abort();
  }, [path]);
  return shown.path === path ? shown : { said: null, error: null };
}

const document = (one) => (one.document.startsWith("kv://CCM_DATA/") ? html`<${Link} to=${`/data/${one.document.slice(14)}`}>${one.document.slice(14)}<//>${one.revision > 0 && ` revision ${one.revision}`}` : one.document);
const layers = [
  ["Document", document, (one) => one.document],
  ["Layer", (one) => one.layer || one.entry],
  ["Line", (one) => one.line || ""],
  ["Result", (one) => html`<span class=${MEANINGS[one.effect] || "quiet"}>${one.effect}</span>`, (one) => one.effect],
  ["Value", (one) => ("value" in one ? html`<code class="value">${fact(one.value)}</code>` : ""), (one) => one.value],
];

// The layer that takes precedence first: a later layer overrides those before it. Layers that contribute nothing are last.
const byWeight = (found) => found.toReversed().sort((one, other) => (one.effect in MEANINGS ? 0 : 1) - (other.effect in MEANINGS ? 0 : 1));

function Explained({ said, name }) {
  const rows = byWeight(said.layers);
  return html`<div class="title"><p class="lead" role="status">${said.is_found ? html`<code>${said.key}</code> is <code class="value">${JSON.stringify(said.value)}</code>` : `${said.key} is not set for ${name}: no matching layer defines it.`}</p><span class="spacer"></span>
      <${Export} name=${`data-${name}-${said.key}`} table=${() => exported(layers, rows)} /></div>
    ${[...said.broken, ...said.warnings].map((text) => html`<p class="problem">${text}</p>`)}
    ${rows.length > 0 && html`<${Table} label="Layers" rows=${rows} columns=${layers} />`}`;
}

export function NodeData({ path, name, address }) {
  const key = address.searchParams.get("key") || "";
  const chosen = address.searchParams.getAll("data");
  const urls = chosen.length ? chosen : [DEFAULT];
  const listed = useAsked(`${path}/data?${query(urls, "")}`);
  const explained = useAsked(key && `${path}/data?${query(urls, key)}`);
  const sources = Object.entries(listed.said?.sources || {});
  const options = [["", "common"], ...sources.map(([assignment, read]) => [read.join(" "), `of the assignment ${assignment}`])];
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    go(withQuery({ key: String(form.get("key") || "").trim(), data: String(form.get("data") || "").split(" ").filter(Boolean) }));
  };
  return html`<form class="filters" onSubmit=${submit} key=${`${key} ${chosen.join(" ")}`}>
      <label>Key <input name="key" defaultValue=${key} list="data-keys" placeholder="port or tls.cert" maxlength="500" required autocomplete="off" autocapitalize="off" spellcheck=${false} /></label>
      <datalist id="data-keys">${(listed.said?.keys || []).map((one) => html`<option value=${one} />`)}</datalist>
      <label>Data <select name="data">${options.map(([value, text]) => html`<option value=${value} selected=${value === chosen.join(" ")}>${text}</option>`)}</select></label>
      <span class="buttons"><button type="submit" class="primary">Explain</button></span>
    </form>
    <${Problem} error=${listed.error || explained.error} />
    ${listed.said && !key && html`<p class="quiet">${listed.said.keys.length ? html`Keys: ${listed.said.keys.slice(0, 60).map((one, place) => html`${place > 0 && ", "}<button type="button" class="plain link" onClick=${() => go(withQuery({ key: one }))}>${one}</button>`)}${listed.said.keys.length > 60 && " …"}` : "No data gives this node a value."}</p>`}
    ${explained.said && html`<${Explained} said=${explained.said} name=${name} />`}`;
}

function flat(facts, prefix = "") {
  return Object.entries(facts || {}).flatMap(([name, value]) => (value && typeof value === "object" && !Array.isArray(value) ? flat(value, `${prefix}${name}.`) : [[prefix + name, fact(value)]]));
}

// What a revision of assigned facts changed, in words.
function changes(now, before) {
  const [new_, old] = [new Map(flat(now)), new Map(flat(before))];
  const names = [...new Set([...new_.keys(), ...old.keys()])].sort(natural);
  return names.flatMap((name) => (new_.get(name) === old.get(name) ? [] : !old.has(name) ? [`${name}=${new_.get(name)}`] : !new_.has(name) ? [`${name} removed`] : [`${name}: ${old.get(name)} → ${new_.get(name)}`]));
}

const revisions = [
  ["Revision", (row) => row.revision],
  ["When", (row) => html`<${Ago} time=${row.time} />`, (row) => row.time],
  ["By", ...author],
  ["Changed", (row) => row.changes.join(", ")],
  ["Message", (row) => row.message],
];

export function FactHistory({ path, name, when }) {
  const [shown, set] = useState({ said: null, error: null });
  useEffect(() => {
    const stop = new AbortController();
    ask(`${path}/fact-history`, { signal: stop.signal }).then((said) => set({ said, error: null }), (error) => stop.signal.aborted || set((before) => ({ ...before, error })));
    return () => stop.abort();
  }, [path, when]);
  const found = shown.said?.revisions || [];
  const rows = found.map((one, place) => ({ ...one, changes: place + 1 < found.length ? changes(one.facts, found[place + 1].facts) : flat(one.facts).map(([fact_, value]) => `${fact_}=${value}`) }));
  return html`<${Problem} error=${shown.error} />
    ${rows.length > 0 && html`<div class="title"><h3>History of assigned facts</h3><p class="sub">only assigned facts have a history</p><span class="spacer"></span><${Export} name=${`fact-history-${name}`} table=${() => exported(revisions, rows)} /></div>
    <${Table} label="History of assigned facts" rows=${rows} columns=${revisions} />`}`;
}
