// Sign in with a user of the cluster.

import { post, session } from "../api.js";
import { field, fill, h } from "../dom.js";

export function show(main, done) {
  const user = h("input", { type: "text", autocomplete: "username", spellcheck: "false", required: true });
  const password = h("input", { type: "password", autocomplete: "current-password", required: true });
  const trouble = h("p", { class: "form-trouble", role: "alert" });
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  fill(
    main,
    h(
      "form",
      {
        class: "form sign-in card",
        onsubmit: async (event) => {
          event.preventDefault();
          button.disabled = true;
          fill(trouble);
          try {
            Object.assign(session, await post("sign-in", { user: user.value, password: password.value }));
            password.value = "";
            await done();
          } catch (error) {
            fill(trouble, error.message);
            password.select();
          } finally {
            button.disabled = false;
          }
        },
      },
      h("h1", null, "Sign in"),
      h("p", { class: "quiet" }, "With a user of the cluster at ", h("code", null, session.bootstrap)),
      field("User", user),
      field("Password", password),
      trouble,
      h("div", { class: "actions" }, button),
    ),
  );
  user.focus();
}
