import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { parseFlights } from "../src/flight.ts";

const header = "date,origin,destination,distance_miles,delay_minutes";

it("reads a flight", () => {
  expect(parseFlights(`${header}\n2001-01-01T06:30,MDW,STL,251,-8\n`)).toEqual([
    { index: 0, date: "2001-01-01T06:30", origin: "MDW", destination: "STL", distanceMiles: 251, delayMinutes: -8 },
  ]);
});

it.each([
  "2001-01-01T06:30,MDW,STL,,0",
  "2001-01-01T06:30,MDW,STL,1,",
  "2001-01-01T06:30,MDW,STL,1.5,0",
  "2001-01-01T06:30,mdw,STL,251,0",
  "2001-01-01T06:30,MDW,STLX,251,0",
])("refuses %s and names the line", (line) => {
  expect(() => parseFlights(`${header}\n2001-01-01T06:30,MDW,STL,251,-8\n${line}\n`)).toThrow(
    /^line 3 is not a flight/,
  );
});

it("reads the whole log: 20,000 flights of 59 origins in order", () => {
  const flights = parseFlights(readFileSync(new URL("../data/flights.csv", import.meta.url), "utf8"));
  expect(flights).toHaveLength(20_000);
  expect(new Set(flights.map((flight) => flight.origin)).size).toBe(59);
  expect(
    flights.every((flight, index) => flight.index === index && flight.date >= (flights[index - 1]?.date ?? "")),
  ).toBe(true);
});
