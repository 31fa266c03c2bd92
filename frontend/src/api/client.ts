/** The typed client of the JSON API. Its types come from the API's own description. */
import createClient from "openapi-fetch";
import { changedHeader } from "./changed";
import type { components, paths } from "./schema";

export type { paths };

export type Schemas = components["schemas"];
export type Table = Schemas["Table"];
export type Overview = Schemas["Overview"];
export type Health = Table["health"];
export type Round = Schemas["Round"];

/** Relative to the page's own folder: Airflow serves it below a path. */
const folder = new URL(".", document.baseURI).href.replace(/\/$/, "");

/** The server refuses a change without this header, which no foreign page can send. */
const OWN_HEADER = { "X-Sluice-Page": "1" };

/** The server answers a read within some seconds, whatever the cluster does. */
const READ_MS = 15_000;

/** A read ends also if the server hangs; an action has the time that it needs. */
function bounded(request: Request): Promise<Response> {
  if (request.method !== "GET") return globalThis.fetch(request);
  return globalThis.fetch(request, {
    signal: AbortSignal.any([request.signal, AbortSignal.timeout(READ_MS)]),
  });
}

export const api = createClient<paths>({ baseUrl: folder, headers: OWN_HEADER, fetch: bounded });
api.use({
  onRequest({ request }) {
    const changed = request.method === "GET" ? changedHeader() : null;
    if (changed !== null) request.headers.set("X-Sluice-Changed", changed);
    return request;
  },
});

/** Why a call failed, in a sentence for people. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

/** Only what had no answer is asked again at once: views ask again soon anyway. */
export function retriesOnce(failures: number, error: unknown): boolean {
  return failures < 1 && error instanceof ApiError && error.status === 0;
}

interface Outcome<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The data of an answer. Throws an ApiError otherwise. */
export async function dataOf<T>(call: Promise<Outcome<T>>): Promise<T> {
  let outcome: Outcome<T>;
  try {
    outcome = await call;
  } catch {
    throw new ApiError("The server of this page does not answer. Is it still running?", 0);
  }
  if (outcome.data !== undefined && outcome.response.ok) return outcome.data;
  throw new ApiError(messageOf(outcome.error, outcome.response.status), outcome.response.status);
}

function messageOf(error: unknown, status: number): string {
  if (error && typeof error === "object") {
    if ("message" in error) return String(error.message);
    if ("detail" in error && typeof error.detail === "string") return error.detail;
  }
  return `The server answered with status ${status}.`;
}
