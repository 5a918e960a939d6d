// The time line: events of the last hour in half minutes. A part of it is chosen by dragging, or with the two sliders.
import { html, useRef, useState, go, withQuery, useTick, clock } from "./lib.js";
import { useLive } from "./live.js";

const HEIGHT = 56;
const NAMES = { good: "as desired", change: "changed", bad: "failed", "": "other" };

export function Timeline({ brush }) {
  const { timeline, bucket, seconds, meanings } = useLive();
  useTick(bucket * 1000);
  const svg = useRef(null);
  const [drag, setDrag] = useState(null);
  const end = (Math.floor(Date.now() / 1000 / bucket) + 1) * bucket;
  const begin = end - seconds;
  const places = seconds / bucket;
  const found = [...timeline].filter(([at]) => at >= begin && at < end);
  const most = Math.max(1, ...found.map(([, counts]) => counts.reduce((one, other) => one + other, 0)));
  const totals = meanings.map((_, place) => found.reduce((sum, [, counts]) => sum + counts[place], 0));
  const timeAt = (event) => {
    const box = svg.current.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    return begin + Math.round(share * places) * bucket;
  };
  const choose = (from, to) => go(withQuery(from === null ? { from: "", to: "" } : { from: String(from), to: String(to) }), { replace: true });
  const down = (event) => {
    svg.current.setPointerCapture(event.pointerId);
    setDrag([timeAt(event), timeAt(event)]);
  };
  const move = (event) => drag && setDrag([drag[0], timeAt(event)]);
  const up = () => {
    if (!drag) return;
    const [from, to] = [Math.min(...drag), Math.max(...drag)];
    setDrag(null);
    if (from === to) choose(null);
    else choose(from, to);
  };
  const shown = drag ? [Math.min(...drag), Math.max(...drag)] : brush && [Math.max(begin, brush[0]), Math.min(end, brush[1])];
  const x = (at) => ((at - begin) / bucket) * 10;
  const minutes = (at) => Math.round((at - begin) / 60);
  const all = seconds / 60;
  const slide = (which) => (event) => {
    const now = shown || [begin, end];
    const next = [...now];
    next[which] = begin + Number(event.target.value) * 60;
    if (next[0] < next[1]) choose(next[0], next[1]);
  };
  return html`<div class="timeline">
    <svg ref=${svg} viewBox=${`0 0 ${places * 10} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${meanings.map((one, place) => `${totals[place]} ${NAMES[one]}`).join(", ")} onPointerDown=${down} onPointerMove=${move} onPointerUp=${up}>
      <rect class="ground" width=${places * 10} height=${HEIGHT} />
      ${shown && html`<rect class="brush" x=${x(shown[0])} width=${Math.max(0, x(shown[1]) - x(shown[0]))} height=${HEIGHT} />`}
      ${found.map(([at, counts]) => {
        let low = HEIGHT;
        return meanings.map((meaning, place) => {
          const size = (counts[place] / most) * (HEIGHT - 4);
          low -= size;
          return counts[place] > 0 && html`<rect class=${`bar ${meaning || "other"}`} x=${x(at) + 1} y=${low} width="8" height=${size} key=${`${at}${meaning}`} />`;
        });
      })}
    </svg>
    <div class="scale" aria-hidden="true"><span>1 h ago</span><span>30 min</span><span>now</span></div>
    <div class="brushing">
      <label>From <input type="range" min="0" max=${all - 1} value=${minutes(shown ? shown[0] : begin)} aria-valuetext=${`${all - minutes(shown ? shown[0] : begin)} minutes ago`} onInput=${slide(0)} /></label>
      <label>to <input type="range" min="1" max=${all} value=${minutes(shown ? shown[1] : end)} aria-valuetext=${`${all - minutes(shown ? shown[1] : end)} minutes ago`} onInput=${slide(1)} /></label>
      ${shown ? html`<span>${clock(shown[0] * 1000)}–${clock(shown[1] * 1000)} UTC</span><button type="button" onClick=${() => choose(null)}>Whole hour</button>` : null}
      <span class="spacer"></span>
      ${meanings.map((meaning, place) => html`<span class=${`key ${meaning || "other"}`} key=${meaning}><i aria-hidden="true"></i> ${totals[place]} ${NAMES[meaning]}</span>`)}
    </div>
  </div>`;
}
