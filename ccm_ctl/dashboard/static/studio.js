// The Studio page: a manifest as forms and as YAML, which are two views of one text.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState, ask, go, plural, withQuery, unusable, Problem } from "./lib.js";
import { Editor } from "./editor.js";
import { EditError, get, isMapping, pathAt, placeOf, read, removeIn, renameKey, setIn, swap, textOf } from "./studio_text.js";
import { typesOf } from "./studio_schema.js";
import { Fleet } from "./studio_fleet.js";
import { Fields, FreeMapping, ResourceForm, Words } from "./studio_form.js";

const PAUSE_MS = 200;
const RESOURCES = ["ccm", "resources"];

// The resources of a manifest, in order: each with its type, its name and the path of its properties.
function resourcesOf(value) {
  const found = [];
  const entries = get(value, RESOURCES);
  (Array.isArray(entries) ? entries : []).forEach((entry, place) => {
    for (const [type, body] of isMapping(entry) ? entry.pairs : []) {
      const item = [...RESOURCES, place];
      const at = [...item, type];
      if (isMapping(body)) found.push({ type, item, at, name: textOf(get(body, ["name"])), isNamed: true });
      (Array.isArray(body) ? body : []).forEach((one, number) => {
        if (isMapping(one) && one.pairs.length) found.push({ type, item, at: [...at, number, one.pairs[0][0]], name: one.pairs[0][0], isNamed: false });
      });
    }
  });
  return found;
}

// Bytes that forms must not meet: a mark at the beginning, and line ends of Windows. They are put back when the file is saved.
function opened(text) {
  const mark = text.startsWith("\ufeff") ? "\ufeff" : "";
  const bare = text.slice(mark.length);
  const isWindows = bare.includes("\r\n") && !/[^\r]\n/.test(bare) && !bare.startsWith("\n");
  return { text: isWindows ? bare.replaceAll("\r\n", "\n") : bare, mark, isWindows };
}

const written = (text, file) => file.mark + (file.isWindows ? text.replaceAll("\n", "\r\n") : text);

const EMPTY = { path: "", digest: "", saved: "", mark: "", isWindows: false };

function useLint(text, path) {
  const [said, set] = useState({ findings: [], of: null, error: null });
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => {
      if (!text.trim()) return set({ findings: [], of: text, error: null });
      return ask("/api/studio/lint", { method: "POST", body: { text, path }, signal: stop.signal }).then(
        ({ findings }) => set({ findings, of: text, error: null }),
        (error) => stop.signal.aborted || set((before) => ({ ...before, error })),
      );
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text, path]);
  return said;
}

function withPaths(findings, found) {
  const starts = [0];
  for (let place = found.text.indexOf("\n"); place >= 0; place = found.text.indexOf("\n", place + 1)) starts.push(place + 1);
  return findings.map((one) => ({ ...one, path: one.place.line ? pathAt(found.doc, (starts[one.place.line - 1] ?? 0) + Math.max(0, one.place.column - 1)) : [] }));
}

