// Where a line about a resource comes from: its run, who asked for it, the signatures, the manifest, the data and the diff.
import { html, useEffect, useState, ask, session, short, Ago, Link, Problem, runPath } from "./lib.js";
import { Diff } from "./diffs.js";
import { undoPath } from "./undo.js";

const DATA_URL = "kv://CCM_DATA/";
const VERDICTS = {
  verified: "signed by the node and verified",
  unsigned: "not signed; the fleet accepts that",
  provisional: "not verified yet",
  gap: "events are missing or were changed",
  forged: "forged",
};

function Starter({ said }) {
  if (said.cause === "assignment") return html`the assignment <${Link} to=${`/assignments/${encodeURIComponent(said.origin)}`}>${said.origin}<//>`;
  if (said.cause === "schedule") return `the schedule ${said.origin}`;
  if (said.cause === "node") return "the node itself";
  return `${said.requester || "unknown"}${said.user ? ` for ${said.user} (dashboard)` : ""}`;
}

function Signature({ said }) {
  if (said.unverified) return html`<b class="bad">unverified: ${said.unverified}</b>`;
  if (said.signer) return `signed by ${said.signer} and verified`;
  return said.is_on_record ? "not signed; the fleet accepts that" : "not sent by an operator";
}

function Data({ data }) {
  const read = Object.entries(data);
  if (!read.length) return "no documents read";
  return read.map(([url, revision], place) => {
    const name = url.startsWith(DATA_URL) ? url.slice(DATA_URL.length) : "";
    const text = `${name || url} revision ${revision}`;
    return html`${place > 0 && ", "}${name ? html`<${Link} to=${`/data/${name.split("/").map(encodeURIComponent).join("/")}?changes=${revision}`}>${text}<//>` : text}`;
  });
}

function Panel({ said, node, isOnRunPage }) {
  const changed = said.events.some((one) => ["changed", "refreshed"].includes(one.outcome) && !one.noop_message);
  return html`<dl class="pairs">
      <dt>Run</dt><dd><${Link} to=${runPath(said.run)}><code>${short(said.run)}</code><//> ${said.action} ${said.undo ? short(said.undo) : said.name}, <${Ago} time=${said.time} /></dd>
      <dt>Started by</dt><dd><${Starter} said=${said} /></dd>
      <dt>Request</dt><dd><${Signature} said=${said} /></dd>
      <dt>Node's report</dt><dd class=${["gap", "forged"].includes(said.verdict) ? "bad" : ""}>${said.verdict ? VERDICTS[said.verdict] || said.verdict : "not verified; the credentials of this dashboard have no root key"}</dd>
      <dt>Manifest</dt><dd>${said.manifest || "none"}${said.digest && html` <code>sha256:${said.digest}</code>`}</dd>
      <dt>Data</dt><dd><${Data} data=${said.data} /></dd>
    </dl>
    ${!isOnRunPage && said.events.map((one, place) => one.diff && html`<${Diff} diff=${one.diff} key=${place} />`)}
    ${!isOnRunPage && !said.events.some((one) => one.diff) && html`<p class="quiet">No diff: nodes send diffs only if the request asks for them.</p>`}
    ${!isOnRunPage && session.right === "act" && said.may_be_undone && changed && html`<p><${Link} to=${undoPath(said.run, node)}>Undo on ${node} …<//></p>`}`;
}

// A button behind a line about a resource. What it shows is read when it is opened. The page of the run has the diff and the undo.
export function Origin({ run, node, resource, isOnRunPage = false }) {
  const [isOpen, setOpen] = useState(false);
  const [{ said, error }, set] = useState({ said: null, error: null });
  useEffect(() => {
    if (!isOpen) return undefined;
    const stop = new AbortController();
    ask(`/api/runs/${encodeURIComponent(run)}/nodes/${encodeURIComponent(node)}/origin?resource=${encodeURIComponent(resource)}`, { signal: stop.signal }).then(
      (said) => set({ said, error: null }),
      (error) => stop.signal.aborted || set({ said: null, error }),
    );
    return () => stop.abort();
  }, [isOpen, run, node, resource]);
  return html` <button type="button" class="plain link explain" aria-expanded=${isOpen} aria-label=${`Explain ${resource} on ${node}`} onClick=${() => setOpen(!isOpen)}>Explain</button>
    ${isOpen && html`<div class="failure" role="group" aria-label=${`Origin of ${resource} on ${node}`}><${Problem} error=${error} />${said ? html`<${Panel} said=${said} node=${node} isOnRunPage=${isOnRunPage} />` : !error && html`<p class="quiet" aria-busy="true">Reading …</p>`}</div>`}`;
}
