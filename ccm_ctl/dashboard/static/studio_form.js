// Forms of values, made from their schema. A field writes into the manifest's text as one types.
import { html, useEffect, useLayoutEffect, useRef, useState, plural, Draft } from "./lib.js";
import { get, isMapping, isNull, textOf } from "./studio_text.js";
import { kindOf, resolve } from "./studio_schema.js";

const isNumber = (text) => /^-?(?:0|[1-9]\d{0,15})$/.test(text);
const idOf = (path) => `f-${path.map((step) => encodeURIComponent(step)).join("/")}`;
const same = (a, b) => a.length === b.length && a.every((step, place) => step === b[place]);
const startsWith = (path, begin) => begin.every((step, place) => path[place] === step);

// Words of the schema with `code` in them.
export function Words({ text }) {
  return (text || "").split("`").map((part, place) => (place % 2 ? html`<code>${part}</code>` : part));
}

function Found({ at, form, deep }) {
  const found = form.findings.filter((one) => (deep ? startsWith(one.path, at) : same(one.path, at)));
  return found.map((one) => html`<span class=${`found ${one.level === "error" ? "bad" : "change"}`}>${one.level}: ${one.message}</span>`);
}

// Any field: its name, its control, what it means, and what lint found in it.
export function Field({ at, schema: given, form, label, isRequired, floor }) {
  const schema = resolve(given, form.root);
  const value = get(form.value, at);
  const kind = isMapping(value) && kindOf(schema) !== "section" ? "mapping" : Array.isArray(value) ? "list" : kindOf(schema);
  const id = idOf(at);
  if (kind === "section") return html`<${Section} ...${{ at, schema, form, label, floor }} />`;
  if (kind === "mapping") return html`<${FreeMapping} ...${{ at, schema, form, label, floor }} />`;
  if (kind === "list") return html`<${List} ...${{ at, schema, form, label, floor }} />`;
  return html`<div class="field">
    <label for=${id}>${label}${isRequired && html` <span class="sub">(required)</span>`}</label>
    <${Control} ...${{ at, schema, form, kind, id, value, floor }} />
    ${schema.description && html`<p class="hint" id=${`${id}-hint`}><${Words} text=${schema.description} /></p>`}
    <div id=${`${id}-found`}><${Found} at=${at} form=${form} deep=${true} /></div>
  </div>`;
}

function Control({ at, schema, form, kind, id, value, floor }) {
  const isBad = form.findings.some((one) => one.level === "error" && startsWith(one.path, at));
  const shared = { id, "aria-describedby": `${id}-found ${id}-hint`, "aria-invalid": isBad ? "true" : undefined };
  const text = textOf(value);
  const set = (next) => {
    if (next === "") return value === undefined ? undefined : form.remove(at, floor);
    const isTyped = (kind === "number" && isNumber(next)) || (kind === "flag" && /^(?:true|false)$/.test(next)) || (kind === "free" && (isNumber(next) || /^(?:true|false)$/.test(next)));
    return form.set(at, isTyped ? { plain: next } : next);
  };
  if (value?.alias) return html`<input ...${shared} value=${text} readonly />`;
  if (kind === "choice" || kind === "flag") {
    const choices = kind === "flag" ? ["true", "false"] : schema.enum.map(String);
    const shown = text && !choices.includes(text) ? [...choices, text] : choices;
    const standard = schema.default === undefined || schema.default === "" || schema.default === null ? "" : ` (${schema.default})`;
    return html`<select ...${shared} value=${text} onChange=${(event) => set(event.target.value)}>
      <option value="">not set${standard}</option>
      ${shown.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}
    </select>`;
  }
  if (kind === "text" || text.includes("\n")) return html`<${Area} shared=${shared} text=${text} set=${set} />`;
  return html`<input ...${shared} value=${text} inputmode=${kind === "number" ? "numeric" : undefined} autocomplete="off" spellcheck=${false} onInput=${(event) => set(event.target.value)} />`;
}

function Area({ shared, text, set }) {
  const rows = Math.min(16, text.split("\n").length);
  return html`<textarea ...${shared} rows=${rows} spellcheck=${false} value=${text} onInput=${(event) => set(event.target.value)}></textarea>`;
}

