// The list of runs.
import { html, useEffect, useState, ask, go, withQuery, number, plural, State, Ago, Link, Problem, Export, meaningOf, signOf, runPath, short } from "./lib.js";
import { useLive } from "./live.js";

// A plan changed nothing: it would.
export const stateWord = (state, action) => (action === "plan" && state === "changed" ? "would change" : state);

// How many nodes ended how; each count leads to the nodes.
export function Tally({ counts, run, action }) {
  return html`<span class="tally">${Object.entries(counts).filter(([, count]) => count).map(
    ([state, count]) => html`<span class=${meaningOf(state)} key=${state}><span aria-hidden="true">${signOf(state)}</span> <${Link} to=${`${runPath(run)}?state=${encodeURIComponent(state)}`}>${action === "plan" && state === "changed" ? `would change ${number(count)}` : `${number(count)} ${state}`}<//></span>`,
  )}</span>`;
}

const FIELDS = { node: "Node", name: "Manifest", by: "Operator", state: "State" };
const CAUSES = { "": "any", request: "an operator", schedule: "a schedule", assignment: "an assignment", node: "the node itself" };
const STATES = ["", "open", "done", "failed", "changed", "stable", "stopped", "refused", "lost", "unreachable", "expired", "offline"];

function Filters({ query }) {
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    go(withQuery(Object.fromEntries([...Object.keys(FIELDS), "cause"].map((name) => [name, String(form.get(name) || "").trim()]))));
  };
  return html`<form class="filters" role="search" onSubmit=${submit} key=${query.toString()}>
    ${["node", "name", "by"].map((name) => html`<label>${FIELDS[name]} <input name=${name} defaultValue=${query.get(name) || ""} autocomplete="off" autocapitalize="off" spellcheck=${false} /></label>`)}
    <label>State <select name="state">${STATES.map((state) => html`<option value=${state} selected=${(query.get("state") || "") === state}>${state || "any"}</option>`)}</select></label>
    <label>Started by <select name="cause">${Object.entries(CAUSES).map(([cause, text]) => html`<option value=${cause} selected=${(query.get("cause") || "") === cause}>${text}</option>`)}</select></label>
    <span class="buttons"><button type="submit" class="primary">Show</button><button type="button" onClick=${() => go("/runs")}>All runs</button></span>
  </form>`;
}

const what = (run) => `${run.action} ${run.undo ? short(run.undo) : run.name}`;
const whom = (run) => (run.targets.join(" or ") || "all nodes") + (run.where ? ` where ${run.where}` : "");

export function RunsPage({ address }) {
  const { events, loads } = useLive();
  const [shown, set] = useState({ runs: null, error: null });
  const newest = events.find((one) => one.run && (one.kind === "summary" || one.kind === "start"))?.id || 0;
  useEffect(() => {
    const timer = setTimeout(() => {
      ask(`/api/runs${address.search}`).then((said) => set({ ...said, error: null }), (error) => set((before) => ({ ...before, error })));
    }, shown.runs ? 1000 : 0);
    return () => clearTimeout(timer);
  }, [address.search, newest, loads]);
  const runs = shown.runs || [];
  const columns = ["run", "time", "cause", "origin", "requester", "action", "name", "targets", "where", "nodes", "state", "counts", "message"];
  return html`
    <div class="title"><h1>Runs</h1>${shown.runs && html`<p class="sub">${plural(runs.length, "run")}, newest first</p>`}<span class="spacer"></span>
      <${Export} isOfPage name="runs" table=${() => [columns, runs.map((run) => columns.map((column) => run[column]))]} /></div>
    <${Filters} query=${address.searchParams} />
    <${Problem} error=${shown.error} />
    ${shown.runs && !runs.length && html`<p class="empty">No such run.</p>`}
    ${!shown.runs && !shown.error && html`<p class="empty" aria-busy="true">Reading …</p>`}
    ${runs.length > 0 && html`<div class="scroll tall" tabindex="0" role="region" aria-label="Runs"><table class="cards">
      <thead><tr><th scope="col">Run</th><th scope="col">When</th><th scope="col">By</th><th scope="col">What</th><th scope="col">Nodes</th><th scope="col">Outcome</th></tr></thead>
      <tbody>${runs.map(
        (run) => html`<tr key=${run.run}>
          <td><${Link} to=${runPath(run.run)}><code>${short(run.run)}</code><//></td><td><${Ago} time=${run.time} /></td><td>${run.cause === "request" ? run.requester : html`<span class="quiet">${run.cause} </span>${run.origin}${run.reported_by && html`<span class="quiet" title="Only this node reports the run, and nothing else confirms it."> (reported by ${run.reported_by})</span>`}`}</td>
          <td class="long">${what(run)} <span class="quiet">${run.cause === "request" || run.cause === "schedule" ? `for ${whom(run)}` : run.others ? `and ${plural(run.others, "older run")} of other nodes` : ""}</span>${run.message && html`<p class="quiet">${run.message}</p>`}</td><td>${number(run.nodes)}</td>
          <td>${run.state === "done" ? "" : html`<b>${run.state === "stopping" ? "stopping" : "open"}</b> `}<${Tally} counts=${run.counts || {}} run=${run.run} action=${run.action} />${run.stopped_by && ` stopped by ${run.stopped_by}`}${run.unverified && html` <b title=${run.unverified}>unverified</b>`}</td></tr>`,
      )}</tbody></table></div>`}`;
}
