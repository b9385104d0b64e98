import { expect, it } from "vitest";
import { requestError } from "../src/nodes/node.ts";
import { plainError } from "../src/protocol.ts";
import { StubNode } from "./support/stub-node.ts";

it("names the address of a failed connection, and leaves out commands with their arguments", () => {
  const facts = { code: "ECONNREFUSED", errno: -111, syscall: "connect", address: "127.0.0.1", port: 6379 };
  const command = { name: "auth", args: ["secret"] };
  const refused = Object.assign(new Error("connect ECONNREFUSED 127.0.0.1:6379"), facts, { command, port2: 1 });
  const plain = plainError(new Error("not connected", { cause: refused }));
  expect({ ...(plain.cause as object) }).toEqual(facts);
});

it.each([
  "ERR unknown command 'evalsha', with args beginning with: ",
  'ERR unknown command "evalsha"',
  "ERR unsupported command 'evalsha'",
  "ERR command EVALSHA is not allowed",
  "ERR 'evalsha' command not supported",
  "ERR EVALSHA is disabled on this server",
  "ERR Lua scripting is disabled",
  "ERR This instance has Lua scripting support disabled",
])("names the missing Lua of a server that answers %j", (answer) => {
  expect(requestError(new Error(answer), new StubNode())).toMatchObject({
    code: "NO_LUA",
    message: expect.stringContaining("switch it on"),
  });
});

it.each([
  "ERR This Redis command is not allowed from script",
  "ERR Unknown Redis command called from script script: 5a2b, on @user_script:1.",
  "ERR unknown command 'script', with args beginning with: ",
  "NOPERM this user has no permissions to run the 'evalsha' command",
])("leaves the answer %j unchanged", (answer) => {
  const error = new Error(answer);
  expect(requestError(error, new StubNode())).toBe(error);
});
