process.on("message", (message) => {
  process.send?.({ echo: message });
});
process.send?.({ ready: true, args: process.argv.slice(2), color: process.env["COLOR"] });
