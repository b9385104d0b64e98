/** A sandboxed processor: says what it was given, and stops when it is cancelled. */
module.exports = async function report(job, _token, signal) {
  if (job.data.ms > 0) {
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, job.data.ms);
      signal?.addEventListener("abort", () => {
        clearTimeout(timer);
        resolve();
      });
    });
  }
  return { lock: job.lock, aborted: signal?.aborted === true };
};
