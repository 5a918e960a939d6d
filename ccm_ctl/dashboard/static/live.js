// The one connection of this page to the stream. It resumes at the last event that it saw, and says when all must be loaded again.
import { useLayoutEffect, useState } from "./vendor/hooks.js";
import { ask } from "./lib.js";

const KEPT = 500;
const SILENT_MS = 25000;
const HIDDEN_MS = 60000;
const PAINT_MS = 250;

export const live = {
  last: 0,
  version: 0,
  broker: true,
  read: null,
  connected: null,
  events: [],
  timeline: new Map(),
  meanings: ["good", "change", "bad", ""],
  bucket: 30,
  seconds: 3600,
  loads: 0,
  total: 0,
};

const listeners = new Set();
let source = null;
let heardAt = 0;
let pending = [];
let painting = 0;
let hiddenTimer = 0;
let retry = 0;
let isStarted = false;

export function useLive() {
  const [, set] = useState(0);
  // At once after rendering: useEffect waits for the next frame, and a change in between would never be shown.
  useLayoutEffect(() => {
    const changed = () => set((count) => count + 1);
    listeners.add(changed);
    return () => listeners.delete(changed);
  }, []);
  return live;
}

const tell = () => listeners.forEach((one) => one());

export async function load() {
  const said = await ask("/api/events");
  live.last = Math.max(said.last, 0);
  live.events = said.events;
  live.bucket = said.bucket_s;
  live.seconds = said.timeline_s;
  live.meanings = said.meanings;
  live.timeline = new Map(said.timeline.map(([begin, ...counts]) => [begin, counts]));
  pending = [];
  live.loads += 1;
  tell();
}

function take(frame) {
  if (frame.id <= live.last) return;
  live.last = frame.id;
  live.total += 1;
  pending.push(frame);
  if (!painting) painting = setTimeout(paint, PAINT_MS);
}

function paint() {
  painting = 0;
  for (const frame of pending) {
    const begin = Math.floor(Date.parse(frame.time) / 1000 / live.bucket) * live.bucket;
    const counts = live.timeline.get(begin) || live.meanings.map(() => 0);
    counts[Math.max(0, live.meanings.indexOf(frame.meaning || ""))] += 1;
    live.timeline.set(begin, counts);
  }
  live.events = [...pending.reverse(), ...live.events].slice(0, KEPT);
  pending = [];
  tell();
}

function connect() {
  clearTimeout(retry);
  source?.close();
  heardAt = Date.now();
  source = new EventSource(`/api/stream?after=${live.last}`);
  source.onopen = () => state({ connected: true });
  source.onmessage = (message) => {
    heardAt = Date.now();
    take(JSON.parse(message.data));
  };
  source.addEventListener("ping", () => (heardAt = Date.now()));
  source.addEventListener("state", (message) => {
    heardAt = Date.now();
    state({ ...JSON.parse(message.data), connected: true });
  });
  source.addEventListener("reload", async (message) => {
    heardAt = Date.now();
    live.last = JSON.parse(message.data).last;
    live.version = -1;
    await load().catch(() => again());
  });
  source.onerror = () => {
    state({ connected: false });
    if (source.readyState === EventSource.CLOSED) again();
  };
}

// The dashboard may have been restarted: all of it is loaded again, and the session is checked on the way.
function again() {
  source?.close();
  clearTimeout(retry);
  retry = setTimeout(() => load().then(connect, again), 1000);
}

function state(changes) {
  const parts = () => JSON.stringify([live.connected, live.broker, live.version, live.read]);
  const before = parts();
  Object.assign(live, changes);
  if (parts() !== before) tell();
}

// Browsers allow six connections to a host, so a tab that is hidden gives its own back.
function visibility() {
  clearTimeout(hiddenTimer);
  if (document.hidden) hiddenTimer = setTimeout(() => source?.close(), HIDDEN_MS);
  else if (source?.readyState === EventSource.CLOSED || Date.now() - heardAt > SILENT_MS) connect();
}

export async function start() {
  await load();
  connect();
  if (isStarted) return;
  isStarted = true;
  document.addEventListener("visibilitychange", visibility);
  addEventListener("online", connect);
  setInterval(() => {
    if (!document.hidden && Date.now() - heardAt > SILENT_MS) connect();
  }, 1000);
}
