// What resources change: properties, and the lines of files. All of it came from nodes.
import { html, useState, ask, number, plural, Link, Problem, Export, nodePath } from "./lib.js";

const NODES_NAMED = 8;
const LINES_SHOWN = 2000;
const CLASSES = { "+": "add", "-": "del", "@": "at", "\\": "at" };

const digest = (one) => [one.size_bytes ? `${number(one.size_bytes)} bytes` : "", one.sha256 ? `sha256:${one.sha256.slice(0, 12)}` : ""].filter(Boolean).join(" ");

function about(file) {
  const words = [];
  if (file.added || file.removed) words.push(`${plural(file.added || 0, "line")} added, ${number(file.removed || 0)} removed`);
  const versions = [file.before, file.after].filter(Boolean).map(digest).filter(Boolean).join(" → ");
  if (versions) words.push(`${file.form === "binary" ? "binary, " : ""}${versions}`);
  if (file.why) words.push(`not shown: ${file.why}`);
  return words.join("; ");
}

function File({ file }) {
  const lines = (file.text || "").split("\n");
  if (lines.at(-1) === "") lines.pop();
  return html`<p class="file"><b>${file.action || "change"} ${file.path}</b> <span class="quiet">${about(file)}</span></p>
    ${lines.length > 0 && html`<div class="diff" tabindex="0" role="region" aria-label=${`Lines of ${file.path}`}>${lines.slice(0, LINES_SHOWN).map((line, place) => html`<div class=${CLASSES[line[0]] || ""} key=${place}>${line || " "}</div>`)}</div>`}
    ${file.left_out > 0 && html`<p class="quiet">… ${plural(file.left_out, "more line")}</p>`}`;
}

export function Diff({ diff, isCut = false }) {
  return html`<div class="changes">
    ${diff.refresh && html`<p>because ${diff.refresh} changes</p>`}
    ${diff.properties?.length > 0 && html`<dl class="pairs">${diff.properties.map((one) => html`<dt>${one.property}</dt><dd>${one.before ? `${one.before} → ${one.after || ""}` : one.after || ""}</dd>`)}</dl>`}
    ${diff.command && html`<p><code>${diff.command}</code></p>`}
    ${(diff.files || []).map((file) => html`<${File} file=${file} key=${file.path} />`)}
    ${diff.files_left_out > 0 && html`<p class="quiet">… ${plural(diff.files_left_out, "more file")}</p>`}
    ${diff.why ? html`<p class="quiet">no diff: ${diff.why}</p>` : isCut && html`<p class="quiet">The diff was cut because the event was too large.</p>`}
  </div>`;
}

const verb = (one) => (one.noop ? "would change" : one.failed ? "failed" : "changed");

export function Group({ one, isFirst }) {
  const named = one.nodes.slice(0, NODES_NAMED);
  return html`<details class="card group" open=${isFirst}>
    <summary><b>${one.parent && `${one.parent} > `}${one.resource}</b> ${verb(one)} <span class="quiet">${one.nodes.length === 1 ? "on" : `alike on ${plural(one.nodes.length, "node")}:`}</span> ${named.join(", ")}${one.nodes.length > named.length && ` and ${number(one.nodes.length - named.length)} more`}</summary>
    <${Diff} diff=${one.diff} isCut=${one.is_cut} />
    <p class="quiet">${one.nodes.slice(0, 200).map((node, place) => html`${place > 0 && ", "}<${Link} to=${nodePath(node)}>${node}<//>`)}</p>
  </details>`;
}

const table = (groups) => [
  ["resource", "nodes", "outcome", "properties", "files", "diff"],
  groups.map((one) => [
    one.resource, one.nodes, verb(one), (one.diff.properties || []).map((each) => `${each.property}: ${each.before || ""} → ${each.after || ""}`).join("; "),
    (one.diff.files || []).map((file) => file.path).join("; "), (one.diff.files || []).map((file) => file.text || "").join("\n"),
  ]),
];

// The diffs of a run, equal ones as one. They are read when they are asked for: a run may have thousands.
export function RunDiffs({ run }) {
  const [shown, set] = useState({ said: null, error: null, isBusy: false });
  const read = async () => {
    set((before) => ({ ...before, isBusy: true }));
    try {
      set({ said: await ask(`/api/runs/${run.run}/diffs`), error: null, isBusy: false });
    } catch (error) {
      set((before) => ({ ...before, error, isBusy: false }));
    }
  };
  const { said } = shown;
  return html`<section aria-label="Diffs">
    <div class="title"><h2>Diffs</h2><button type="button" onClick=${read} disabled=${shown.isBusy}>${said ? "Read again" : "Show diffs"}</button><span class="spacer"></span>
      ${said?.groups.length > 0 && html`<${Export} name=${`diffs-${run.run.slice(0, 8)}`} table=${() => table(said.groups)} />`}</div>
    <${Problem} error=${shown.error} />
    ${said && html`<p class="sub" role="status">${said.groups.length ? `${plural(said.groups.length, "distinct diff")}; the same diff on several nodes is shown once` : said.is_asked ? "No resource changed anything." : "Nodes send diffs only if the request asks for them: ccmctl plan does, and ccmctl apply --diff."}</p>`}
    ${said?.groups.map((one, place) => html`<${Group} one=${one} isFirst=${place === 0} key=${place} />`)}
    ${said?.left_out > 0 && html`<p class="quiet">${plural(said.left_out, "other diff")} left out; <code>ccmctl run show ${run.run} --json</code> has all.</p>`}
    ${said?.is_cut && html`<p class="quiet">The run has too many events; later ones are left out.</p>`}
  </section>`;
}
