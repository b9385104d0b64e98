/** The contract with the installed BullMQ, with both kinds of keys. */
import { testContract } from "./contract.ts";

testContract(["path", "function"]);
