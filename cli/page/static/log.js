// The log of a replica as it is written. At most so many lines are kept, and they are drawn once a frame.

import { h } from './dom.js';
import { ask } from './job.js';

const MOST = 5000;
const NEAR_END = 40;

export class LogView {
  constructor(app, page) {
    this.app = app;
    this.page = page;
    const label = (words, field) => h('label', null, words, field);
    this.replica = h('select', { onchange: () => app.ask({ replica: this.replica.value, container: '' }) });
    this.container = h('select', { onchange: () => app.ask({ container: this.container.value }) });
    this.previous = h('input', { type: 'checkbox', onchange: () => app.ask({ previous: this.previous.checked ? '1' : '' }) });
    this.filter = h('input', { type: 'search', placeholder: 'Find', 'aria-label': 'Show lines with', oninput: () => this.find() });
    this.status = h('span', { class: 'grow', role: 'status' });
    this.lines = h('div', { class: 'log', tabindex: '0', role: 'log', 'aria-label': 'Log', 'aria-live': 'off' });
    this.lines.addEventListener('scroll', () => { this.sticks = this.lines.scrollHeight - this.lines.scrollTop - this.lines.clientHeight < NEAR_END; });
    this.containerLabel = label('Container', this.container);
    this.previousLabel = label(this.previous, 'Previous container');
    this.element = h('section', { class: 'panel' }, h('div', { class: 'log-bar' }, label('Replica', this.replica), this.containerLabel, this.previousLabel, this.filter, this.status), this.lines);
    this.sticks = true;
    this.waiting = [];
    this.opened = '';
  }

  update() {
    const replicas = this.page.view.replicas.filter((each) => each.uid);
    const wanted = this.app.query.get('replica') ?? '';
    const best = replicas.find((each) => each.name === wanted) ?? replicas.find((each) => each.trouble && each.started) ?? replicas[0];
    options(this.replica, replicas.map((each) => [each.name, `${each.type} ${each.index}`.trim() || each.name]), best?.name);
    if (!best) {
      this.close();
      this.status.textContent = 'no replica has a pod';
      return;
    }
    const containers = best.containers;
    const container = containers.includes(this.app.query.get('container')) ? this.app.query.get('container') : containers.includes('tensorflow') ? 'tensorflow' : containers[0];
    options(this.container, containers.map((each) => [each, each]), container);
    this.containerLabel.hidden = containers.length < 2;
    this.previousLabel.hidden = !best.inPlace;
    this.previous.checked = Boolean(best.inPlace && this.app.query.get('previous'));
    const signature = JSON.stringify([best.name, best.uid, container, this.previous.checked, best.inPlace, best.started]);
    if (signature !== this.opened) this.start(signature, best, container);
  }

  close() {
    this.stop?.abort();
    this.opened = '';
  }

  async start(signature, replica, container) {
    const same = this.shownReplica === `${replica.name} ${container} ${this.previous.checked}`;
    this.stop?.abort();
    const stop = new AbortController();
    this.stop = stop;
    this.opened = signature;
    if (!same) this.lines.replaceChildren();
    this.waiting = same && this.lines.childElementCount ? [['said', 'the container was started again']] : [];
    this.shownReplica = `${replica.name} ${container} ${this.previous.checked}`;
    this.sticks = true;
    this.status.textContent = 'opening ...';
    const query = new URLSearchParams({ container, tail: '2000', follow: this.previous.checked ? 'false' : 'true' });
    if (this.previous.checked) query.set('previous', 'true');
    const answer = await ask(`/-/log/${encodeURIComponent(this.page.namespace)}/${encodeURIComponent(replica.name)}?${query}`, { signal: stop.signal });
    if (stop.signal.aborted) return;
    if (answer.error) {
      this.status.textContent = answer.error;
      return;
    }
    this.status.textContent = 'follows';
    try {
      await this.read(answer.response, stop.signal);
      if (!stop.signal.aborted) this.status.textContent = 'the log has ended';
    } catch {
      if (!stop.signal.aborted) this.status.textContent = 'the connection was lost';
    }
  }

  async read(response, signal) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      this.add(lines.map((line) => ['', line]));
    }
  }

  add(lines) {
    for (const each of lines) this.waiting.push(each);
    if (this.waiting.length > MOST) this.waiting.splice(0, this.waiting.length - MOST);
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      const found = this.filter.value.toLowerCase();
      this.lines.append(...this.waiting.map(([kind, text]) => h('div', { class: kind || null, hidden: Boolean(found) && !text.toLowerCase().includes(found) }, text)));
      this.waiting = [];
      while (this.lines.childElementCount > MOST) this.lines.firstChild.remove();
      if (this.sticks) this.lines.scrollTop = this.lines.scrollHeight;
    });
  }

  find() {
    const found = this.filter.value.toLowerCase();
    for (const each of this.lines.children) each.hidden = Boolean(found) && !each.textContent.toLowerCase().includes(found);
  }
}

/** Make the options of a select those of `pairs`, without touching them where they are the same. */
function options(select, pairs, chosen) {
  const signature = JSON.stringify(pairs);
  if (select.dataset.signature !== signature) {
    select.dataset.signature = signature;
    select.replaceChildren(...pairs.map(([value, text]) => h('option', { value }, text)));
  }
  if (chosen !== undefined && select.value !== chosen) select.value = chosen;
}
