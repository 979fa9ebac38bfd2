// All requests to the server. Each page has one stream of changes, which resumes at its last message, and reconnects when idle.

const SILENCE_MS = 25_000; // the server sends a heartbeat every 10 s
const HIDDEN_MS = 60_000;
const PAUSES_MS = [300, 600, 1200, 2500, 5000];
const SESSION = 'session';

/**
 * Exchange the token in the URL, if any, for a session secret. It is kept in local storage, which is separate for each port;
 * a cookie would be sent to all ports. In a cluster there is no token.
 */
export async function enter() {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (!token) return;
  history.replaceState(null, '', location.pathname + location.search);
  const { response } = await ask('/-/enter', { headers: { 'TFJob-Token': token } });
  if (response) localStorage.setItem(SESSION, (await response.json()).session);
}

/** Fetch; `error` is the error message. */
export async function ask(path, options) {
  try {
    const session = localStorage.getItem(SESSION);
    const response = await fetch(path, session ? { headers: { 'TFJob-Session': session }, ...options } : options);
    if (response.ok) return { response };
    const body = await response.json().catch(() => ({}));
    return { error: body.message ?? `the page's server returned ${response.status}`, code: response.status };
  } catch (error) {
    return { error: error.name === 'AbortError' ? '' : 'the connection was lost', code: 0 };
  }
}

/** Read a response to its end; `take` receives lines in batches as they arrive. */
export async function readLines(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ''; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = value.split('\n');
    lines[0] = rest + lines[0];
    rest = lines.pop();
    take(lines);
  }
}

/** Read server-sent events; `take` receives the fields of each. Returns the result of `ask` when the stream ends. */
export async function events(path, signal, take) {
  const answer = await ask(path, { signal });
  let fields = {};
  const field = (line) => {
    const at = line.indexOf(':');
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).trimStart();
    else if (!line && fields.event) {
      take(fields);
      fields = {};
    }
  };
  if (answer.response) await readLines(answer.response, (lines) => lines.forEach(field)).catch(() => null);
  return answer;
}

export class Stream {
  /** `notify` receives ("rows", data), ("job", data), ("viewer", data) and ("live", "live" | "lost" | "out", why); `staysConnected`: stay connected in a hidden tab. */
  constructor(notify, staysConnected) {
    this.notify = notify;
    this.staysConnected = staysConnected;
    this.job = '';
    this.seen = '';
    this.failures = 0;
    document.addEventListener('visibilitychange', () => this.looked());
    addEventListener('online', () => this.open());
  }

  /** Request the view of a job besides the list; "" for only the list. */
  watch(job) {
    if (job === this.job && this.source) return;
    this.job = job;
    this.open();
  }

  async open() {
    this.close();
    const source = new AbortController();
    this.source = source;
    this.wait();
    const query = new URLSearchParams({ ...(this.seen && { since: this.seen }), ...(this.job && { job: this.job }) });
    const { code, error } = await events(`/-/stream?${query}`, source.signal, ({ event, data, id }) => {
      if (source !== this.source) return;
      this.failures = 0;
      this.wait();
      if (id) this.seen = id;
      this.notify('live', 'live');
      if (data) this.notify(event, JSON.parse(data));
    });
    if (source === this.source) this.lost(code === 401 ? 'out' : 'lost', code ? error : '');
  }

  close() {
    clearTimeout(this.timer);
    this.source?.abort();
    this.source = null;
  }

  wait() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.lost('lost'), SILENCE_MS);
  }

  lost(how, why) {
    this.close();
    const pause = PAUSES_MS[Math.min(this.failures, PAUSES_MS.length - 1)];
    this.failures += 1;
    this.notify('live', how, why);
    this.timer = setTimeout(() => this.open(), pause);
  }

  looked() {
    clearTimeout(this.hidden);
    if (document.hidden) this.hidden = setTimeout(() => this.staysConnected() || this.close(), HIDDEN_MS);
    else if (!this.source) this.open();
  }
}
