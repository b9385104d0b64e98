import { describe, expect, it } from "vitest";
import { compileLua } from "../src/lua/compile.ts";
import { formatNumber, formatString } from "../src/lua/rules/format.ts";
import { matchPattern } from "../src/lua/rules/pattern.ts";

const run = (source: string): unknown => compileLua(source)({})[0];

describe("compiled Lua", () => {
  it.each([
    ["return 7 % -3", -2],
    ["return '10' + 5", 15],
    ["return 1 .. '|' .. 1e15 .. '|' .. 0.1", "1|1e+15|0.1"],
    ["local a = nil; return a or false or 'x'", "x"],
    ["local a = 0; return a and 1 or 2", 1],
    ["local x = 1; do local x = 2 end return x", 1],
    ["local function f() return 1, 2, 3 end local a, b, c = f() return a * 100 + b * 10 + c", 123],
    ["local function f() return 1, 2 end local t = {0, f()} return #t", 3],
    ["local s = 0; for i = 10, 1, -3 do s = s + i end return s", 22],
    ["local s = ''; for i, v in ipairs({'a', 'b', nil, 'd'}) do s = s .. i .. v end return s", "1a2b"],
    ["local t = {} t[1] = 'a' t[3] = 'c' t[2] = 'b' return #t", 3],
    ["local ok, e = pcall(function() error('no') end) return tostring(ok) .. e", "falseno"],
    ["local i = 0; while true do i = i + 1 if i > 4 then break end end return i", 5],
    ["local a, b = 1, 2; a, b = b, a; return a * 10 + b", 21],
    ["return ('%d'):format(3.9)", "3"],
    ["return #'abc' + math.max(1, 5, 2)", 8],
    ["local a, b = string.find('a.b', '.b', 1, true) return a * 10 + b", 23],
    ["return string.find('abc', 'd', 1, true) == nil", true],
  ])("runs %s", (source, expected) => {
    expect(run(source)).toBe(expected);
  });

  it("refuses unknown syntax", () => {
    expect(() => compileLua("local function f(...) return ... end")).toThrow("has no");
    expect(() => run("return os.time()")).toThrow("index a nil value");
  });
});

describe("Lua patterns", () => {
  it.each([
    ["run_id:abc123\r\n", "run_id:(%x+)", ["abc123"]],
    ["reserved:12:x:redlock:ab#1", "^reserved:([^:]+):(.+)$", ["12", "x:redlock:ab#1"]],
    ["-5 7", "^(%-?%d+) (%d+)", ["-5", "7"]],
    ["abc", "%d", [undefined]],
  ])("matches %j with %s", (subject, pattern, expected) => {
    expect(matchPattern(subject, pattern)).toEqual(expected);
  });
});

describe("Lua numbers", () => {
  it.each([
    [1_762_900_000_000_000, "1.7629e+15"],
    [99_999_999_999_999, "99999999999999"],
    [-0.5, "-0.5"],
    [1e-7, "1e-07"],
  ])("prints %d as tostring does", (number, text) => {
    expect(formatNumber(number)).toBe(text);
  });

  it("prints integers in full with %.0f", () => {
    expect(formatString("%.0f", [1_762_900_000_000_123])).toBe("1762900000000123");
  });
});
