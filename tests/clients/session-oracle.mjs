// Runs scripts of operations against the SessionManager of an installed pi and says what it did.
//   node session-oracle.mjs <package-dir>
// stdin: one job a line, stdout: one reply a line, in the same order. oracle.py starts it, homes.py runs the same jobs on sessiondb.
//
// job    {home: "file" | "memory", dir, cwd, files: {name: base64}, resume: {pool, at}, rules: [names], keep, steps: [step]}
// step   {op, args: [arg], n, at, clash, look}: n numbers the ids the step makes, `at` is what the clock says during it,
//        `clash` makes the first new entry id one that is taken
// arg    one of {json: text} {unset: true} {entry: k} {path: k} {session: k}; the last three count modulo what there is
// reply  {steps: [{result | error | skipped, leaf, look?}], files: {name: text}, pool, at, ids: {path: session id}, fired: {rule: times}}
// Values are sent as the text of JSON.stringify, so that the order of keys and the form of numbers are compared too.
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { createRequire, register, syncBuiltinESMExports } from "node:module";
import { basename, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { RULES, SKIPPED } from "./rules.mjs";

// ---- the clock and the ids are the job's ----

const source = { at: 0, n: 0, entries: 0, sessions: 0, given: [] };
const IDS_A_STEP = 4096;

const nextEntryId = () => source.given.shift() ?? hex(Math.imul(source.n * IDS_A_STEP + ++source.entries, 0x9e3779b1) >>> 0, 8);
const nextSessionId = () => `${hex(source.at, 12).replace(/(.{8})/, "$1-")}-7000-8000-${hex(source.n * IDS_A_STEP + ++source.sessions, 12)}`;
const hex = (number, digits) => number.toString(16).padStart(digits, "0");

const RealDate = Date;
globalThis.Date = class Date extends RealDate {
  constructor(...args) {
    super(...(args.length ? args : [source.at]));
  }
  static now() {
    return source.at;
  }
};
createRequire(import.meta.url)("crypto").randomUUID = () => `${nextEntryId()}-0000-4000-8000-000000000000`;
syncBuiltinESMExports();
globalThis.nextSessionId = nextSessionId;
const uuidHook = `export const resolve = (name, context, next) =>
  name === "uuid" && context.parentURL.endsWith("/session-manager.js")
    ? { url: "data:text/javascript,export const v7 = () => globalThis.nextSessionId()", shortCircuit: true }
    : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(uuidHook)}`);

const packageDir = resolve(process.argv[2]);
const pi = await import(pathToFileURL(join(packageDir, "dist/core/session-manager.js")).href);
const { SessionManager } = pi;

// ---- one job ----

class Run {
  constructor(job) {
    Object.assign(this, { job, pool: [], ids: {}, fired: {}, manager: undefined });
    this.persisted = job.home === "file";
    mkdirSync(job.dir, { recursive: true });
    for (const [name, content] of Object.entries(job.files ?? {})) {
      const bytes = Buffer.from(content, "base64");
      writeFileSync(join(job.dir, name), bytes);
      if (bytes.length) this.ids[join(job.dir, name)] = JSON.parse(bytes.toString("utf8").split("\n")[0]).id;
    }
    if (job.resume) {
      this.pool = job.resume.pool;
      Object.assign(source, { at: job.steps[0].at, n: job.steps[0].n, entries: IDS_A_STEP / 2, sessions: IDS_A_STEP / 2 });
      this.use(SessionManager.open(job.resume.at, job.dir));
    }
  }

  use(manager) {
    this.manager = manager;
    this.met(manager.getSessionFile());
    return manager.getSessionFile();
  }

  met(path) {
    if (!path) return path;
    if (!this.pool.includes(path)) this.pool.push(path);
    this.ids[path] = this.manager.getSessionId();
    return path;
  }

  step(step) {
    Object.assign(source, { at: step.at, n: step.n, entries: 0, sessions: 0, given: [] });
    const args = step.args.map((arg) => this.value(arg));
    const entries = this.manager?.getEntries() ?? [];
    if (step.clash !== undefined && entries.length) source.given.push(entries[step.clash % entries.length].id);
    const said = this.attempt(() => this.ruled(step.op, args));
    said.leaf = this.manager?.getLeafId() ?? null;
    if (step.look && this.manager) said.look = this.look();
    return said;
  }

