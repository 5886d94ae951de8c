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

// The card of the state that was clicked lies over the lower part of the page.
const cards = document.getElementById("cards");
const pin = (state) => {
  pinned = state;
  for (const chip of document.querySelectorAll(".chip")) {
    chip.setAttribute("aria-pressed", String(chip.dataset.state === state));
  }
  follow(state);
  if (!cards) return;
  const card = state === null ? null : document.getElementById(`card-${state}`);
  for (const other of cards.children) other.hidden = other !== card;
  cards.hidden = card === null;
  document.body.style.paddingBottom = card ? `${cards.offsetHeight}px` : "";
  cards.scrollTop = 0;
};
document.addEventListener("pointerover", (event) => {
  if (event.pointerType === "mouse") follow(stateOf(event) ?? pinned);
});
document.addEventListener("click", (event) => {
  if (event.target.closest(".close")) return pin(null);
  if (event.target.closest("a")) return;
  const state = stateOf(event);
  if (state === null) return;
  pin(state === pinned ? null : state);
  // What was clicked stays in sight.
  const place = event.target.getBoundingClientRect(), top = innerHeight - (cards?.offsetHeight ?? 0);
  if (!event.target.closest("#cards, nav") && place.bottom > top - 10) scrollBy({ top: place.bottom - 0.7 * top });
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") pin(null); });
