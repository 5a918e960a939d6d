// What all pages share: rendering, requests, addresses, words. Values of nodes become text nodes and attributes, never markup.
import { h } from "./vendor/preact.js";
import { useEffect, useLayoutEffect, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

export { render } from "./vendor/preact.js";
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";

export const html = htm.bind(h);

export const session = { name: "", identity: "", provider: "", right: "read", action: "", version: "", fleet: true };

export class ApiError extends Error {
  constructor(status, said) {
    super(said.error || `the dashboard answered ${status}`);
    this.status = status;
    this.code = said.code || "";
    this.provider = said.provider || "";
  }
}

let onSignedOut = () => {};
export function whenSignedOut(callback) {
  onSignedOut = callback;
}

export async function ask(path, { method = "GET", body, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-CCM-Action"] = session.action;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const options = { method, headers, signal, cache: "no-store", credentials: "same-origin" };
  const response = await fetch(path, body === undefined ? options : { ...options, body: JSON.stringify(body) });
  const said = await response.json().catch(() => null);
  if (said === null) throw new ApiError(response.status, { error: "the answer was cut off", code: "dashboard.cut" });
  if (response.status === 401 && path !== "/api/session") onSignedOut();
  if (!response.ok) throw new ApiError(response.status, said);
  return said;
}

// ---- addresses -------------------------------------------------------------------------------------------------------------

const listeners = new Set();
export function go(address, { replace = false } = {}) {
  if (address !== location.pathname + location.search) history[replace ? "replaceState" : "pushState"](null, "", address);
  listeners.forEach((one) => one());
}
addEventListener("popstate", () => listeners.forEach((one) => one()));

export function useAddress() {
  const [address, set] = useState(location.pathname + location.search);
  useLayoutEffect(() => {
    const changed = () => set(location.pathname + location.search);
    listeners.add(changed);
    return () => listeners.delete(changed);
  }, []);
  return new URL(address, location.origin);
}

export function withQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const one of [value].flat()) if (one) query.append(name, one);
  }
  const text = query.toString();
  return location.pathname + (text ? `?${text}` : "");
}

export function Link({ to, children, ...rest }) {
  const follow = (event) => {
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(to);
    scrollTo(0, 0);
  };
  return html`<a href=${to} onClick=${follow} ...${rest}>${children}</a>`;
}

export const nodePath = (name) => `/nodes/${encodeURIComponent(name)}`;
export const runPath = (run) => `/runs/${encodeURIComponent(run)}`;

// ---- words -----------------------------------------------------------------------------------------------------------------

const numbers = new Intl.NumberFormat("en");
export const number = (value) => numbers.format(value);
export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
export const natural = new Intl.Collator("en", { numeric: true }).compare;
export const short = (id) => String(id || "").slice(0, 8);

