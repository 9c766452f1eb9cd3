// Where sessiondb differs from pi 0.73.1 on purpose: one function for each row of jsonl/FORMAT.md that random sequences reach.
// Each runs `act`, pi's own code, and then puts pi into the state that the row asks for, so that all that follows is again
// what pi makes of it. `fired` counts the times a rule changed something: tests demand that each one is met.
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export const RULES = { rechain, writeOnce, deriveIds, migrateForks, showOnce, continueInCwd };
export const SKIPPED = Symbol("not possible here");

// createBranchedSession takes labels out of the path. pi leaves entries below one without a parent; they get the nearest
// entry above that is no label, and a compaction that kept from a label keeps from the entry behind it.
function rechain({ run, op, args, act, fired }) {
  if (op !== "createBranchedSession") return act();
  const path = run.manager.getBranch(args[0]);
  const result = act();
  const labels = new Map(path.filter((e) => e.type === "label").map((e) => [e.id, e]));
  const above = (id) => (labels.has(id) ? above(labels.get(id).parentId) : path.some((e) => e.id === id) ? id : null);
  const behind = (id) => path.slice(path.findIndex((e) => e.id === id)).find((e) => e.type !== "label")?.id ?? null;
  const manager = run.manager;
  let changed = false;
  manager.fileEntries = manager.fileEntries.map((e) => {
    if (e.type === "label") return e; // a new one; it may even have the id of one that was taken out
    const fixed = { ...e };
    if (labels.has(e.parentId)) fixed.parentId = above(e.parentId);
    if (e.type === "compaction" && labels.has(e.firstKeptEntryId)) fixed.firstKeptEntryId = behind(e.firstKeptEntryId);
    if (fixed.parentId === e.parentId && fixed.firstKeptEntryId === e.firstKeptEntryId) return e;
    changed = true;
    return fixed;
  });
  if (!changed) return result;
  fired();
  manager._buildIndex();
  if (manager.getSessionFile() && existsSync(manager.getSessionFile())) manager._rewriteFile();
  return result;
}

// A file without an assistant's message: at the first one pi writes the header and all entries once more. Only what is new
// is written.
function writeOnce({ run, pi, act, fired }) {
  const path = run.manager?.getSessionFile();
  const before = path && existsSync(path) ? readFileSync(path, "utf8") : "";
  const result = act();
  if (!before || run.manager.getSessionFile() !== path) return result;
  const added = readFileSync(path, "utf8").slice(before.length);
  if (!added || JSON.parse(added.slice(0, added.indexOf("\n"))).type !== "session") return result;
  fired();
  const known = pi.parseSessionEntries(before).length;
  writeFileSync(path, before + added.split("\n").slice(known).join("\n"));
  return result;
}

// Entries of version 1 have no ids: pi makes random ones, here they follow from session id and line.
function deriveIds({ run, op, args, pi, source, act, fired }) {
  if (op === "openFile" || op === "forkFile") {
    source.given = derivedIds(pi.parseSessionEntries(readFileSync(join(run.job.dir, args[0]), "utf8")));
    if (source.given.length) fired();
  }
  return act();
}

function derivedIds(entries) {
  const header = entries.find((e) => e.type === "session");
  if (!header || (header.version ?? 1) >= 2) return [];
  const derived = (i) => createHash("sha256").update(`${header.id}\0${i + 1}`).digest("hex").slice(0, 8); // a line each
  return entries.flatMap((e, i) => (e.type === "session" ? [] : [derived(i)]));
}

// A fork of an older file: pi copies its entries as they are under a header of version 3. They are migrated.
function migrateForks({ run, op, args, pi, act, fired }) {
  if (op !== "forkFile") return act();
  const path = join(run.job.dir, args[0]);
  const copy = `${path}.migrated`;
  copyFileSync(path, copy);
  pi.SessionManager.open(copy, run.job.dir);
  if (readFileSync(copy, "utf8") === readFileSync(path, "utf8")) {
    rmSync(copy);
    return act();
  }
  fired();
  args[0] += ".migrated";
  act();
  rmSync(copy);
  run.manager.fileEntries[0].parentSession = path;
  run.manager._rewriteFile();
  return run.manager.getSessionFile();
}

// Of several entries with one id pi's tree shows the last in the place of each. It is shown in its own place only, and once
// more for each of the others that is a root.
function showOnce({ run, op, act, fired }) {
  if (op !== "getTree") return act();
  const roots = act();
  const place = new Map(run.manager.getEntries().map((e, i) => [e, i]));
  const time = (node) => new Date(node.entry.timestamp).getTime();
  const nodes = [...roots];
  for (const node of nodes) {
    const own = new Set(node.children.filter((child) => child.entry.parentId === node.entry.id));
    if (own.size < node.children.length) {
      fired();
      const inPlace = [...own].sort((a, b) => place.get(a.entry) - place.get(b.entry));
      node.children = inPlace.sort((a, b) => time(a) - time(b)); // as pi does, once it has all of them
    }
    nodes.push(...node.children);
  }
  return roots;
}

// pi goes on with the folder's newest file, whatever its cwd. A database has no folders: it goes on with a session of this cwd.
// Which of several is a matter of what was said when, so here there is one or none.
function continueInCwd({ run, op, args, pi, act, fired }) {
  if (op !== "continueRecent") return act();
  const paths = readdirSync(run.job.dir).map((name) => join(run.job.dir, name));
  const cwdOf = (path) => JSON.parse(readFileSync(path, "utf8").split("\n")[0]).cwd;
  const inCwd = paths.filter((path) => cwdOf(path) === args[1]);
  if (inCwd.length > 1) return SKIPPED;
  fired();
  return inCwd.length ? run.use(pi.SessionManager.open(inCwd[0], run.job.dir, args[1])) : run.create(args[1]);
}
