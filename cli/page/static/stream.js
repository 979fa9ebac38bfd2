// The stream of changes: one for a page, resumed where it was, and known to be dead when nothing comes.

const SILENCE_MS = 25_000; // the server says something every 10 s
const HIDDEN_MS = 60_000;
const PAUSES_MS = [300, 600, 1200, 2500, 5000];

export class Stream {
  /** `told` gets ("rows", data), ("job", data), ("viewer", data) and ("live", "live" | "lost" | "out"); `stays`: also in a hidden tab. */
  constructor(told, stays) {
    this.told = told;
    this.stays = stays;
    this.job = '';
    this.seen = '';
    this.failures = 0;
    document.addEventListener('visibilitychange', () => this.looked());
    addEventListener('online', () => this.open());
  }

  /** Ask for the view of a job beside the list; "" for the list alone. */
  watch(job) {
    if (job === this.job && this.source) return;
    this.job = job;
    this.open();
  }

  open() {
    this.close();
    const query = new URLSearchParams();
    if (this.seen) query.set('since', this.seen);
    if (this.job) query.set('job', this.job);
    const source = new EventSource(`/-/stream?${query}`);
    this.source = source;
    const heard = (kind) => (event) => {
      if (source !== this.source) return;
      this.failures = 0;
      this.wait();
      if (event.lastEventId) this.seen = event.lastEventId;
      this.told('live', 'live');
      if (event.data) this.told(kind, JSON.parse(event.data));
    };
    for (const kind of ['rows', 'job', 'viewer', 'beat']) source.addEventListener(kind, heard(kind));
    source.onerror = () => source === this.source && this.lost();
    this.wait();
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  wait() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.lost(), SILENCE_MS);
  }

  async lost() {
    this.close();
    const pause = PAUSES_MS[Math.min(this.failures, PAUSES_MS.length - 1)];
    this.failures += 1;
    const out = this.failures > 1 && (await refused());
    if (this.source) return;
    this.told('live', out ? 'out' : 'lost');
    this.timer = setTimeout(() => this.open(), pause);
  }

  looked() {
    clearTimeout(this.hidden);
    if (document.hidden) this.hidden = setTimeout(() => this.stays() || this.close(), HIDDEN_MS);
    else if (!this.source) this.open();
  }
}

/** Whether the server is there and does not know this browser (any more). */
async function refused() {
  try {
    return (await fetch('/-/static/main.js', { method: 'HEAD' })).status === 401;
  } catch {
    return false;
  }
}

/** Fetch; `error` is what went wrong. */
export async function ask(path, options) {
  try {
    const response = await fetch(path, options);
    if (response.ok) return { response };
    const body = await response.json().catch(() => ({}));
    return { error: body.message ?? `the page's server returned ${response.status}`, code: response.status };
  } catch (error) {
    return { error: error.name === 'AbortError' ? '' : 'the connection was lost', code: 0 };
  }
}