  attempt(act) {
    try {
      const result = act();
      return result === SKIPPED ? { skipped: true } : { result: text(result) };
    } catch (error) {
      if (error.constructor === Error) return { error: error.message };
      throw error; // a TypeError is pi failing, not pi's answer: no sequence may lead there
    }
  }

  ruled(op, args) {
    let act = () => (this[op] ? this[op](...args) : this.manager[op](...args));
    for (const name of this.job.rules ?? []) {
      const inner = act;
      act = () => RULES[name]({ run: this, op, args, pi, source, act: inner, fired: () => (this.fired[name] = (this.fired[name] ?? 0) + 1) });
    }
    return act();
  }

  value(arg) {
    if ("json" in arg) return JSON.parse(arg.json);
    if ("session" in arg) return this.pool[arg.session % this.pool.length];
    if ("entry" in arg) return pick(this.manager.getEntries(), arg.entry);
    if ("path" in arg) return pick(this.manager.getBranch(), arg.path);
    return undefined;
  }

  // operations that are more than a call of the manager

  create(cwd) {
    return this.use(this.persisted ? SessionManager.create(cwd, this.job.dir) : SessionManager.inMemory(cwd));
  }

  openFile(name) {
    return this.use(SessionManager.open(join(this.job.dir, name), this.job.dir));
  }

  reopen(path) {
    return this.persisted && existsSync(path) ? this.use(SessionManager.open(path, this.job.dir)) : SKIPPED;
  }

  setSessionFile(path) {
    if (!this.persisted || !existsSync(path)) return SKIPPED;
    this.manager.setSessionFile(path);
    return this.met(path);
  }

  forkFrom(path, cwd) {
    return this.persisted ? this.use(SessionManager.forkFrom(path, cwd, this.job.dir)) : SKIPPED;
  }

  forkFile(name, cwd) {
    return this.forkFrom(join(this.job.dir, name), cwd);
  }

  newSession(options) {
    return this.met(this.manager.newSession(options ?? undefined));
  }

  createBranchedSession(leaf) {
    return this.met(this.manager.createBranchedSession(leaf));
  }

  // the pool's newest file is the one asked for, whatever the file system's clock says
  continueRecent(newest, cwd) {
    if (!this.persisted) return SKIPPED;
    const present = this.pool.filter((path) => existsSync(path));
    if (present.length === 0) return SKIPPED;
    for (const name of readdirSync(this.job.dir)) utimesSync(join(this.job.dir, name), 0, 0);
    present.forEach((path, i) => utimesSync(path, 0, 1 + ((i + present.length - 1 - (newest % present.length)) % present.length)));
    return this.use(SessionManager.continueRecent(cwd, this.job.dir));
  }

  contextAt(leaf) {
    return pi.buildSessionContext(this.manager.getEntries(), leaf);
  }

  look() {
    const m = this.manager;
    const path = m.getSessionFile();
    const entries = m.getEntries();
    const values = {
      id: m.getSessionId(),
      path,
      cwd: m.getCwd(),
      persisted: m.isPersisted(),
      header: m.getHeader(),
      entries,
      tree: this.ruled("getTree", []),
      labels: Object.fromEntries(entries.map((e) => [e.id, m.getLabel(e.id)])),
      leafEntry: m.getLeafEntry(),
      branch: m.getBranch(),
      context: m.buildSessionContext(),
      name: m.getSessionName(),
      roots: m.getChildren(null),
    };
    const look = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, text(value)]));
    look.file = path && existsSync(path) ? readFileSync(path, "utf8") : null;
    return look;
  }

  finish() {
    const files = Object.fromEntries(readdirSync(this.job.dir).sort().map((name) => [name, readFileSync(join(this.job.dir, name), "utf8")]));
    if (!this.job.keep) rmSync(this.job.dir, { recursive: true });
    return files;
  }
}

const text = (value) => JSON.stringify(value) ?? "null";
const pick = (entries, k) => (entries.length ? entries[k % entries.length].id : "00000000");

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const job = JSON.parse(line);
  process.env.PI_CODING_AGENT_DIR = job.dir;
  let reply;
  try {
    const run = new Run(job);
    const steps = job.steps.map((step) => run.step(step));
    reply = { steps, files: run.finish(), pool: run.pool, at: run.manager?.getSessionFile() ?? null, ids: run.ids, fired: run.fired };
  } catch (error) {
    reply = { failed: error.stack };
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
