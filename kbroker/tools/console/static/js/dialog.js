// Dialogs: the browser keeps the focus inside, and Escape closes them.

import { fill, freshId, h } from "./dom.js";

/** Show a dialog; `content` gets the dialog's close function. */
export function openDialog(title, content, { wide = false } = {}) {
  const id = freshId("dialog");
  const dialog = h("dialog", { "aria-labelledby": id, class: wide ? "wide" : null });
  const close = () => dialog.close();
  dialog.addEventListener("close", () => dialog.remove());
  fill(
    dialog,
    h(
      "div",
      { class: "dialog-head" },
      h("h2", { id }, title),
      h("button", { type: "button", class: "plain", "aria-label": "Close", onclick: close }, "✕"),
    ),
    content(close),
  );
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Close them all: another page is shown. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

/** A dialog with a form. `send` returns a promise; its error is shown in the dialog, which stays open then. */
export function openForm(title, { fields, action, danger = false, send, wide, extra }) {
  return openDialog(
    title,
    (close) => {
      const trouble = h("p", { class: "form-trouble", role: "alert" });
      const button = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
      return h(
        "form",
        {
          class: "form",
          onsubmit: async (event) => {
            event.preventDefault();
            button.disabled = true;
            fill(trouble);
            try {
              await send();
              close();
            } catch (error) {
              fill(trouble, error.message);
            } finally {
              button.disabled = false;
            }
          },
        },
        fields,
        trouble,
        h("div", { class: "actions" }, extra, h("button", { type: "button", onclick: close }, "Cancel"), button),
      );
    },
    { wide },
  );
}

/** Ask for a name to be typed before something is destroyed. */
export function confirmByName(title, name, warning, action, send) {
  const input = h("input", { type: "text", autocomplete: "off", spellcheck: "false", required: true });
  input.id = freshId("confirm");
  return openForm(title, {
    danger: true,
    action,
    fields: [
      h("div", { class: "stack" }, warning),
      h("div", { class: "field" }, h("label", { for: input.id }, "Type ", h("code", null, name), " to go on"), input),
    ],
    send: () => send(input.value),
  });
}
