/** The HTTP response to a request that failed to acquire its lock. */
import { type ArgumentsHost, Catch, ConflictException, ServiceUnavailableException } from "@nestjs/common";
import { BaseExceptionFilter } from "@nestjs/core";
import { LockHeldError, QuorumUnreachableError } from "@x/redlock-core";

/** The lock may be released, and a node may answer again, at any time. */
const RETRY_AFTER_SECONDS = "1";

/**
 * Answers `LockHeldError` with 409 and `QuorumUnreachableError` with 503, both with `Retry-After`. The handler did not
 * run, so the client may repeat the request. The response names neither the resource nor its holder.
 *
 * Nest handles all other errors, and errors outside of HTTP.
 */
export class LockErrorFilter extends BaseExceptionFilter {
  override catch(error: unknown, host: ArgumentsHost): void {
    const answer =
      error instanceof LockHeldError
        ? new ConflictException("Another request or job works on this. Try again.")
        : error instanceof QuorumUnreachableError
          ? new ServiceUnavailableException("Locks cannot be acquired at the moment. Try again.")
          : undefined;
    if (answer === undefined || host.getType() !== "http") throw error;
    const adapter = this.applicationRef ?? this.httpAdapterHost?.httpAdapter;
    adapter?.setHeader(host.switchToHttp().getResponse(), "Retry-After", RETRY_AFTER_SECONDS);
    // oxlint-disable-next-line promise/valid-params, promise/no-promise-in-callback -- it is a filter, not a promise
    super.catch(answer, host);
  }
}
Catch(LockHeldError, QuorumUnreachableError)(LockErrorFilter);
