// The YAML editor: CodeMirror in a shadow root, where its styles are constructed sheets. The content policy forbids <style> elements.
import { html, useEffect, useLayoutEffect, useRef } from "./lib.js";
import * as cm from "./vendor/codemirror.js";

const colors = cm.HighlightStyle.define([
  { tag: [cm.tags.propertyName, cm.tags.definition(cm.tags.propertyName)], color: "var(--link)" },
  { tag: cm.tags.comment, color: "var(--dim)" },
  { tag: [cm.tags.string, cm.tags.special(cm.tags.string)], color: "var(--good)" },
  { tag: [cm.tags.number, cm.tags.bool, cm.tags.keyword, cm.tags.meta], color: "var(--change)" },
]);

const theme = cm.EditorView.theme({
  "&": { backgroundColor: "var(--paper)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "8px", fontSize: ".9rem", height: "100%", overflow: "hidden" },
  "&.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: 'ui-monospace, "SF Mono", Consolas, "DejaVu Sans Mono", monospace', lineHeight: "1.5", overflow: "auto" },
  ".cm-gutters": { backgroundColor: "var(--paper)", color: "var(--dim)", border: "0" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { background: "var(--brush) !important" },
  ".cm-tooltip, .cm-panels": { backgroundColor: "var(--paper)", color: "var(--text)", border: "1px solid var(--line)" },
  // the content policy refuses the data: images of the originals
  ".cm-lintRange": { backgroundImage: "none !important" },
  ".cm-lintRange-error": { textDecoration: "underline wavy var(--bad)" },
  ".cm-lintRange-warning": { textDecoration: "underline wavy var(--change)" },
  ".cm-lint-marker": { content: "none !important" },
  ".cm-lint-marker-error::before": { content: '"✗"', color: "var(--bad)" },
  ".cm-lint-marker-warning::before": { content: '"!"', color: "var(--change)" },
  ".cm-diagnosticText": { overflowWrap: "anywhere" },
});

// One change that makes the one text of the other, so that the cursor and the history stay.
function difference(before, after) {
  let from = 0;
  const most = Math.min(before.length, after.length);
  while (from < most && before[from] === after[from]) from += 1;
  let left = 0;
  while (left < most - from && before[before.length - 1 - left] === after[after.length - 1 - left]) left += 1;
  return { from, to: before.length - left, insert: after.slice(from, after.length - left) };
}

// `source.current` is the text; `outside` counts its changes that were not typed here. Each keystroke is told at once and not taken
// back from the page, which shows it later than the next one may come.
export function Editor({ source, outside, onChange, findings, reveal, label }) {
  const host = useRef(null);
  const view = useRef(null);
  const told = useRef(onChange);
  told.current = onChange;
  useLayoutEffect(() => {
    const root = host.current.shadowRoot || host.current.attachShadow({ mode: "open" });
    const listener = cm.EditorView.updateListener.of((update) => {
      if (update.docChanged && !update.transactions.some((one) => one.annotation(cm.Transaction.remote))) told.current(update.state.sliceDoc());
    });
    view.current = new cm.EditorView({
      parent: root,
      root,
      state: cm.EditorState.create({
        doc: source.current,
        extensions: [
          cm.EditorState.lineSeparator.of("\n"),
          cm.lineNumbers(), cm.history(), cm.drawSelection(), cm.highlightActiveLine(), cm.yaml(), cm.indentUnit.of("  "),
          cm.syntaxHighlighting(colors), cm.lintGutter(), cm.search({ top: true }), cm.highlightSelectionMatches(),
          cm.keymap.of([...cm.searchKeymap, ...cm.historyKeymap, ...cm.lintKeymap, ...cm.defaultKeymap]),
          cm.EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
          theme, listener,
        ],
      }),
    });
    return () => view.current.destroy();
  }, []);
  // before the next key: it would be typed into the text of the file before, and that text saved as this one's
  useLayoutEffect(() => {
    const { state } = view.current;
    const now = state.sliceDoc();
    if (now === source.current) return;
    const changes = difference(now, source.current);
    view.current.dispatch({ changes: { ...changes, insert: state.toText(changes.insert) }, annotations: cm.Transaction.remote.of(true) });
  }, [outside]);
  useEffect(() => {
    const { doc } = view.current.state;
    const marked = findings.filter((one) => one.place.line > 0 && one.place.line <= doc.lines).map((one) => {
      const line = doc.line(one.place.line);
      const from = Math.min(line.from + Math.max(0, one.place.column - 1), line.to);
      const word = /^[^\s:,{}[\]]+/.exec(line.text.slice(from - line.from));
      return { from, to: Math.min(line.to, from + (word ? word[0].length : 1)), severity: one.level, message: `${one.message} [${one.rule}]` };
    });
    view.current.dispatch(cm.setDiagnostics(view.current.state, marked));
  }, [findings]);
  useEffect(() => {
    if (reveal) view.current.dispatch({ effects: cm.EditorView.scrollIntoView(Math.min(reveal.place, view.current.state.doc.length), { y: "center" }), selection: { anchor: Math.min(reveal.place, view.current.state.doc.length) } });
  }, [reveal]);
  return html`<div class="editor" ref=${host}></div>`;
}