export function Fields({ at, schema, form, names, floor }) {
  const required = schema.required || [];
  return names.map((name) => html`<${Field} key=${name} at=${[...at, name]} schema=${schema.properties[name]} form=${form} label=${name} isRequired=${required.includes(name)} floor=${floor} />`);
}

function Fold({ label, hint, count, at, form, children }) {
  return html`<details class="fold" open=${count > 0 ? true : undefined}>
    <summary><span class="name">${label}</span>${count > 0 && html` <span class="sub">${count}</span>`}</summary>
    ${hint && html`<p class="hint"><${Words} text=${hint} /></p>`}
    <${Found} at=${at} form=${form} />
    ${children}
  </details>`;
}

function Section({ at, schema, form, label, floor }) {
  const value = get(form.value, at);
  const names = Object.keys(schema.properties);
  return html`<${Fold} label=${label} hint=${schema.description} count=${isMapping(value) ? value.pairs.length : 0} at=${at} form=${form}>
    <${Fields} ...${{ at, schema, form, names, floor }} />
  <//>`;
}

function List({ at, schema, form, label, floor }) {
  const value = get(form.value, at);
  const items = Array.isArray(value) ? value : [];
  const inner = schema.items ? resolve(schema.items, form.root) : {};
  const isFlat = ["line", "text", "number", "choice"].includes(kindOf(inner)) || !schema.items;
  const text = !Array.isArray(value) && !isNull(value) ? textOf(value) : "";
  const add = (event) => {
    event.preventDefault();
    const input = event.target.elements.entry;
    if (isFlat && !input.value) return;
    form.set([...at, items.length], isFlat ? input.value : {});
    if (isFlat) input.value = "";
  };
  return html`<${Fold} label=${label} hint=${schema.description} count=${items.length} at=${at} form=${form}>
    ${text && html`<p class="quiet"><code>${text}</code></p>`}
    ${items.map((item, place) => html`<div class="item" key=${place}>
      ${isFlat && !isMapping(item) && !Array.isArray(item)
        ? html`<label class="hidden" for=${idOf([...at, place])}>${label} ${place + 1}</label>
            <${Control} at=${[...at, place]} schema=${inner} form=${form} kind=${kindOf(inner) === "free" ? "free" : "line"} id=${idOf([...at, place])} value=${item} floor=${floor} />
            <${Found} at=${[...at, place]} form=${form} />`
        : html`<${Field} at=${[...at, place]} schema=${inner} form=${form} label=${`${label} ${place + 1}`} floor=${at.length + 1} />`}
      <button type="button" onClick=${() => form.remove([...at, place], floor)} aria-label=${`Remove ${label} ${place + 1}`}>Remove</button>
    </div>`)}
    ${!text && html`<form class="add" onSubmit=${add}>
      ${isFlat && html`<label class="hidden" for=${`${idOf(at)}-new`}>New entry of ${label}</label><input id=${`${idOf(at)}-new`} name="entry" autocomplete="off" spellcheck=${false} />`}
      <button type="submit">Add to ${label}</button>
    </form>`}
  <//>`;
}

const NEW = { text: "", list: [], mapping: {} };

