// The replicas of a job: those with problems first. CPU and memory are shown if the metrics API is available.

import { h } from './dom.js';
import { age, bytes, cores, pill } from './format.js';
import { ask } from './stream.js';
import { Table } from './table.js';

const EVERY_MS = 15_000;

/** The priority of a replica: 0 needs attention; 1 not running yet; 2 restarted; 3 running; 4 finished. */
function rank(each) {
  if (each.trouble) return 0;
  if (each.state === 'Succeeded') return 4;
  return each.state !== 'Running' || !each.ready ? 1 : each.restarts ? 2 : 3;
}

const order = (a, b) => b.restarts - a.restarts;
export const urgency = (a, b) => rank(a) - rank(b) || order(a, b);
const COLUMNS = [
  { id: 'name', label: 'Replica', value: (each) => `${each.type} ${each.index}` },
  { id: 'state', label: 'State', value: (each) => each.state },
  { id: 'restarts', label: 'Restarts', value: (each) => each.restarts, number: true, title: 'of all pods of the replica' },
  { id: 'exit', label: 'Exit code', value: (each) => each.exit ?? -1, number: true, needed: (each) => each.exit !== null },
  { id: 'cpu', label: 'CPU', value: (each) => each.cpu ?? -1, number: true, needed: (each) => each.cpu !== undefined },
  { id: 'memory', label: 'Memory', value: (each) => each.memory ?? -1, number: true, needed: (each) => each.memory !== undefined },
  { id: 'node', label: 'Node', value: (each) => each.node },
  { id: 'age', label: 'Age', value: (each) => -(each.created ?? 0), number: true },
  { id: 'words', label: 'Last message' },
  { id: 'link', label: 'Log' },
];

/** The end of a message, which names an error, below a traceback. */
const lastLines = (message) => message.split(' / ').slice(-2).join(' / ');

export class Replicas {
  constructor(app, page) {
    this.app = app;
    this.page = page;
    this.usage = { pods: {}, message: '' };
    this.table = new Table(app, {
      kind: 'replicas', what: 'replica', hint: 'Filter: worker-7, node:gpu', states: ['Failed', 'Running', 'Succeeded'], columns: COLUMNS, rank, order,
      row: (each) => this.row(each), keyOf: (each) => each.uid || each.name,
      fields: (each) => ({ name: each.name, type: each.type, index: String(each.index), state: each.state, node: each.node, note: each.trouble, message: each.message }),
    });
    this.blank = h('p', { class: 'blank' });
    this.measured = h('p', { class: 'pages', role: 'status' });
    this.element = h('div', null, this.table.element, this.blank, this.measured);
  }

  update() {
    const items = this.page.view.replicas.map((each) => ({ ...each, ...this.usage.pods[each.name] }));
    this.table.bar.hidden = items.length < 2;
    this.blank.hidden = this.table.update(items) > 0;
    this.blank.textContent = items.length ? 'No replica matches the filter.' : 'This job has no replicas.';
    this.runs = items.some((each) => each.state === 'Running');
    this.measured.textContent = this.runs && this.usage.message ? `CPU and memory are not shown: ${this.usage.message}` : '';
    this.timer ??= setTimeout(() => this.measure(), 0);
  }

  async measure() {
    const answer = document.hidden || !this.runs ? {} : await ask(`/-/usage/${this.page.path}`);
    if (answer.response) this.usage = await answer.response.json();
    else if (answer.error) this.usage = { pods: {}, message: answer.error };
    if (!this.timer) return;
    this.timer = setTimeout(() => this.measure(), EVERY_MS);
    this.app.later();
  }

  close() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  row(each) {
    const cell = (id, label, value, more = '') => h('td', { class: `${id} right num${more}${value ? '' : ' none'}`, 'data-label': label }, value);
    return h('tr', { 'data-key': each.uid || each.name },
      h('td', { class: 'name' }, h('strong', null, each.type ? `${each.type} ${each.index}` : each.name), h('span', { class: 'sr' }, each.name)),
      h('td', { class: 'state' }, pill(each.state, { bad: Boolean(each.trouble) }), each.state === 'Running' && !each.ready && h('span', { class: 'muted' }, ' not ready'),
        each.trouble && each.trouble !== each.state && !each.trouble.startsWith('ExitCode') && h('span', { class: 'bad' }, ` ${each.trouble}`)),
      cell('restarts', 'Restarts', each.restarts ? String(each.restarts) : ''),
      cell('exit', 'Exit code', each.exit === null ? '' : String(each.exit), each.exit ? ' bad' : ''),
      cell('cpu', 'CPU', each.cpu === undefined ? '' : cores(each.cpu)), cell('memory', 'Memory', each.memory === undefined ? '' : bytes(each.memory)),
      h('td', { class: `node mono${each.node ? '' : ' none'}` }, each.node), cell('age', 'Age', each.created && age(each.created)),
      h('td', { class: `words${each.message ? '' : ' none'}`, title: each.message }, h('div', { class: 'clamp' }, lastLines(each.message))),
      h('td', { class: 'link' }, each.uid && h('a', { href: `/${this.page.path}?tab=logs&replica=${encodeURIComponent(each.name)}`, 'data-link': true, 'aria-label': `Log of ${each.name}` }, 'Log')));
  }
}
