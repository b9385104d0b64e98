#!/usr/bin/env node
import { processTerminal, runConsole } from "./index.ts";

const terminal = processTerminal();
process.exitCode = await runConsole(process.argv.slice(2), terminal);
