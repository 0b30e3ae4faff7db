// What the explorer's parts make their elements with. Text only ever becomes text: nothing is parsed as HTML.

export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const clock = (ms) => {
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
};
export const took = (ms) => (ms === null ? "–" : `${ms < 10 ? ms.toFixed(2) : ms.toFixed(0)} ms`);

// A click is none if the button that was pressed is not there any more when the mouse is let go: what would be drawn anew
// meanwhile waits for that.
let pressed = null;
const waiting = new Map(); // element -> how it is to be drawn, as of the last time

function letGo() {
  pressed = null;
  setTimeout(() => { // after the click
    if (pressed) return;
    const draws = [...waiting.values()];
    waiting.clear();
    for (const draw of draws) draw();
  });
}

addEventListener("pointerdown", (event) => (pressed = event.button === 2 ? null : event.target), true); // a menu swallows the end
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, letGo, true);
addEventListener("pointermove", (event) => pressed && !event.buttons && letGo(), true); // it was let go elsewhere

/** Whether a mouse button is pressed within an element; then `draw` is called when it is let go. */
export function waitsForRelease(element, draw) {
  waiting.delete(element); // what is drawn now, or waits now, is newer
  if (!pressed || !element.contains(pressed)) return false;
  waiting.set(element, draw);
  return true;
}
