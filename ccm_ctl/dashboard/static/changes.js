// The search of events: of the last hour live, of any time that the stream has on request.
import { html, useEffect, useState, ask, go, withQuery, number, plural, stamp, Problem, Export } from "./lib.js";
import { useLive } from "./live.js";
import { EventTable, exportedEvents } from "./events.js";

const KINDS = ["", "resource", "start", "summary", "agent"];
// without a choice: what changed or failed, not the starts and stable ends that most events are
const MEANINGS = { "": "changes and problems", any: "any", bad: "problem", change: "change", good: "ok" };
const PERIODS = { "": "the last hour", "6h": "6 hours", "1d": "a day", "7d": "a week", "30d": "30 days", all: "all stored events" };
const HOURS = { "": 1, "6h": 6, "1d": 24, "7d": 168, "30d": 720 };
const FIELDS = ["text", "node", "kind", "meaning", "where", "period", "until"];
const SHARED = ["text", "node", "kind", "meaning"];

// What the address says, as the server is asked; a search of the last hour without an expression is answered from memory, and live.
function question(query) {
  const said = Object.fromEntries(FIELDS.map((name) => [name, query.get(name) || ""]));
  const asked = new URLSearchParams();
  for (const name of SHARED) if (said[name]) asked.set(name, said[name]);
  const isNarrowed = said.kind || said.where;
  if (said.meaning === "any" || (!said.meaning && isNarrowed)) asked.delete("meaning");
  else if (!said.meaning) asked.set("meaning", "notable");
  const isLive = !said.where && !said.period && !said.until;
  if (isLive) return { said, isLive, path: () => `/api/events?${asked}` };
  if (said.where) asked.set("where", said.where);
  const until = said.until ? Date.parse(`${said.until}Z`) / 1000 : null;
  return {
    said,
    isLive,
    path: () => {
      if (until) asked.set("to", String(until));
      if (said.period in HOURS) asked.set("from", String((until || Date.now() / 1000) - HOURS[said.period] * 3600));
      return `/api/search?${asked}`;
    },
  };
}

function useEvents(asked, key, when) {
  const [shown, set] = useState({ events: null, error: null, isBusy: false });
  useEffect(() => {
    const stop = new AbortController();
    const read = () => {
      set((before) => ({ ...before, isBusy: !asked.isLive }));
      ask(asked.path(), { signal: stop.signal }).then(
        (found) => set({ ...found, isLive: asked.isLive, error: null, isBusy: false }),
        (error) => stop.signal.aborted || set((before) => ({ ...before, error, isBusy: false })),
      );
    };
    const timer = setTimeout(read, asked.isLive && shown.events ? 1000 : 0);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [key, when]);
  return shown;
}

function Bounds({ found }) {
  if (found.isLive || !found.events) return null;
  const looked = `${plural(found.read, "stored event")} read`;
  return html`<p class="quiet" role="status">${plural(found.events.length, "event")}; ${looked}. ${
    found.is_complete ? "The whole period was searched." : found.begins ? `Events before ${stamp(found.begins)} were not searched. Choose an earlier end to continue.` : "The period has too many events to read; choose a shorter one, a node, or an earlier end."
  }${found.trouble && ` The expression cannot be evaluated for some events, which are left out: ${found.trouble}`}</p>`;
}

const input = (name, label, said, more = {}) =>
  html`<label class=${more.wide ? "wide" : ""}>${label} <input name=${name} type=${more.type || "text"} defaultValue=${said[name]} placeholder=${more.example || ""} maxlength="4096" autocomplete="off" autocapitalize="off" spellcheck=${false} /></label>`;
const choice = (name, label, said, options) =>
  html`<label>${label} <select name=${name}>${options.map(([value, text]) => html`<option value=${value} selected=${value === said[name]}>${text}</option>`)}</select></label>`;

export function ChangesPage({ address }) {
  const { last, loads } = useLive();
  const asked = question(address.searchParams);
  const { said, isLive } = asked;
  const [again, setAgain] = useState(0);
  const key = FIELDS.map((name) => said[name]).join("\n");
  const found = useEvents(asked, key, isLive ? `${last} ${loads}` : `again ${again}`);
  const events = found.events || [];
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    go(withQuery(Object.fromEntries(FIELDS.map((name) => [name, String(form.get(name) || "").trim()]))));
    setAgain((count) => count + 1);
  };
  return html`
    <div class="title"><h1>Changes</h1><p class="sub">${found.events ? plural(events.length, "event") : ""}</p><span class="spacer"></span><${Export} isOfPage name="changes" table=${() => exportedEvents(events)} /></div>
    <form class="filters" role="search" onSubmit=${submit} key=${key}>
      ${input("text", "Text", said)}
      ${input("node", "Node", said, { example: "web*" })}
      ${choice("kind", "Kind", said, KINDS.map((kind) => [kind, kind || "any"]))}
      ${choice("meaning", "Outcome", said, Object.entries(MEANINGS))}
      ${input("where", "Where", said, { wide: true, example: 'changed && type == "file"' })}
      ${choice("period", "Period", said, Object.entries(PERIODS))}
      ${input("until", "Until (UTC)", said, { type: "datetime-local" })}
      <span class="buttons"><button type="submit" class="primary">Search</button><button type="button" onClick=${() => go("/changes?meaning=any")}>All events</button></span>
    </form>
    <${Problem} error=${found.error} />
    ${found.isBusy && html`<p class="quiet" role="status" aria-busy="true">Searching …</p>`}
    <${Bounds} found=${found} />
    ${found.events && (events.length ? html`<${EventTable} events=${events} label="Events" isDated=${!isLive} />` : html`<p class="empty">No such event${isLive ? " in the last hour" : ""}.${!said.meaning && " “All events” also shows starts and runs that changed nothing."}</p>`)}`;
}
