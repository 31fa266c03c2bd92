/**
 * A server of the page for tests: it answers `fetch`. Import it before the client, which keeps the
 * `fetch` that it finds.
 */
export interface Seen {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: Headers;
  /** Of a JSON body; null without one. */
  body: unknown;
}

type Reply = { status?: number; json: unknown } | Promise<{ status?: number; json: unknown }>;
type Handler = (seen: Seen) => Reply;

export class PageServer {
  readonly seen: Seen[] = [];
  private readonly handlers = new Map<string, Handler>();

  /** @param route method and path below the API, as in `GET /overview` */
  on(route: string, handler: Handler | object): this {
    this.handlers.set(route, isHandler(handler) ? handler : () => ({ json: handler }));
    return this;
  }

  /** The requests of a method and path, the oldest first. */
  requests(route: string): Seen[] {
    return this.seen.filter((each) => `${each.method} ${each.path}` === route);
  }

  async answer(request: Request): Promise<Response> {
    const url = new URL(request.url);
    const path = url.pathname.replace(/^.*\/api\/v1/, "");
    const seen = {
      method: request.method,
      path,
      query: url.searchParams,
      headers: request.headers,
      body: request.method === "POST" ? await jsonOf(request) : null,
    };
    this.seen.push(seen);
    const handler = this.handlers.get(`${seen.method} ${path}`);
    const { status = 200, json } = handler
      ? await handler(seen)
      : { status: 404, json: { error: "NotFound", message: `no answer for ${path}` } };
    return new Response(JSON.stringify(json), {
      status,
      headers: { "Content-Type": "application/json" },
    });
  }
}

async function jsonOf(request: Request): Promise<unknown> {
  const text = await request.text();
  return text === "" ? null : JSON.parse(text);
}

function isHandler(given: Handler | object): given is Handler {
  return typeof given === "function";
}

let current = new PageServer();

/** A fresh server, which answers from now on. */
export function startServer(): PageServer {
  current = new PageServer();
  return current;
}

globalThis.fetch = (input, init) => current.answer(new Request(input, init));
