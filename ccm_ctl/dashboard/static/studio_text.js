// Edits of a manifest's text. Each changes the characters that it must and no others, so comments, order and style stay. An edit whose
// result would say anything else than what was asked is refused. Pure functions on text.
//
// Values: text is a string; another plain scalar is {plain: "80"}; a mapping is a list of pairs in {pairs: [[key, value], …]}; a list
// is an array; {alias: name} is a reference to an anchor.
import { isAlias, isMap, isScalar, isSeq, parseDocument } from "./vendor/yaml.js";

const OPTIONS = { schema: "failsafe", merge: false, keepSourceTokens: false, logLevel: "silent", uniqueKeys: true };
const NOT_TEXT = /^(?:|~|null|true|false|yes|no|on|off|y|n)$/i;
const PLAIN_TEXT = /^[A-Za-z/_][\w/.@+%=~^;()!-]*(?: [\w/.@+%=~^;()!-]+)*$/;
const DEEPEST = 60;

export class EditError extends Error {}

// ---- reading -----------------------------------------------------------------------------------------------------------------

// The first document of a text, and how many there are. Edits change the first one only.
export function read(text) {
  const doc = parseDocument(text, OPTIONS);
  const documents = 1 + (doc.contents ? text.slice(doc.range[1]).match(/^---(?=\s|$)/gm)?.length ?? 0 : 0);
  const problem = doc.errors.length ? doc.errors[0].message.split("\n")[0] : "";
  let value = null;
  try {
    if (!problem) value = valueOf(doc.contents);
  } catch (err) {
    return { text, doc, documents, value: null, problem: err.message };
  }
  return { text, doc, documents, value, problem };
}

const isText = (source) => !NOT_TEXT.test(source) && !/^[-+.\d]/.test(source);

function valueOf(node, depth = 0) {
  if (depth > DEEPEST) throw new EditError("the manifest is nested too deeply for forms");
  if (!node) return { plain: "" };
  if (isAlias(node)) return { alias: node.source };
  const inner = (one) => valueOf(one, depth + 1);
  if (isSeq(node)) return node.items.map(inner);
  if (isMap(node)) return { pairs: node.items.map((pair) => [keyOf(pair), inner(pair.value)]) };
  const source = node.source ?? String(node.value ?? "");
  return node.type === "PLAIN" && !isText(source) ? { plain: source } : String(node.value ?? "");
}

const keyOf = (pair) => (isScalar(pair.key) ? String(pair.key.value) : isAlias(pair.key) ? `*${pair.key.source}` : pair.key ? "?" : "");

export const isMapping = (value) => Boolean(value?.pairs);
export const isNull = (value) => value === undefined || value === null || (typeof value.plain === "string" && /^(?:|~|null)$/i.test(value.plain));
export const textOf = (value) => (typeof value === "string" ? value : typeof value?.plain === "string" ? (isNull(value) ? "" : value.plain) : value?.alias ? `*${value.alias}` : "");

export function get(value, path) {
  for (const step of path) {
    if (Array.isArray(value)) value = value[step];
    else if (isMapping(value)) value = value.pairs.find(([key]) => key === step)?.[1];
    else return undefined;
  }
  return value;
}

// The path of the innermost value at a place of the text.
export function pathAt(doc, offset) {
  const path = [];
  let node = doc.contents;
  for (;;) {
    let next = null;
    if (isMap(node)) {
      for (const pair of node.items) {
        const begin = pair.key?.range?.[0];
        const end = pair.value?.range?.[1] ?? pair.key?.range?.[1];
        if (begin !== undefined && offset >= begin && offset <= end) next = [keyOf(pair), pair.value];
      }
    } else if (isSeq(node)) {
      node.items.forEach((item, place) => {
        if (item?.range && offset >= item.range[0] && offset <= item.range[1]) next = [place, item];
      });
    }
    if (!next) return path;
    path.push(next[0]);
    node = next[1];
  }
}

// The place of a value, or of the key that has it.
export function placeOf(doc, path) {
  const [pair, node] = findPair(doc, path);
  return pair?.key?.range?.[0] ?? node?.range?.[0] ?? 0;
}

function findPair(doc, path) {
  let node = doc.contents;
  let pair = null;
  for (const step of path) {
    pair = null;
    if (isMap(node)) {
      pair = node.items.find((one) => keyOf(one) === step) || null;
      if (!pair) return [null, undefined];
      node = pair.value;
    } else if (isSeq(node) && step < node.items.length) node = node.items[step];
    else return [null, undefined];
  }
  return [pair, node];
}

// ---- writing values ----------------------------------------------------------------------------------------------------------

