import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { redisBinary, temporaryFolder } from "@x/test-support";
import { expect, it } from "vitest";

it("prefers redis-server to valkey-server, and takes only executables", () => {
  const [empty, both] = [join(temporaryFolder(), "empty"), join(temporaryFolder(), "both")];
  for (const folder of [empty, both]) mkdirSync(folder);
  writeFileSync(join(empty, "redis-server"), "", { mode: 0o644 });
  for (const name of ["valkey-server", "redis-server"]) writeFileSync(join(both, name), "", { mode: 0o755 });
  expect(redisBinary(`${empty}:${both}`, "")).toBe(join(both, "redis-server"));
  chmodSync(join(both, "redis-server"), 0o644);
  expect(redisBinary(`${empty}:${both}`, "")).toBe(join(both, "valkey-server"));
});

it("says what to install if there is no server", () => {
  expect(() => redisBinary(temporaryFolder(), "")).toThrow(/no redis-server or valkey-server on the PATH: install/);
});

it("takes the server that REDIS_SERVER names, by its path or by its name on the PATH", () => {
  const folder = join(temporaryFolder(), "chosen");
  mkdirSync(folder);
  for (const name of ["redis-server", "valkey-server"]) writeFileSync(join(folder, name), "", { mode: 0o755 });
  expect(redisBinary(folder, "valkey-server")).toBe(join(folder, "valkey-server"));
  expect(redisBinary("", join(folder, "valkey-server"))).toBe(join(folder, "valkey-server"));
  expect(() => redisBinary(folder, "keydb-server")).toThrow('REDIS_SERVER names no executable file: "keydb-server"');
});
