// A page whose module is loaded when it is opened: the others open without it.
import { html, useEffect, useState, Problem } from "./lib.js";

export function later(load) {
  return function Later(properties) {
    const [{ Shown, error }, set] = useState({ Shown: null, error: null });
    useEffect(() => void load().then((module) => set({ Shown: module.default, error: null }), (error) => set({ Shown: null, error })), []);
    return Shown ? html`<${Shown} ...${properties} />` : html`<${Problem} error=${error} />`;
  };
}
