// The document of all pages: signs in, shows the page that the address names.
import { html, render, useEffect, useRef, useState, useAddress, ask, session, whenSignedOut, Link } from "./lib.js";
import { live, start, useLive } from "./live.js";
import { FleetPage } from "./fleet.js";
import { NodePage } from "./node.js";
import { RunsPage } from "./runs.js";
import { RunPage } from "./run.js";
import { RunActions } from "./actions.js";
import { ChangesPage } from "./changes.js";
import { SlotsPage } from "./slots.js";
import { AssignmentPage, AssignmentsPage, DataPage, DocumentPage, RegistrationsPage, SchedulesPage } from "./stored.js";
import { later } from "./later.js";

const PAGES = [
  ["/", "Fleet", FleetPage],
  ["/runs", "Runs", RunsPage],
  ["/changes", "Changes", ChangesPage],
  ["/assignments", "Assignments", AssignmentsPage],
  ["/data", "Data", DataPage],
  ["/schedules", "Schedules", SchedulesPage],
  ["/registrations", "Registrations", RegistrationsPage],
  ["/slots", "Slots and locks", SlotsPage],
  ["/studio", "Studio", later(() => import("./studio.js"))],
];
const shownPages = () => (session.fleet ? PAGES : PAGES.filter(([to]) => to === "/studio"));
const THINGS = [
  [/^\/nodes\/([^/]+)$/, NodePage],
  [/^\/runs\/([^/]+)$/, RunPage],
  [/^\/assignments\/([^/]+)$/, AssignmentPage],
  [/^\/data\/(.+)$/, DocumentPage],
];

// The page that a path names: its title, what shows it, and the names within the path.
function find(path) {
  const listed = shownPages().find(([to]) => to === path);
  if (listed) return [listed[1], listed[2], []];
  for (const [pattern, Shown] of session.fleet ? THINGS : []) {
    const match = pattern.exec(path);
    if (!match) continue;
    try {
      const names = match.slice(1).map(decodeURIComponent);
      return [names[0], Shown, names];
    } catch {
      break; // not an address of ours
    }
  }
  return ["Not found", null, []];
}

const isCurrent = (path, to) => (to === "/" ? path === "/" || path.startsWith("/nodes/") : path.startsWith(to));

function Page({ address }) {
  const path = address.pathname;
  const main = useRef(null);
  const [title, Shown, params] = find(path);
  useEffect(() => {
    const isFirst = document.title === "CCM fleet";
    document.title = `${title} · CCM fleet`;
    // what had the focus was on the page before
    if (!isFirst && document.activeElement === document.body) main.current?.focus({ preventScroll: true });
  }, [path]);
  if (!Shown) return html`<main id="main"><h1>Not found</h1><p>There is no such page. <${Link} to="/">The fleet<//></p></main>`;
  return html`<main id="main" ref=${main} tabindex="-1"><${Shown} address=${address} params=${params} Actions=${RunActions} /></main>`;
}

const THEMES = ["auto", "light", "dark"];
function theme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  localStorage.setItem("theme", name);
}

function ThemeButton() {
  const [name, set] = useState(localStorage.getItem("theme") || "auto");
  useEffect(() => theme(name), [name]);
  const next = THEMES[(THEMES.indexOf(name) + 1) % THEMES.length];
  return html`<button type="button" class="plain" onClick=${() => set(next)} title=${`Colors: ${name}`}>
    <span aria-hidden="true">${{ auto: "◐", light: "☀", dark: "☾" }[name]}</span><span class="hidden">Colors: ${name}</span>
  </button>`;
}

function Connection() {
  useLive();
  const [state, text] = !session.fleet
    ? ["quiet", "no fleet"]
    : live.connected === null
    ? ["quiet", "connecting"]
    : !live.connected
    ? ["bad", "reconnecting"]
    : live.broker
      ? ["good", "live"]
      : ["change", "broker unavailable"];
  return html`<span class=${`connection ${state}`} role="status"><span aria-hidden="true">●</span> ${text}</span>`;
}

function Header({ address }) {
  const nav = useRef(null);
  useEffect(() => nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [address.pathname]);
  return html`<header>
    <a class="skip" href="#main">Skip to the content</a>
    <${Link} to="/" class="brand"><img src="/static/icon.svg" alt="" width="22" height="22" /> CCM fleet<//>
    <nav ref=${nav} aria-label="Pages">
      ${shownPages().map(
        ([to, name]) =>
          html`<${Link} to=${to} aria-current=${isCurrent(address.pathname, to) ? "page" : undefined}>${name}<//>`,
      )}
    </nav>
    <span class="spacer"></span>
    <${Connection} />
    <${ThemeButton} />
    <span class="user" title=${[session.right === "act" ? "may act" : "may view", session.identity].filter(Boolean).join(" · ")}>${session.name}</span>
    <button type="button" class="plain" onClick=${signOut}>Sign out</button>
  </header>`;
}

function SignIn({ onDone, problem }) {
  const [token, set] = useState("");
  const [error, setError] = useState(problem);
  const submit = async (event) => {
    event.preventDefault();
    try {
      onDone(await signIn(token));
    } catch (err) {
      setError(err.message);
    }
  };
  const here = encodeURIComponent(location.pathname + location.search);
  return html`<main id="main" class="sign-in">
    <h1>Sign in</h1>
    ${
      session.provider &&
      html`<p><a class="button primary" href=${`/sign-in?next=${here}`}>Sign in with ${session.provider}</a></p>`
    }
    <p>${session.provider ? "Or open" : "Open"} the address that <code>ccmctl dashboard</code> prints, or enter a token.</p>
    ${error && html`<p class="problem" role="alert">${error}</p>`}
    <form onSubmit=${submit}>
      <label for="token">Token</label>
      <input id="token" type="password" autocomplete="off" required value=${token} onInput=${(event) => set(event.target.value)} />
      <button type="submit" class="primary">Sign in</button>
    </form>
  </main>`;
}

const signIn = (token) => ask("/api/session", { method: "POST", body: { token: token.trim() } });

// All that a page knows of the fleet ends with the page.
async function signOut() {
  await ask("/api/session", { method: "DELETE" }).catch(() => {});
  location.replace("/");
}

// The token of the printed address stands behind `#`, which browsers send to no server, and leaves the address at once.
async function open() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return ask("/api/session");
  history.replaceState(null, "", location.pathname + location.search);
  try {
    return await signIn(given);
  } catch (err) {
    return ask("/api/session").catch(({ provider }) => Promise.reject(Object.assign(err, { provider })));
  }
}

function App() {
  const address = useAddress();
  const [state, set] = useState({ phase: "opening", problem: "" });
  const begin = async (said) => {
    Object.assign(session, said);
    if (session.fleet) await start();
    set({ phase: "open", problem: "" });
  };
  useEffect(() => {
    whenSignedOut(() => set({ phase: "out", problem: "The session has ended." }));
    open().then(begin, (err) => {
      session.provider = err.provider || "";
      set({ phase: "out", problem: err.code === "dashboard.signed_out" ? "" : err.message });
    });
  }, []);
  if (state.phase === "opening") return html`<main id="main" aria-busy="true"><h1 class="hidden">CCM fleet</h1></main>`;
  if (state.phase === "out") return html`<${SignIn} onDone=${begin} problem=${state.problem} />`;
  return html`<${Header} address=${address} /><${Page} address=${address} key=${address.pathname} />`;
}

theme(localStorage.getItem("theme") || "auto");
render(html`<${App} />`, document.getElementById("app"));
