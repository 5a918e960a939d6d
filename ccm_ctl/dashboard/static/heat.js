// The heat map: only the rows that can be seen are in the document, so that thousands of nodes scroll well.
import { html, useEffect, useLayoutEffect, useRef, useState, signOf, meaningOf, fact, Ago, State, stamp } from "./lib.js";

const ROW = 30;
const MARGIN = 12;

function useWindow(count) {
  const box = useRef(null);
  const [seen, set] = useState([0, 40]);
  const [isPrinting, setPrinting] = useState(false);
  useLayoutEffect(() => {
    const measure = () => {
      const element = box.current;
      if (!element) return;
      const first = Math.max(0, Math.floor(element.scrollTop / ROW) - MARGIN);
      const last = Math.ceil((element.scrollTop + element.clientHeight) / ROW) + MARGIN;
      set((before) => (before[0] === first && before[1] === last ? before : [first, last]));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    box.current.addEventListener("scroll", measure, { passive: true });
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const printing = (is) => () => setPrinting(is);
    const [before, after] = [printing(true), printing(false)];
    addEventListener("beforeprint", before);
    addEventListener("afterprint", after);
    return () => {
      removeEventListener("beforeprint", before);
      removeEventListener("afterprint", after);
    };
  }, []);
  return [box, isPrinting ? 0 : Math.min(seen[0], Math.max(0, count - 1)), isPrinting ? count : Math.min(seen[1], count)];
}

function wordsOf(name, cell) {
  const parts = [`${name}: ${cell.state}`];
  if (cell.plan) parts.push("planned only");
  if (cell.stale) parts.push("with an older revision or older data");
  if (cell.away && cell.state !== "offline") parts.push("the node is offline");
  if (cell.reason) parts.push(cell.reason);
  if (cell.since) parts.push(`since ${stamp(cell.since)}`);
  return parts.join("; ");
}

function Cell({ name, cell }) {
  if (!cell) return html`<div role="cell" class="heat none"><span class="hidden">${name}: not assigned</span></div>`;
  const text = wordsOf(name, cell);
  const marks = `${cell.stale ? " stale" : ""}${cell.away ? " away" : ""}${cell.plan ? " plan" : ""}`;
  return html`<div role="cell" class=${`heat ${meaningOf(cell.state)}${marks}`} title=${text}>
    <span aria-hidden="true">${signOf(cell.state)}</span><span class="hidden">${text}</span>
  </div>`;
}

// that a node was never seen is its state already
const note = (row) => (row.unverified ? `unverified ${row.unverified}` : "") || row.detail || row.conflict || Object.values(row.standings).find((one) => one.reason && one.reason !== "never seen")?.reason || "";

// A node that missed a heartbeat or is silent may be down, and one that is offline is: what is shown of it is so old.
const Heard = ({ row }) => (row.heard ? html` <span class="late" title=${`last heard ${stamp(row.heard)}`}><${Ago} time=${row.heard} every=${1000} /></span>` : "");

function Row({ row, place, assignments, paths, factOf, onOpen, isOpen }) {
  return html`<div role="row" aria-rowindex=${place + 2} class=${`row${row.state === "present" && !row.heard ? "" : " absent"}${isOpen ? " open" : ""}`} style=${{ top: `${place * ROW}px` }}>
    <div role="rowheader" class="name"><button type="button" class="plain" aria-expanded=${isOpen} onClick=${() => onOpen(isOpen ? "" : row.node)} title=${row.node}>${row.node}</button></div>
    <div role="cell" class="status"><${State} state=${row.status} /><${Heard} row=${row} />${row.run && html` <span class="busy" title=${`in run ${row.run}`}>▸<span class="hidden">in a run</span></span>`}</div>
    ${assignments.map((one) => html`<${Cell} name=${one.name} cell=${row.standings[one.name]} key=${one.name} />`)}
    ${paths.map((path) => html`<div role="cell" class="fact" title=${fact(factOf(row, path))} key=${path}>${fact(factOf(row, path))}</div>`)}
    <div role="cell" class="last">${row.last_run ? html`<span class=${meaningOf(row.last_state)}>${row.last_state}</span> <${Ago} time=${row.last_time} />` : html`<span class="quiet">none yet</span>`}</div>
    <div role="cell" class="note" title=${note(row)}>${note(row)}</div>
  </div>`;
}

export function HeatMap({ rows, assignments, paths, factOf, onOpen, open }) {
  const [box, first, last] = useWindow(rows.length);
  const columns = ["var(--name)", "var(--state)", ...assignments.map(() => "2.2rem"), ...paths.map(() => "var(--fact)"), "var(--last)", "minmax(var(--note), 1fr)"].join(" ");
  const count = assignments.length + paths.length + 4;
  return html`<div class="heat-map" ref=${box} tabindex="0" role="region" aria-label="Nodes and assignments">
    <div role="table" aria-label="Nodes and assignments" aria-rowcount=${rows.length + 1} aria-colcount=${count} style=${{ "--columns": columns }}>
      <div role="rowgroup" class="head">
        <div role="row" aria-rowindex="1" class="row">
          <div role="columnheader" class="name">Node</div>
          <div role="columnheader">State</div>
          ${assignments.map((one) => html`<div role="columnheader" class="assignment" title=${one.name} key=${one.name}><span>${one.name}</span></div>`)}
          ${paths.map((path) => html`<div role="columnheader" class="fact" title=${path} key=${path}>${path}</div>`)}
          <div role="columnheader">Last run</div>
          <div role="columnheader" class="note">Note</div>
        </div>
      </div>
      <div role="rowgroup" class="body" style=${{ height: `${rows.length * ROW}px` }}>
        ${rows.slice(first, last).map(
          (row, place) =>
            html`<${Row} key=${row.node} row=${row} place=${first + place} assignments=${assignments} paths=${paths} factOf=${factOf} onOpen=${onOpen} isOpen=${open === row.node} />`,
        )}
      </div>
    </div>
  </div>`;
}