export function FreeMapping({ at, schema, form, label, floor }) {
  const value = get(form.value, at);
  const pairs = isMapping(value) ? value.pairs : [];
  const inner = typeof schema.additionalProperties === "object" ? schema.additionalProperties : {};
  const [problem, say] = useState("");
  const [chosen, choose] = useState("text");
  const isFree = inner.type === undefined && !inner.anyOf && !inner.$ref;
  const kind = isFree ? chosen : "text";
  const add = (event) => {
    event.preventDefault();
    const { key, value: first } = event.target.elements;
    if (!key.value) return;
    if (pairs.some(([one]) => one === key.value)) {
      say(`${key.value} already exists`);
      return;
    }
    const text = first?.value ?? "";
    form.set([...at, key.value], kind !== "text" ? NEW[kind] : inner.type !== "string" && (isNumber(text) || /^(?:true|false)$/.test(text)) ? { plain: text } : text);
    say("");
    event.target.reset();
    key.focus();
  };
  const id = idOf(at);
  return html`<${Fold} label=${label} hint=${schema.description} count=${pairs.length} at=${at} form=${form}>
    ${pairs.map(([key]) => html`<div class="item" key=${key}>
      <${Field} at=${[...at, key]} schema=${inner} form=${form} label=${key} floor=${at.length + 1} />
      <button type="button" onClick=${() => form.remove([...at, key], floor ?? at.length - 1)} aria-label=${`Remove ${key}`}>Remove</button>
    </div>`)}
    <form class="add" onSubmit=${add}>
      <span class="pair"><label for=${`${id}-key`}>Name of a new key of ${label}</label><input id=${`${id}-key`} name="key" autocomplete="off" spellcheck=${false} /></span>
      ${isFree && html`<span class="pair"><label for=${`${id}-kind`}>Kind of the new key of ${label}</label><select id=${`${id}-kind`} value=${kind} onChange=${(event) => choose(event.target.value)}>
        <option value="text">value</option><option value="list">list</option><option value="mapping">mapping</option>
      </select></span>`}
      ${kind === "text" && html`<span class="pair"><label for=${`${id}-value`}>Value of the new key of ${label}</label><input id=${`${id}-value`} name="value" autocomplete="off" spellcheck=${false} /></span>`}
      <button type="submit">Add to ${label}</button>
    </form>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
  <//>`;
}

// A resource: its name, its own properties, and below them those that every type has.
export function ResourceForm({ resource, type, form, onReveal, onMove, isFirst, isLast, isOpen }) {
  const { at, name, isNamed } = resource;
  const box = useRef(null);
  useLayoutEffect(() => {
    if (isOpen && box.current) {
      box.current.open = true;
      box.current.querySelector("input")?.focus();
    }
  }, [isOpen]);
  const inside = form.findings.filter((one) => startsWith(one.path, resource.item));
  const errors = inside.filter((one) => one.level === "error").length;
  const warnings = inside.length - errors;
  const own = type ? Object.keys(type.schema.properties).filter((key) => !type.common.has(key)) : [];
  const floor = at.length;
  const id = idOf(at);
  return html`<details class="resource" ref=${box}>
    <summary><code>${resource.type}#${name}</code>
      ${errors > 0 && html`<span class="bad"> ✗ ${plural(errors, "error")}</span>`}
      ${warnings > 0 && html`<span class="change"> ! ${plural(warnings, "warning")}</span>`}
    </summary>
    <div class="tools">
      <button type="button" onClick=${() => onReveal(at)}>Show in the YAML</button>
      <button type="button" disabled=${isFirst} onClick=${() => onMove(-1)}>Earlier</button>
      <button type="button" disabled=${isLast} onClick=${() => onMove(1)}>Later</button>
      <button type="button" onClick=${() => form.remove(isNamed ? resource.item : at, 2)}>Remove</button>
    </div>
    ${inside.filter((one) => one.path.length <= at.length || !own.includes(one.path[at.length]) && !type?.common.has(one.path[at.length])).map((one) => html`<span class=${`found ${one.level === "error" ? "bad" : "change"}`}>${one.level}: ${one.message}</span>`)}
    <div class="field">
      <label for=${`${id}-name`}>name <span class="sub">(required)</span></label>
      <${Draft} id=${`${id}-name`} value=${name} autocomplete="off" spellcheck=${false} onDone=${(value) => value && form.rename(resource, value)} aria-describedby=${`${id}-name-hint`} />
      <p class="hint" id=${`${id}-name-hint`}><${Words} text=${type?.title || "The resource's name."} /></p>
    </div>
    ${type && html`<${Fields} at=${at} schema=${type.schema} form=${form} names=${own} floor=${floor} />
      <details class="fold"><summary><span class="name">Properties of all types</span></summary>
        <${Fields} at=${at} schema=${type.schema} form=${form} names=${[...type.common]} floor=${floor} />
      </details>`}
  </details>`;
}
