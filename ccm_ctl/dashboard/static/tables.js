// A table of what an address gives, with its CSV and JSON.
import { html, useEffect, useState, ask, number, Problem, Export } from "./lib.js";
import { useLive } from "./live.js";

const SHOWN = 1000;

// What an address gives, read again when the fleet has changed, or when `when` has. What is costly to make is not `isLive`.
export function useRead(path, when = "", isLive = true) {
  const { version, loads } = useLive();
  const [shown, set] = useState({ said: null, error: null });
  useEffect(() => {
    if (!path) return undefined;
    const stop = new AbortController();
    ask(path, { signal: stop.signal }).then((said) => set({ said, error: null }), (error) => stop.signal.aborted || set((before) => ({ ...before, error })));
    return () => stop.abort();
  }, [path, isLive && version, loads, when]);
  return shown;
}

// A column is its name, what stands in its cell, and the value for programs.
export const exported = (columns, rows) => [columns.map(([text]) => text), rows.map((row) => columns.map(([, shown, value]) => (value || shown)(row)))];

export function Table({ label, rows, columns, tall = false }) {
  return html`<div class=${tall ? "scroll tall" : "scroll"} tabindex="0" role="region" aria-label=${label}><table>
      <thead><tr>${columns.map(([text]) => html`<th scope="col" key=${text}>${text}</th>`)}</tr></thead>
      <tbody>${rows.slice(0, SHOWN).map((row, place) => html`<tr key=${place}>${columns.map(([text, shown]) => html`<td key=${text}>${shown(row)}</td>`)}</tr>`)}</tbody>
    </table></div>
    ${rows.length > SHOWN && html`<p class="quiet">The first ${number(SHOWN)} of ${number(rows.length)}; CSV and JSON have all of them.</p>`}`;
}

// A section with a table.
export function TableSection({ title, sub, rows, columns, empty, name, children }) {
  return html`<section aria-label=${title}>
    <div class="title"><h2>${title}</h2>${sub && html`<p class="sub">${sub}</p>`}<span class="spacer"></span>${rows?.length > 0 && html`<${Export} name=${name} table=${() => exported(columns, rows)} />`}</div>
    ${children}
    ${rows && (rows.length ? html`<${Table} label=${title} rows=${rows} columns=${columns} />` : html`<p class="empty">${empty}</p>`)}
  </section>`;
}

// A page that is one table.
export function TablePage({ title, sub, rows, columns, error, empty, name }) {
  return html`
    <div class="title"><h1>${title}</h1>${sub && html`<p class="sub">${sub}</p>`}<span class="spacer"></span>${rows && html`<${Export} isOfPage name=${name} table=${() => exported(columns, rows)} />`}</div>
    <${Problem} error=${error} />
    ${!rows && !error && html`<p class="empty" aria-busy="true">Reading …</p>`}
    ${rows && !rows.length && html`<p class="empty">${empty}</p>`}
    ${rows?.length > 0 && html`<${Table} label=${title} rows=${rows} columns=${columns} tall />`}`;
}