export default function StudioPage({ address }) {
  const [place, setPlace] = useState(null);
  const [schema, setSchema] = useState(null);
  const [file, setFile] = useState(EMPTY);
  const [text, setText] = useState("");
  const [error, fail] = useState(null);
  const [said, say] = useState("");
  const [reveal, setReveal] = useState(null);
  const [added, setAdded] = useState(null);
  const [outside, count] = useState(0);
  const current = useRef("");
  const type = (next) => {
    current.current = next;
    setText(next);
  };
  const put = (next) => {
    type(next);
    count((before) => before + 1);
  };
  const isChanged = written(text, file) !== file.saved;
  const changedNow = useRef(false);
  changedNow.current = isChanged;

  const open = async (path) => {
    try {
      const got = await ask(`/api/studio/files?path=${encodeURIComponent(path)}`);
      const { text: shown, ...kept } = opened(got.text);
      setFile({ path, digest: got.digest, saved: got.text, ...kept });
      put(shown);
      fail(null);
      say(`${path} is open`);
      go(withQuery({ file: path }), { replace: true });
    } catch (err) {
      fail(err);
    }
  };
  useEffect(() => {
    ask("/api/studio").then((got) => {
      setPlace(got);
      const wanted = address.searchParams.get("file") || (got.only && got.files.includes(got.only) ? got.only : "");
      if (wanted && got.folder) return open(wanted);
      if (got.only) setFile({ ...EMPTY, path: got.only });
      return undefined;
    }, fail);
    ask("/api/studio/schema").then(setSchema, fail);
    const warn = (event) => changedNow.current && event.preventDefault();
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, []);

  const edit = (change) => {
    try {
      const next = change(current.current);
      put(next);
      fail(null);
      return true;
    } catch (err) {
      if (!(err instanceof EditError)) throw err;
      fail(err);
      return false;
    }
  };
  const save = async (path, digest) => {
    const sent = written(current.current, file);
    try {
      const got = await ask("/api/studio/files", { method: "PUT", body: { path, text: sent, digest } });
      setFile({ ...file, path, digest: got.digest, saved: sent });
      setPlace((before) => ({ ...before, files: [...new Set([...before.files, path])].sort() }));
      fail(null);
      say(`${path} is saved`);
      go(withQuery({ file: path }), { replace: true });
    } catch (err) {
      fail(err);
    }
  };

  const found = useMemo(() => read(text), [text]);
  const lint = useLint(text, file.path);
  const findings = lint.of === text ? lint.findings : [];
  const placed = useMemo(() => withPaths(findings, found), [findings, found]);
  const types = useMemo(() => (schema ? typesOf(schema) : []), [schema]);
  const resources = found.problem ? [] : resourcesOf(found.value);
  const form = {
    root: schema,
    value: found.value,
    findings: placed,
    set: (at, value) => edit((now) => setIn(now, at, value)),
    remove: (at, floor) => edit((now) => removeIn(now, at, floor)),
    rename: (resource, name) => edit((now) => (resource.isNamed ? setIn(now, [...resource.at, "name"], name) : renameKey(now, resource.at, name))),
  };
  const add = (type, name) => {
    const entries = get(found.value, RESOURCES);
    const at = [...RESOURCES, Array.isArray(entries) ? entries.length : 0];
    if (edit((now) => setIn(now, at, { [type]: [{ pairs: [[name, null]] }] }))) setAdded([...at, type, 0, name].join("/"));
  };
  const show = (at) => setReveal({ place: placeOf(found.doc, at) });
  const keys = (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key !== "s" || !place?.folder) return;
    event.preventDefault();
    if (file.path) save(file.path, file.digest);
  };

  return html`<div class="studio" onKeyDown=${keys}>
    <div class="title"><h1>Studio</h1><p class="sub">${file.path || "new manifest"}${isChanged ? " · not saved" : ""}</p><span class="spacer"></span>
      <span class="said" role="status">${said}</span></div>
    <${Files} ...${{ place, file, isChanged, open, save, text: written(text, file) }} clear=${() => { setFile(place?.only ? { ...EMPTY, path: place.only } : EMPTY); put(""); say("a new manifest"); }} />
    <${Problem} error=${error || lint.error} />
    <div class="panes">
      <section class="forms" aria-label="Forms">
        ${schema && html`<${Palette} types=${types} onAdd=${add} isLocked=${Boolean(found.problem)} />`}
        ${found.problem && html`<p class="problem" role="alert">The forms require valid YAML: ${found.problem}</p>`}
        ${found.documents > 1 && html`<p class="hint" role="note">This file has ${found.documents} YAML documents. The forms edit the first and leave the others unchanged.</p>`}
        ${schema && !found.problem && html`
          <h2>Resources</h2>
          ${!resources.length && html`<p class="empty">None yet. Add the first one above.</p>`}
          ${resources.map((one) => html`<${ResourceForm} key=${one.at.slice(0, -1).join("/")} resource=${one} type=${types.find((type) => type.name === one.type)} form=${form}
            onReveal=${show} isFirst=${one.item.at(-1) === 0} isLast=${one.item.at(-1) === get(found.value, RESOURCES).length - 1}
            onMove=${(step) => edit((now) => swap(now, RESOURCES, one.item.at(-1) + Math.min(step, 0)))} isOpen=${added === one.at.join("/")} />`)}
          <h2>Manifest</h2>
          ${Object.entries(schema.properties).filter(([name]) => name !== "ccm").map(([name, one]) => html`<${FreeMapping} key=${name} at=${[name]} schema=${one} form=${form} label=${name} />`)}
          <details class="fold"><summary><span class="name">Settings</span></summary>
            <${Fields} at=${["ccm"]} schema=${schema.$defs.CcmSection} form=${form} names=${Object.keys(schema.$defs.CcmSection.properties).filter((name) => name !== "resources")} floor=${1} />
          </details>`}
      </section>
      <section class="text" aria-label="YAML">
        <${Editor} source=${current} outside=${outside} onChange=${type} findings=${findings} reveal=${reveal} label="YAML of the manifest" />
        <pre class="printed">${text}</pre>
        <${Findings} findings=${findings} isEmpty=${!text.trim()} isDone=${lint.of === text} onShow=${(one) => setReveal({ place: lineStart(text, one.place.line) })} />
      </section>
    </div>
    <${Fleet} text=${text} name=${file.path} isBroken=${Boolean(found.problem)} hasErrors=${findings.some((one) => one.level === "error")} onShow=${(at) => show(at)} />
  </div>`;
}

