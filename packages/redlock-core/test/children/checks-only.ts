/** Calls `check()` with nothing else that keeps the process alive, and must get the answer. */
import { Redlock } from "@x/redlock-core";

const [path = ""] = process.argv.slice(2);
const redlock = new Redlock({ path }, { quarantine: false, nodeTimeout: 30_000 });
const findings = await redlock.check();
process.stdout.write(`done ${findings.map(({ code }) => code).join(" ")}\n`);
