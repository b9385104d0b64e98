/** Lets node-redlock 4's own test file run on our class, with clients of the servers in the environment. */
const Module = require("node:module");
const Bluebird = require("bluebird");
const { default: Redlock } = require("@x/node-redlock/v4");

const { Redis } = require(process.env.X_IOREDIS);
const ports = process.env.X_PORTS.split(",").map(Number);
Redlock.Promise = Bluebird;

/** A database of the one server that the suite expects is a server here. */
const connect = ({ db = 1 } = {}) => new Redis({ port: ports[db - 1] });

const standIns = {
  "./redlock": Redlock,
  chai: require("chai4"),
  // The suite's clients of node_redis 3 are not supported.
  redis: { createClient: () => connect() },
  ioredis: function Client(options) {
    return connect(options);
  },
};

const load = Module._load;
Module._load = (request, parent, isMain) =>
  parent?.filename === process.env.X_SUITE && request in standIns ? standIns[request] : load(request, parent, isMain);
