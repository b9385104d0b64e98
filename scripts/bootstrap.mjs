// What a fresh clone lacks: the dependencies, a Redis binary, the build. Plain Node, because it runs before anything is installed.
import { spawn, spawnSync } from "node:child_process";
import { accessSync, existsSync, constants as modes } from "node:fs";
import { constants, setPriority } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("..", import.meta.url));

const environment = (own = {}) => ({ ...process.env, TURBO_TELEMETRY_DISABLED: "1", DO_NOT_TRACK: "1", ...own });

const say = (line) => process.stderr.write(`${line}\n`);

/** Ends the process with one line that says what to do. */
function giveUp(line) {
  say(line);
  process.exit(1);
}

/** Runs a command in the repository, with its output shown; resolves with whether it succeeded. */
export async function run(command, args) {
  return (await ended(spawn(command, args, { cwd: root, env: environment(), stdio: "inherit" }))) === 0;
}

/** Runs a command on cores that are idle; resolves with whether it succeeded and what it said. */
export async function runBeside(command, args) {
  const child = spawn(command, args, { cwd: root, env: environment(), stdio: ["ignore", "pipe", "pipe"] });
  if (child.pid !== undefined) setPriority(child.pid, constants.priority.PRIORITY_LOW);
  const output = [];
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => output.push(bytes));
  const isDone = (await ended(child)) === 0;
  return { isDone, output: Buffer.concat(output).toString() };
}

/** The exit code of a child, which ends with this process at the latest. */
async function ended(child) {
  const kill = () => child.kill();
  process.once("exit", kill);
  const code = await new Promise((resolve) => {
    child.once("error", (error) => {
      say(error.message);
      resolve(1);
    });
    child.once("close", resolve);
  });
  process.off("exit", kill);
  return code;
}

/** Runs a command and shows its output only if it fails. */
function runQuietly(command, args, env) {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    cwd: root,
    encoding: "utf8",
    stdio: ["inherit", "pipe", "pipe"],
    maxBuffer: 64 * 1024 * 1024,
    env: environment(env),
  });
  if (status === 0) return true;
  process.stderr.write(`${stdout ?? ""}${stderr ?? ""}${error === undefined ? "" : `${error.message}\n`}`);
  return false;
}

/** Installs the dependencies from the lock file, if there are none yet. */
export function ensureInstalled() {
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    giveUp(`Node.js 20.19 or newer is needed, this is ${process.versions.node}`);
  }
  if (existsSync(join(root, "node_modules", ".package-lock.json"))) return;
  say("installing dependencies (npm ci) ...");
  if (!runQuietly("npm", ["ci", "--no-audit", "--no-fund"])) giveUp("npm ci failed: see above");
}

/**
 * Builds the packages and examples; unchanged ones come from turbo's cache. The site takes half a minute, and no test needs it: it is
 * built as a check, beside them.
 */
export function ensureBuilt() {
  say("building ...");
  if (!runQuietly(bin("turbo"), ["run", "build", "--filter=!@x/docs"])) giveUp("the build failed: see above");
}

export const bin = (name) => join(root, "node_modules", ".bin", name);

// What installs a Redis or Valkey server on which system, in the order in which they are looked for.
const managers = [
  { command: "apt-get", prepare: ["update"], installs: [["install", "-y", "--no-install-recommends", "redis-server"]] },
  {
    command: "apk",
    installs: [
      ["add", "redis"],
      // Valkey 9.1 has Lua in a package of its own; before, there is none of that name.
      ["add", "valkey", "valkey-lua"],
      ["add", "valkey"],
    ],
  },
  {
    command: "dnf",
    installs: [
      ["install", "-y", "redis"],
      ["install", "-y", "valkey"],
    ],
  },
  { command: "brew", installs: [["install", "redis"]], asUser: true },
];

const servers = ["redis-server", "valkey-server"];

/**
 * Gets a `redis-server` or `valkey-server` from the system's package manager, if none is on the PATH. The server that
 * `REDIS_SERVER` names (a path, or a name on the PATH) is never replaced by another one.
 */
export function ensureRedis() {
  const chosen = process.env.REDIS_SERVER ?? "";
  if (chosen !== "") {
    if (!(chosen.includes("/") ? isExecutable(chosen) : onPath(chosen))) {
      giveUp(`REDIS_SERVER names no executable file: "${chosen}"`);
    }
    return;
  }
  if (servers.some(onPath)) return;
  const advice =
    "install Redis 6.2 or newer or Valkey (for example: sudo apt-get install redis-server, brew install redis) and run this again";
  const manager = managers.find(({ command }) => onPath(command));
  if (manager === undefined) giveUp(`no redis-server on the PATH: ${advice}`);
  const isRoot = process.getuid?.() === 0;
  const needsSudo = manager.asUser !== true && !isRoot;
  if (needsSudo && !onPath("sudo")) giveUp(`no redis-server on the PATH, and ${manager.command} needs root: ${advice}`);
  const [command, ...prefix] = needsSudo
    ? ["sudo", ...(process.stdin.isTTY ? [] : ["-n"]), manager.command]
    : [manager.command];
  const env = { DEBIAN_FRONTEND: "noninteractive" };
  if (manager.prepare !== undefined) {
    say(`no redis-server on the PATH: ${[command, ...prefix, ...manager.prepare].join(" ")} ...`);
    // A package source that cannot be reached need not matter: the install decides.
    runQuietly(command, [...prefix, ...manager.prepare], env);
  }
  for (const install of manager.installs) {
    say(`no redis-server on the PATH: ${[command, ...prefix, ...install].join(" ")} ...`);
    if (runQuietly(command, [...prefix, ...install], env) && servers.some(onPath)) return;
  }
  giveUp(`${manager.command} could not install a Redis server: ${advice}`);
}

function onPath(name) {
  return (process.env.PATH ?? "").split(delimiter).some((folder) => folder !== "" && isExecutable(join(folder, name)));
}

function isExecutable(file) {
  try {
    accessSync(file, modes.X_OK);
    return true;
  } catch {
    return false;
  }
}
