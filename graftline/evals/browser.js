
"use strict";
// every text goes into the page as a text: what models and datasets say is never markup
const data = JSON.parse(document.getElementById("data").textContent);
const PAGE = 50;
const keys = ["solver", "class", "language", "outcome"];
const of = {
  solver: (attempt) => attempt.solver,
  class: (attempt) => data.tasks[attempt.task].class,
  language: (attempt) => data.tasks[attempt.task].language,
  outcome: (attempt) => attempt.outcome,
};
let shown = PAGE;

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function block(into, title, text, isDiff) {
  if (text === null || text === "") return;
  into.append(element("h2", title));
  const pre = element("pre");
  if (!isDiff) pre.textContent = text;
  else for (const line of text.replace(/\n$/, "").split("\n")) {
    const kind = { "+": "added", "-": "removed", "@": "place" }[line[0]];
    pre.append(element("span", line, kind));
  }
  into.append(pre);
}

function fill(details, attempt) {
  const task = data.tasks[attempt.task];
  block(details, "Instruction", task.instruction);
  block(details, "Before", task.before);
  block(details, "Target", task.target, true);
  block(details, "What came out", attempt.diff === "" ? "(nothing changed)" : attempt.diff, true);
  block(details, "What came out, against the target", attempt.off, true);
  block(details, "Action", attempt.action);
  block(details, "Answer", attempt.said);
  block(details, "From", task.origin);
}

function row(attempt) {
  const details = element("details");
  const summary = element("summary");
  const kind = attempt.outcome === "solved" ? "solved" : "bad";
  summary.append(element("span", attempt.outcome, kind));
  const reward = attempt.reward === null ? "" : String(attempt.reward);
  const unseen = { true: "also right on unseen code", false: "not right on unseen code" }[attempt.unseen] || "";
  for (const text of [attempt.solver, attempt.task, "attempt " + attempt.attempt, reward, attempt.cause, unseen]) {
    summary.append(element("span", text));
  }
  details.append(summary);
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) fill(details, attempt);
  });
  return details;
}

function draw() {
  const chosen = keys.map((key) => [key, document.getElementById(key).value]).filter(([, value]) => value);
  const text = document.getElementById("task").value.toLowerCase();
  const found = data.attempts.filter((attempt) =>
    chosen.every(([key, value]) => of[key](attempt) === value)
    && (attempt.task + "\n" + data.tasks[attempt.task].instruction).toLowerCase().includes(text));
  document.getElementById("count").textContent = found.length + " of " + data.attempts.length + " attempts";
  document.getElementById("attempts").replaceChildren(...found.slice(0, shown).map(row));
  document.getElementById("more").hidden = found.length <= shown;
}

for (const key of keys) {
  const select = document.getElementById(key);
  const values = key === "outcome" ? data.outcomes : [...new Set(data.attempts.map(of[key]))].sort();
  select.append(element("option", "all"));
  select.firstChild.value = "";
  for (const value of values) {
    const option = element("option", value);
    option.value = value;
    select.append(option);
  }
}
document.getElementById("filters").addEventListener("input", () => { shown = PAGE; draw(); });
document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
document.getElementById("more").addEventListener("click", () => { shown += PAGE; draw(); });
draw();
