// Faults of the nodes, switched on and off: what goes wrong is told in the words of `kbroker faults`.

import { get, post, session } from "../api.js";
import { field, fill, h, problem, refill, select, table, toast } from "../dom.js";
import { number, plural } from "../format.js";

const SUBJECTS = {
  API: ["Requests", "the API's name, such as Produce or Fetch"],
  TOPIC: ["Topic", "its name"],
  NODE: ["Node", "its number"],
};

export async function show(main, params, scope) {
  const told = await get("faults", {}, scope.signal);
  const on = h("section", { class: "card" });
  const done = h("section", { class: "card" });
  const draw = (state) => {
    drawActive(on, state, load);
    drawDone(done, state);
  };
  const load = async () => {
    try {
      draw(await get("faults", {}, scope.signal));
    } catch (error) {
      if (error.name !== "AbortError") fill(done, problem(error, load));
    }
  };
  fill(main, h("div", { class: "page-head" }, h("h1", null, "Faults")), session.writes ? switches(told, load) : null, on, done);
  draw(told);
  scope.every(2000, load);
}

async function run(line) {
  toast((await post("faults", { line })).done);
}

/** A text as one word of a line, whatever it holds. */
const quoted = (text) => (/^[\w.,:@%+=/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

function switches(told, load) {
  const words = told.words.filter((each) => told.nodes || each.subject !== "NODE");
  const word = select(words.map((each) => [each.word, each.word.replaceAll("-", " ")]), words[0].word);
  const subject = h("input", { type: "text", required: true, spellcheck: "false", autocomplete: "off" });
  const subjectBox = h("div");
  const rest = h("input", { type: "text", spellcheck: "false", autocomplete: "off" });
  const restBox = h("div", { class: "grow" });
  const trouble = h("p", { class: "form-trouble", role: "alert" });
  const choose = () => {
    const chosen = words.find((each) => each.word === word.value);
    const [label, hint] = SUBJECTS[chosen.subject];
    fill(subjectBox, field(label, subject, hint));
    const takes = [...chosen.takes, ...(told.nodes && chosen.takes.length ? ["node"] : [])];
    const names = [...chosen.needs.map((name) => `${name}=`), ...takes.map((name) => `[${name}=]`)];
    restBox.hidden = !names.length;
    if (!names.length) rest.value = "";
    fill(restBox, field("More", rest, names.join(" ")));
  };
  word.addEventListener("change", choose);
  choose();
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Let something go wrong"),
    h(
      "form",
      {
        onsubmit: async (event) => {
          event.preventDefault();
          fill(trouble);
          try {
            await run(`${word.value} ${quoted(subject.value)} ${rest.value}`.trim());
            await load();
          } catch (error) {
            fill(trouble, error.message);
          }
        },
      },
      h("div", { class: "bar from-above" }, field("What", word), subjectBox, restBox, h("button", { type: "submit", class: "primary" }, "Do it")),
      trouble,
    ),
  );
}

function drawActive(box, state, load) {
  const undo = (line) => async () => {
    try {
      await run(line);
    } catch (error) {
      toast(error.message, "bad");
    }
    await load();
  };
  refill(
    box,
    h("h2", null, "On"),
    table(
      "Faults that are on",
      [
        { title: "Number", number: true, cell: (f) => f.number },
        { title: "Fault", class: "mono", cell: (f) => f.text },
        { title: "Acted", number: true, cell: (f) => plural(f.hits, "time") },
        {
          title: "Change",
          cell: (f) =>
            session.writes
              ? h("button", { type: "button", "aria-label": `Undo fault ${f.number}`, onclick: undo(`undo ${f.number}`) }, "Undo")
              : null,
        },
      ],
      state.active,
      { empty: "No fault is on." },
    ),
  );
}

function drawDone(box, state) {
  refill(
    box,
    h("h2", null, "What has been done"),
    state.total > state.done.length ? h("p", { class: "quiet" }, `The latest ${state.done.length} of ${number(state.total)}.`) : null,
    table(
      "What has been done",
      [{ title: "The latest first", class: "mono", cell: (text) => text }],
      state.done.toReversed(),
      { empty: "Nothing yet." },
    ),
  );
}
