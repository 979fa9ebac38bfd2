// The live logs of a job, of one replica or all. The number of lines is limited, and they are drawn once per frame.

import { h, show } from './dom.js';
import { urgency } from './replicas.js';
import { ask, readLines } from './stream.js';
import { MOST as MOST_REPLICAS } from './table.js';

const MOST = 5000;
const NEAR_END = 40;
const ALL = 'all';
const TAIL = 2000;
const TAIL_OF_EACH = 100;
const [FOLLOWING, END] = ['following', 'end of the log'];

export class LogView {
  constructor(app, page) {
    this.app = app;
    this.page = page;
    const label = (words, field) => h('label', null, words, field);
    this.replica = h('select', { onchange: () => app.ask({ replica: this.replica.value, container: '' }) });
    this.container = h('select', { onchange: () => app.ask({ container: this.container.value }) });
    this.previous = h('input', { type: 'checkbox', onchange: () => app.ask({ previous: this.previous.checked ? '1' : '' }) });
    this.filter = h('input', { type: 'search', placeholder: 'Find', 'aria-label': 'Show lines with', oninput: () => this.find(this.lines.children) });
    this.status = h('span', { class: 'grow', role: 'status' });
    this.download = h('button', { type: 'button', class: 'button', onclick: () => this.save() }, 'Download');
    this.lines = h('div', { class: 'log', tabindex: '0', role: 'log', 'aria-label': 'Log', 'aria-live': 'off' });
    this.lines.addEventListener('scroll', () => { this.sticks = this.lines.scrollHeight - this.lines.scrollTop - this.lines.clientHeight < NEAR_END; });
    this.containerLabel = label('Container', this.container);
    this.previousLabel = label(this.previous, 'Previous container');
    this.element = h('section', { class: 'panel' }, h('div', { class: 'log-bar' }, label('Replica', this.replica), this.containerLabel, this.previousLabel, this.filter, this.status, this.download), this.lines);
    this.sticks = true;
    this.waiting = [];
    this.opened = '';
  }

  update() {
    const replicas = this.page.view.replicas.filter((each) => each.uid);
    this.ended = this.page.gone || (this.page.view.row.over && !replicas.some((each) => each.state === 'Running'));
    if (this.ended && this.status.textContent === FOLLOWING) this.status.textContent = END;
    const wanted = this.app.query.get('replica') ?? '';
    const worst = replicas.toSorted(urgency);
    const all = wanted === ALL;
    const best = replicas.find((each) => each.name === wanted) ?? worst.find((each) => each.trouble && each.started) ?? replicas[0];
    this.download.hidden = !best;
    if (!best) {
      this.close();
      this.status.textContent = 'no replica has a pod';
      return;
    }
    // If there are too many for a menu, use the filter of the replicas tab, which links to logs.
    const offered = replicas.length > MOST_REPLICAS ? [...new Set([best, ...worst])].slice(0, MOST_REPLICAS - 1) : replicas;
    const names = [...(replicas.length > 1 ? [[ALL, 'All replicas']] : []), ...offered.map((each) => [each.name, `${each.type} ${each.index}`.trim() || each.name])];
    options(this.replica, names, all ? ALL : best.name);
    const asked = this.app.query.get('container');
    const container = best.containers.includes(asked) ? asked : best.containers.includes('tensorflow') ? 'tensorflow' : best.containers[0];
    options(this.container, best.containers.map((each) => [each, each]), container);
    this.containerLabel.hidden = all || best.containers.length < 2;
    this.previousLabel.hidden = all || !best.inPlace;
    this.previous.checked = Boolean(best.inPlace && this.app.query.get('previous'));
    const what = { replica: best.name, container, previous: this.previous.checked };
    const [shown, run] = all ? [ALL, ''] : [JSON.stringify(what), `${best.uid} ${best.inPlace} ${best.started}`];
    if (shown + run !== this.opened) this.start(shown, run, all ? null : what);
  }

  close() {
    this.stop?.abort();
    this.opened = '';
  }

  /** The URL of the log of a container, or of all replicas. */
  address(what, query) {
    const path = what ? `log/${encodeURIComponent(this.page.namespace)}/${encodeURIComponent(what.replica)}` : `logs/${this.page.path}`;
    const own = what ? { container: what.container, ...(what.previous ? { previous: 'true' } : {}) } : {};
    return `/-/${path}?${new URLSearchParams({ ...own, ...query })}`;
  }

  async start(shown, run, what) {
    const same = this.shown === shown && this.lines.childElementCount;
    this.stop?.abort();
    const stop = new AbortController();
    Object.assign(this, { stop, shown, what, opened: shown + run, sticks: true, waiting: same ? [['said', 'the container was restarted']] : [] });
    if (!same) this.lines.replaceChildren();
    this.status.textContent = 'opening ...';
    const query = { tail: what ? TAIL : TAIL_OF_EACH, follow: String(!what?.previous) };
    const answer = await ask(this.address(what, query), { signal: stop.signal });
    if (stop.signal.aborted) return;
    this.status.textContent = answer.error ?? 'no lines yet';
    if (answer.error) return;
    try {
      await readLines(answer.response, (lines) => !stop.signal.aborted && this.add(lines.map((line) => ['', line])));
      if (!stop.signal.aborted) this.status.textContent = this.lines.childElementCount || this.waiting.length ? END : 'the log is empty';
    } catch {
      if (!stop.signal.aborted) this.status.textContent = 'the connection was lost';
    }
  }

  /** Save the complete log from the server, which may be longer than what is shown. */
  async save() {
    this.download.disabled = true;
    const answer = await ask(this.address(this.what, { download: 'true' }));
    const pieces = [];
    let size = 0;
    try {
      for await (const piece of answer.response?.body ?? []) {
        pieces.push(piece);
        size += piece.length;
        this.download.textContent = `${Math.ceil(size / 1024)} KiB ...`; // a thousand replicas take a minute
      }
    } catch {
      answer.error = 'the connection was lost: the download is not complete';
    }
    this.download.textContent = 'Download';
    this.download.disabled = false;
    if (answer.error) {
      this.status.textContent = answer.error;
      return;
    }
    const url = URL.createObjectURL(new Blob(pieces));
    h('a', { href: url, download: `${this.page.namespace}-${this.what?.replica ?? this.page.name}.log` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }

  add(lines) {
    for (const each of lines) this.waiting.push(each);
    if (this.waiting.length > MOST) this.waiting.splice(0, this.waiting.length - MOST);
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      const added = this.waiting.map(([kind, text]) => h('div', { class: kind || null }, text));
      this.find(added);
      this.lines.append(...added);
      if (this.status.textContent === 'no lines yet') this.status.textContent = this.ended ? END : FOLLOWING;
      this.waiting = [];
      while (this.lines.childElementCount > MOST) this.lines.firstChild.remove();
      if (this.sticks) this.lines.scrollTop = this.lines.scrollHeight;
    });
  }

  find(lines) {
    const found = this.filter.value.toLowerCase();
    for (const each of lines) each.hidden = Boolean(found) && !each.textContent.toLowerCase().includes(found);
  }
}

function options(select, pairs, chosen) {
  show(select, pairs, () => pairs.map(([value, text]) => h('option', { value }, text)));
  if (select.value !== chosen) select.value = chosen;
}