export function span(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function ago(time, now = Date.now()) {
  const at = Date.parse(time);
  if (Number.isNaN(at)) return "";
  const seconds = (now - at) / 1000;
  return seconds < -1 ? `in ${span(-seconds)}` : `${span(seconds)} ago`;
}

export function clock(time) {
  const at = new Date(time);
  return Number.isNaN(at.getTime()) ? "" : at.toISOString().slice(11, 19);
}

export function stamp(time) {
  const at = new Date(time);
  return Number.isNaN(at.getTime()) ? "" : `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

export function Ago({ time, every = 10000 }) {
  useTick(every);
  return time ? html`<time dateTime=${time} title=${stamp(time)}>${ago(time)}</time>` : "";
}

export function useTick(every) {
  const [count, set] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => set((count) => count + 1), every);
    return () => clearInterval(timer);
  }, [every]);
  return count;
}

export function fact(value) {
  if (value === undefined || value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

// State in a word: its sign (color is never the only one), and its meaning, which is a class of the style sheet.
export const STATES = {
  converged: ["✓", "good"],
  stable: ["✓", "good"],
  changed: ["±", "change"],
  waiting: ["…", "change"],
  failed: ["✗", "bad"],
  stopped: ["■", "bad"],
  refused: ["⊘", "bad"],
  conflict: ["!", "bad"],
  expired: ["⌛", "gone"],
  lost: ["?", "gone"],
  unreachable: ["?", "gone"],
  disabled: ["‖", "quiet"],
  offline: ["○", "gone"],
  paused: ["‖", "change"],
  "not driven": ["‖", "change"],
  "plans only": ["⊘", "bad"],
  clock: ["!", "bad"],
  disk: ["!", "bad"],
  drifted: ["≠", "change"],
  "never seen": ["·", "quiet"],
  unassigned: ["–", "quiet"],
  healthy: ["✓", "good"],
  gone: ["✗", "bad"],
  present: ["●", "good"],
  running: ["▸", "change"],
  refreshed: ["±", "change"],
  skipped: ["–", "quiet"],
  unmet: ["✗", "bad"],
  "unmet requirements": ["✗", "bad"],
  superseded: ["–", "quiet"],
  duplicate: ["!", "bad"],
  silent: ["?", "gone"],
  undelivered: ["…", "change"],
  "refresh pending": ["…", "change"],
};

export const signOf = (state) => (STATES[state] || ["•", ""])[0];
export const meaningOf = (state) => (STATES[state] || ["•", ""])[1];

export function State({ state, word = state, children }) {
  return html`<span class=${`state ${meaningOf(state)}`}><span aria-hidden="true">${signOf(state)}</span> ${word}${children}</span>`;
}

// What no key of the fleet signed is shown, with the reason.
export function Unverified({ reason }) {
  return reason ? html` <b class="bad unverified">unverified: ${reason}</b>` : "";
}

// The cell of who wrote a row, and its text for programs.
export const author = [
  (row) => html`${row.written_by}<${Unverified} reason=${row.unverified} />`,
  (row) => (row.written_by || "") + (row.unverified ? ` (unverified: ${row.unverified})` : ""),
];

// ---- buttons -----------------------------------------------------------------------------------------------------------------

// Attributes of a button that cannot be used now. It keeps the focus, which `disabled` takes away: also while it waits for an answer.
export const unusable = (isUnusable, act) => ({
  "aria-disabled": isUnusable ? "true" : undefined,
  onClick: (event) => (isUnusable ? event.preventDefault() : act?.(event)),
});

// ---- tables for programs -----------------------------------------------------------------------------------------------------

function cell(value) {
  let text = fact(value);
  if (/^[=+\-@\t\r]/.test(text)) text = `'${text}`; // a spreadsheet would run it
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function save(name, kind, columns, rows) {
  const text =
    kind === "json"
      ? JSON.stringify(rows.map((row) => Object.fromEntries(columns.map((one, place) => [one, row[place] ?? null]))), null, 1)
      : [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind === "json" ? "application/json" : "text/csv" }));
  link.download = `${name}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// The buttons of a table. The one that heads a page also copies the address of the page.
export function Export({ name, table, isOfPage = false }) {
  const give = (kind) => () => save(name, kind, ...table());
  return html`<span class="export">
    <button type="button" onClick=${give("csv")}>CSV</button>
    <button type="button" onClick=${give("json")}>JSON</button>
    ${isOfPage && html`<${Share} />`}
  </span>`;
}

export function Share() {
  const [said, set] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      set("copied");
    } catch {
      set("copy the address bar");
    }
    setTimeout(() => set(""), 2000);
  };
  return html`<button type="button" title="Copy the address of what you see" onClick=${copy}>Link</button><span class="said" role="status">${said}</span>`;
}

export function Output({ text, lines = 0 }) {
  if (!text || !text.trim()) return null;
  const all = text.trimEnd().split("\n");
  return html`<pre class="output" tabindex=${lines ? undefined : 0}>${(lines ? all.slice(-lines) : all).join("\n")}</pre>`;
}

// A field whose value counts when it is left, or Enter is pressed. What is typed meanwhile survives that the page is drawn again.
export function Draft({ value, onDone, ...rest }) {
  const [draft, set] = useState(null);
  const done = (event) => {
    set(null);
    onDone(event.target.value);
  };
  return html`<input ...${rest} value=${draft ?? value} onInput=${(event) => set(event.target.value)} onChange=${done} onBlur=${() => set(null)} />`;
}

// Why a run is started, as `--message` of ccmctl.
export const MessageField = ({ value, onInput }) => html`<label class="inline">Message (optional) <input value=${value} maxlength="1000" onInput=${(event) => onInput(event.target.value)} /></label>`;

export function Problem({ error }) {
  return error ? html`<p class="problem" role="alert">${error.message || String(error)}</p>` : null;
}
