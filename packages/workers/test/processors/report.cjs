/** A sandboxed processor: says what it was given, and stops when it is cancelled. */
module.exports = async function report(job, _token, signal) {
  if (job.data.ms > 0) {
    await job.updateProgress(1);
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, job.data.ms);
      const stop = () => {
        clearTimeout(timer);
        resolve();
      };
      if (signal?.aborted === true) stop();
      signal?.addEventListener("abort", stop);
    });
  }
  return { lock: job.lock, aborted: signal?.aborted === true };
};