function lineStart(text, line) {
  let place = 0;
  for (let count = 1; count < line; count += 1) place = text.indexOf("\n", place) + 1;
  return place;
}

function Files({ place, file, isChanged, open, save, clear, text }) {
  const [name, setName] = useState("");
  const [wanted, want] = useState("");
  const list = useRef(null);
  const decide = () => {
    want("");
    list.current?.focus(); // the button that had it goes away
  };
  if (!place) return null;
  const download = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/yaml" }));
    link.download = "manifest.yaml";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  if (!place.folder) return html`<div class="files">
    <button type="button" onClick=${download} disabled=${!text}>Download</button>
    <span class="sub"><code>ccmctl studio FOLDER</code> opens and saves files.</span>
  </div>`;
  const submit = (event) => {
    event.preventDefault();
    if (name) save(/\.ya?ml$/.test(name) ? name : `${name}.yaml`, "").then(() => setName(""));
  };
  return html`<div class="files">
    ${!place.only && html`<label for="studio-file">File</label>
      <select id="studio-file" ref=${list} value=${file.path} onChange=${(event) => { const path = event.target.value; event.target.value = file.path; if (path) isChanged && wanted !== path ? want(path) : open(path).then(() => want("")); }}>
        <option value="">${file.path ? "open …" : "new manifest"}</option>
        ${place.files.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
      </select>`}
    ${file.path && html`<button type="button" class="primary" ...${unusable(!isChanged, () => save(file.path, file.digest))}>Save</button>`}
    ${!place.only && html`<form class="add" onSubmit=${submit}>
      <label for="studio-name">Save as</label><input id="studio-name" value=${name} placeholder="site.yaml" autocomplete="off" spellcheck=${false} onInput=${(event) => setName(event.target.value)} />
      <button type="submit" ...${unusable(!name)}>Save as new file</button>
    </form>
    <button type="button" onClick=${() => (isChanged && wanted !== "new" ? want("new") : (clear(), want("")))}>New</button>`}
    ${wanted && isChanged && html`<span class="change" role="alert">The changes are not saved.
      <button type="button" onClick=${() => { const path = wanted; decide(); if (path === "new") clear(); else open(path); }}>Discard them</button>
      <button type="button" onClick=${decide}>Keep editing</button></span>`}
  </div>`;
}

function Palette({ types, onAdd, isLocked }) {
  const [type, choose] = useState("");
  const [name, setName] = useState("");
  const input = useRef(null);
  const chosen = types.find((one) => one.name === type);
  useLayoutEffect(() => void input.current?.focus(), [type]);
  const add = (event) => {
    event.preventDefault();
    const typed = input.current.value; // Enter may come before the next frame has stored what was typed
    if (!typed) return;
    onAdd(type, typed);
    setName("");
    choose("");
  };
  return html`<h2>Add a resource</h2>
    <ul class="palette">${types.map((one) => html`<li key=${one.name}>
      <button type="button" aria-pressed=${type === one.name ? "true" : "false"} disabled=${isLocked} onClick=${() => choose(type === one.name ? "" : one.name)}>${one.name}</button>
      <span class="hint"><${Words} text=${one.description} /></span></li>`)}</ul>
    ${chosen && html`<form class="add" onSubmit=${add}>
      <label for="studio-resource">Name of the ${type}</label>
      <input id="studio-resource" ref=${input} value=${name} autocomplete="off" spellcheck=${false} aria-describedby="studio-resource-hint" onInput=${(event) => setName(event.target.value)} />
      <button type="submit" class="primary">Add ${type}</button>
      <p class="hint" id="studio-resource-hint"><${Words} text=${chosen.title} /></p>
    </form>`}`;
}

function Findings({ findings, isEmpty, isDone, onShow }) {
  const words = isEmpty ? "The manifest is empty." : !isDone ? "Checking …" : findings.length ? plural(findings.length, "finding") : "✓ lint finds nothing.";
  return html`<div class="findings"><p role="status" class=${isDone && !findings.length && !isEmpty ? "good" : "sub"}>${words}</p>
    <ul>${findings.slice(0, 100).map((one, place) => html`<li key=${place}>
      <button type="button" class="plain" onClick=${() => onShow(one)} disabled=${!one.place.line}>${one.place.line ? `${one.place.line}:${one.place.column}` : "–"}</button>
      <span class=${one.level === "error" ? "bad" : "change"}>${one.level}</span> <${Words} text=${one.message} /> <code class="sub">${one.rule}</code></li>`)}</ul>
  </div>`;
}