export function scalarText(text) {
  return PLAIN_TEXT.test(text) && isText(text) ? text : JSON.stringify(text).replace(/[\u007f-\u009f\u2028\u2029\ufeff]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const plain = (value) => (typeof value === "string" ? scalarText(value) : value.plain);
const isLeaf = (value) => typeof value === "string" || typeof value?.plain === "string";

// A value as it is written: null is nothing, an object is a mapping.
export function normal(value) {
  if (value === null || value === undefined) return { plain: "" };
  if (typeof value === "number" || typeof value === "boolean") return { plain: String(value) };
  if (typeof value === "string" || typeof value.plain === "string") return value;
  if (Array.isArray(value)) return value.map(normal);
  return { pairs: (value.pairs || Object.entries(value)).map(([key, one]) => [key, normal(one)]) };
}

function flow(value) {
  if (isLeaf(value)) return plain(value);
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  return `{${value.pairs.map(flowPair).join(", ")}}`;
}

// Without a value the space stays: `{x:}` is no mapping to the agents' parser.
const flowPair = ([key, value]) => `${scalarText(key)}: ${flow(value)}`;

const isBlockText = (value) => typeof value === "string" && /[^\n]\n/.test(value) && !/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029\ufeff]/.test(value);

function blockText(text, indent) {
  const ends = /\n*$/.exec(text)[0].length;
  const lines = text.slice(0, text.length - ends).split("\n");
  const blanks = Array(Math.max(0, ends - 1)).fill("");
  const header = `|${/^[ \n]/.test(text) ? 2 : ""}${ends === 0 ? "-" : ends > 1 ? "+" : ""}`;
  return [header, ...[...lines, ...blanks].map((line) => (line ? " ".repeat(indent) + line : ""))].join("\n");
}

// What follows a key or a dash: on its line, or below it.
function after(value, indent) {
  if (isBlockText(value)) return ` ${blockText(value, indent + 2)}`;
  if (isLeaf(value)) return plain(value) ? ` ${plain(value)}` : "";
  if (!(value.pairs || value).length) return ` ${flow(value)}`;
  return `\n${block(value, indent + 2)}`;
}

function block(value, indent) {
  const space = " ".repeat(indent);
  if (Array.isArray(value)) {
    return value.map((one) => (isLeaf(one) || !(one.pairs || one).length ? `${space}-${after(one, indent)}` : `${space}- ${block(one, indent + 2).trimStart()}`)).join("\n");
  }
  return value.pairs.map(([key, one]) => `${space}${scalarText(key)}:${after(one, indent)}`).join("\n");
}

// ---- places in the text --------------------------------------------------------------------------------------------------------

const lineStart = (text, place) => text.lastIndexOf("\n", place - 1) + 1;
const lineEnd = (text, place) => (text.indexOf("\n", place) + 1 || text.length + 1) - 1;
const column = (text, place) => place - lineStart(text, place);

// Where the last thing within a node ends; a collection's own range takes comments along that follow it.
function leafEnd(node, fallback) {
  if (!node) return fallback;
  if ((isMap(node) || isSeq(node)) && !node.flow && node.items.length) {
    const last = node.items.at(-1);
    return isMap(node) ? leafEnd(last.value, last.key?.range?.[1] ?? fallback) : leafEnd(last, node.range[1]);
  }
  return node.range?.[1] ?? fallback;
}

// The place behind the line in which something ends.
function nextLine(text, end) {
  if (end > 0 && text[end - 1] === "\n") return end;
  return Math.min(lineEnd(text, end) + 1, text.length);
}

const splice = (text, begin, end, put) => text.slice(0, begin) + put + text.slice(end);

function putLines(text, place, lines) {
  const before = place > 0 && text[place - 1] !== "\n" ? "\n" : "";
  return splice(text, place, place, `${before}${lines}${place < text.length || text.endsWith("\n") || !text ? "\n" : ""}`);
}

// ---- edits ---------------------------------------------------------------------------------------------------------------------

// Give the value at a path; what is missing on the way is made.
export function setIn(text, path, given) {
  const value = normal(given);
  const { doc, value: before } = must(text);
  let known = path.length;
  while (known > 0 && get(before, path.slice(0, known)) === undefined) known -= 1;
  const [pair, node] = findPair(doc, path.slice(0, known));
  const rest = path.slice(known);
  if (known === 0 && !doc.contents && !rest.length) throw new EditError("nothing to set");
  const made = rest.slice(1).reduceRight((inner, step) => (typeof step === "number" ? [inner] : { pairs: [[step, inner]] }), value);
  let after;
  if (!rest.length) after = replace(text, doc, path, pair, node, value);
  else if (isMap(node)) after = addPair(text, node, rest[0], made);
  else if (isSeq(node)) after = addItem(text, node, made);
  else {
    if (!isNull(get(before, path.slice(0, known)))) throw new EditError("the value is text here; edit it in the YAML");
    after = replace(text, doc, path.slice(0, known), pair, node, typeof rest[0] === "number" ? [made] : { pairs: [[rest[0], made]] });
  }
  return checked(after, changed(before, path, value));
}

// Take out the value at a path, and containers that become empty down to `floor` steps of it.
export function removeIn(text, path, floor = 0) {
  const { doc, value: before } = must(text);
  let upto = path.length;
  while (upto - 1 > floor && sizeOf(get(before, path.slice(0, upto - 1))) === 1) upto -= 1;
  const at = path.slice(0, upto);
  const [, parent] = findPair(doc, at.slice(0, -1));
  const [pair, node] = findPair(doc, at);
  if (node === undefined) throw new EditError("the value does not exist");
  const place = isMap(parent) ? parent.items.indexOf(pair) : at.at(-1);
  const isOnly = parent.items.length === 1;
  const after = parent.flow ? removeFlow(text, parent, place) : removeBlock(text, parent, place, pair, node);
  const want = without(before, at);
  return checked(after, isOnly && !parent.flow ? changed(before, at.slice(0, -1), { plain: "" }) : want);
}

export function renameKey(text, path, name) {
  const { doc, value: before } = must(text);
  const [pair] = findPair(doc, path);
  if (!isScalar(pair?.key)) throw new EditError("the name cannot be changed here; edit the YAML");
  if (get(before, [...path.slice(0, -1), name]) !== undefined) throw new EditError(`${name} already exists`);
  const [begin, end] = pair.key.range;
  const wanted = changed(before, path.slice(0, -1), { pairs: get(before, path.slice(0, -1)).pairs.map(([key, one]) => [key === path.at(-1) ? name : key, one]) });
  return checked(splice(text, begin, end, scalarText(name)), wanted);
}

// Swap an item of a list with the one after it; comments above an item go with it.
export function swap(text, path, place) {
  const { doc, value: before } = must(text);
  const [, list] = findPair(doc, path);
  if (!isSeq(list) || list.flow || !list.items[place + 1]) throw new EditError("the order cannot be changed here; edit the YAML");
  const first = dashOf(text, list.items[0]);
  const ends = list.items.map((item) => nextLine(text, leafEnd(item, item.range[1])));
  const begins = [lineStart(text, first), ...ends];
  const [a, b] = [text.slice(begins[place], ends[place]), text.slice(begins[place + 1], ends[place + 1])];
  const joined = b.endsWith("\n") ? b + a : `${b}\n${a.replace(/\n$/, "")}`;
  const order = [...get(before, path)];
  [order[place], order[place + 1]] = [order[place + 1], order[place]];
  return checked(splice(text, begins[place], ends[place + 1], joined), changed(before, path, order));
}

function must(text) {
  const found = read(text);
  if (found.problem) throw new EditError(`the YAML has an error: ${found.problem}`);
  return found;
}

function checked(text, wanted) {
  const found = read(text);
  if (found.problem || JSON.stringify(found.value) !== JSON.stringify(wanted)) throw new EditError("this form cannot change only this value; edit the YAML");
  return text;
}

function changed(value, path, to) {
  if (!path.length) return to;
  const [step, ...rest] = path;
  if (Array.isArray(value) || (typeof step === "number" && isNull(value))) {
    const list = Array.isArray(value) ? [...value] : [];
    list[step] = changed(list[step], rest, to);
    return list;
  }
  const pairs = isMapping(value) ? value.pairs.map((one) => [...one]) : [];
  const own = pairs.find(([key]) => key === step);
  if (own) own[1] = changed(own[1], rest, to);
  else pairs.push([step, changed(undefined, rest, to)]);
  return { pairs };
}

function without(value, path) {
  const [step, ...rest] = path;
  if (Array.isArray(value)) return rest.length ? value.map((one, place) => (place === step ? without(one, rest) : one)) : value.filter((_, place) => place !== step);
  return { pairs: value.pairs.filter(([key]) => rest.length || key !== step).map(([key, one]) => [key, key === step ? without(one, rest) : one]) };
}

const sizeOf = (value) => (Array.isArray(value) ? value.length : isMapping(value) ? value.pairs.length : 0);

function inFlow(doc, path) {
  for (let known = 0; known < path.length; known += 1) if (findPair(doc, path.slice(0, known))[1]?.flow) return true;
  return false;
}

// The column of the key or dash that has the value.
function ownerColumn(text, doc, path, pair) {
  if (pair) return column(text, pair.key.range[0]);
  const [, list] = findPair(doc, path.slice(0, -1));
  return isSeq(list) ? column(text, dashOf(text, list.items[0] || list)) : -2;
}

function replace(text, doc, path, pair, node, value) {
  if (node && !isScalar(node)) throw new EditError("a list or mapping is there; edit it in the YAML");
  const isFlow = inFlow(doc, path);
  if (!path.length) return doc.contents && node.range[0] !== node.range[1] ? fail() : putLines(text, text.length, block(value, 0));
  const [begin, end] = node?.range ?? [pair.key.range[1] + 1, pair.key.range[1] + 1];
  const isBlock = /^BLOCK/.test(node?.type || "");
  const tail = isBlock && text[end - 1] === "\n" ? "\n" : "";
  const indent = isFlow ? 0 : ownerColumn(text, doc, path, pair);
  if (!isFlow && (isBlockText(value) || !isLeaf(value))) {
    if (isLeaf(value)) {
      const head = isBlock ? /^[ \t]+#.*/.exec(text.slice(begin).replace(/^[|>][-+\d]*/, "").split("\n")[0])?.[0] || "" : "";
      const lines = blockText(value, bodyIndent(text, begin, isBlock) || indent + 2).split("\n");
      return splice(text, begin, end, spaced(text, begin, [lines[0] + head, ...lines.slice(1)].join("\n")) + (isBlock ? tail : ""));
    }
    const bare = splice(text, begin, end, "");
    return putLines(bare, nextLine(bare, begin), block(value, indent + 2));
  }
  const written = isLeaf(value) ? quoted(value, node?.type) : flow(value);
  return splice(text, begin, end, spaced(text, begin, written) + tail);
}

const fail = () => {
  throw new EditError("a manifest is a mapping; edit the YAML");
};
const spaced = (text, begin, put) => (put && begin > 0 && /[:-]/.test(text[begin - 1]) ? ` ${put}` : put);

function bodyIndent(text, begin, isBlock) {
  if (!isBlock) return 0;
  const line = text.slice(lineEnd(text, begin) + 1).split("\n").find((one) => one.trim());
  return line ? /^ */.exec(line)[0].length : 0;
}

function quoted(value, style) {
  if (typeof value !== "string") return value.plain;
  if (style === "QUOTE_DOUBLE") return scalarText(value).startsWith('"') ? scalarText(value) : `"${value}"`;
  if (style === "QUOTE_SINGLE" && !/[^\u0020-\u007e]/.test(value)) return `'${value.replaceAll("'", "''")}'`;
  return scalarText(value);
}

function addPair(text, map, key, value) {
  if (map.flow) return addFlow(text, map, flowPair([key, value]), "}");
  const last = map.items.at(-1);
  const place = nextLine(text, leafEnd(last.value, last.key.range[1]));
  return putLines(text, place, block({ pairs: [[key, value]] }, column(text, map.items[0].key.range[0])));
}

function addItem(text, list, value) {
  if (list.flow) return addFlow(text, list, flow(value), "]");
  const place = nextLine(text, leafEnd(list, list.range[1]));
  return putLines(text, place, block([value], column(text, dashOf(text, list.items[0]))));
}

function addFlow(text, node, put, closes) {
  if (!node.items.length) return splice(text, node.range[0] + 1, node.range[1] - 1, put);
  const last = node.items.at(-1);
  const end = isMap(node) ? last.value?.range?.[1] ?? last.key.range[1] : last.range[1];
  const hasComma = /^\s*,/.exec(text.slice(end));
  return hasComma ? splice(text, end + hasComma[0].length, end + hasComma[0].length, ` ${put}`) : splice(text, end, end, `, ${put}`);
}

// The dash of an item of a block list.
function dashOf(text, item) {
  const begin = item.range[0];
  const dash = text.lastIndexOf("-", begin - 1);
  if (dash < 0 || /[^\s-]/.test(text.slice(dash + 1, begin).replace(/#.*|[&!]\S*/g, ""))) throw new EditError("the list is written in a way that forms cannot change");
  return dash;
}

function removeFlow(text, node, place) {
  const begin = (one) => one.key?.range?.[0] ?? one.range[0];
  const end = (one) => one.value?.range?.[1] ?? one.key?.range?.[1] ?? one.range[1];
  const item = node.items[place];
  if (place > 0) return splice(text, end(node.items[place - 1]), end(item), "");
  const next = node.items[1];
  return next ? splice(text, begin(item), begin(next), "") : splice(text, node.range[0] + 1, node.range[1] - 1, "");
}

function removeBlock(text, parent, place, pair, node) {
  const begin = pair ? pair.key.range[0] : dashOf(text, node);
  const until = nextLine(text, leafEnd(node, pair?.key.range[1] ?? node.range[1]));
  const start = lineStart(text, begin);
  if (!text.slice(start, begin).trim()) return splice(text, start, until, "");
  // it shares its line with the dash of a list
  const next = parent.items[place + 1] ? until + /^\s*/.exec(text.slice(until))[0].length : -1;
  return next < 0 ? splice(text, begin, until, text.endsWith("\n") ? "\n" : "") : splice(text, begin, next, "");
}
