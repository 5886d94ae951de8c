const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const show = (isDark) => { root.dataset.theme = isDark ? "dark" : "light"; };
show(dark.matches);
dark.addEventListener("change", (event) => show(event.matches));
document.getElementById("theme").addEventListener("click", () => show(root.dataset.theme !== "dark"));

// One rule in one style sheet highlights a state everywhere: hovered, or else the one that was clicked.
const highlight = document.head.appendChild(document.createElement("style"));
let pinned = null;
const follow = (state) => {
  highlight.textContent = state === null ? ""
    : `.state:not(.s${state}) { opacity: var(--dim); } .wash.s${state} { fill-opacity: 0.2; }`;
};
const stateOf = (event) => event.target.closest("[data-state]")?.dataset.state ?? null;
const pin = (state) => {
  pinned = state;
  for (const chip of document.querySelectorAll(".chip")) {
    chip.setAttribute("aria-pressed", String(chip.dataset.state === state));
  }
  follow(state);
};
document.addEventListener("pointerover", (event) => {
  if (event.pointerType === "mouse") follow(stateOf(event) ?? pinned);
});
document.addEventListener("click", (event) => {
  const state = stateOf(event);
  if (state !== null) pin(state === pinned ? null : state);
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") pin(null); });

// A line through all rows of a panel at the time under the pointer.
for (const panel of document.querySelectorAll(".panel")) {
  const line = panel.querySelector("line.cursor"), text = panel.querySelector("text.cursor");
  const { left, right, end, unit } = panel.dataset;
  panel.addEventListener("pointermove", (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(panel.getScreenCTM().inverse());
    const x = Math.min(Math.max(point.x, +left), +right);
    const time = (x - left) / (right - left) * end;
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    text.setAttribute("x", x);
    text.textContent = unit === "s" ? `${time.toFixed(2)} s` : String(Math.min(Math.floor(time), end - 1));
  });
}
