// What node's own JSON makes of values, for tests to compare with.
//   node json-oracle.mjs parse    stdin: one base64 line for each text; stdout: JSON.stringify(JSON.parse(text)), "!" where it throws
//   node json-oracle.mjs double   stdin: 8 bytes for each double, little endian; stdout: JSON.stringify(double)
//   node json-oracle.mjs date     stdin: one JSON string a line; stdout: new Date(text).getTime()
// One line of output for each value.
import { readFileSync, writeSync } from "node:fs";

const input = readFileSync(0);
const lines = () => input.toString("latin1").split("\n").slice(0, -1);

function parse(encoded) {
  const text = Buffer.from(encoded, "base64").toString("utf8");
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return "!";
  }
}

function* doubles() {
  for (let at = 0; at < input.length; at += 8) yield JSON.stringify(input.readDoubleLE(at));
}

const answers = {
  parse: () => lines().map(parse),
  double: () => [...doubles()],
  date: () => lines().map((line) => String(new Date(JSON.parse(line)).getTime())),
}[process.argv[2]]();

// written to the end before the process ends, whatever stands behind stdout
const output = Buffer.from(answers.map((answer) => answer + "\n").join(""), "utf8");
for (let at = 0; at < output.length; ) {
  try {
    at += writeSync(1, output, at);
  } catch (error) {
    if (error.code !== "EAGAIN") throw error;
  }
}
