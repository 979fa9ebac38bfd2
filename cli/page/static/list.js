// The list of jobs: filters and order are in the address, so that a link shows the same.

import { h, keyed, place } from './dom.js';
import { API, age, isOver, meters, pill, plural, span } from './format.js';

const COLUMNS = [
  ['name', 'Job', (row) => row.name],
  ['state', 'State', (row) => row.state],
  ['ready', 'Ready', (row) => row.replicas.reduce((sum, each) => sum + each.ready, 0)],
  ['restarts', 'Restarts', (row) => row.restarts],
  ['queue', 'Queue', (row) => row.queue],
  ['took', 'Duration', (row) => took(row) ?? -1],
  ['age', 'Age', (row) => -(row.created ?? 0)],
];
const RIGHT = new Set(['restarts', 'took', 'age']);
const DOWN_FIRST = new Set(['ready', 'restarts', 'took']);
const MOST = 500;

export const took = (row) => (row.started === null ? null : (row.ended ?? Date.now() / 1000) - row.started);

/** Whether a job fits the words of a filter: each must be in it somewhere, `queue:a` in that field alone. */
export function fits(row, words) {
  const fields = { name: row.name, ns: row.namespace, namespace: row.namespace, state: row.state, queue: row.queue, note: row.note, api: row.api };
  const all = Object.values({ ...fields, api: row.api === API ? '' : row.api }).join('\n').toLowerCase();
  return words.toLowerCase().split(/\s+/).filter(Boolean).every((word) => {
    const [, field, value] = /^([a-z]+):(.*)$/.exec(word) ?? [];
    return field && field in fields ? fields[field].toLowerCase().includes(value) : all.includes(word);
  });
}

export class List {
  constructor(app) {
    this.app = app;
    this.chosen = '';
    this.rows = keyed((row) => this.row(row));
    this.chips = h('div', { class: 'chips', role: 'group', 'aria-label': 'Filter by state' });
    this.input = h('input', {
      type: 'search', placeholder: 'Filter: name, queue:a, ns:team', 'aria-label': 'Filter jobs', autocomplete: 'off', spellcheck: 'false',
      oninput: () => app.ask({ q: this.input.value }), onkeydown: (event) => this.leave(event),
    });
    this.count = h('span', { class: 'sr', role: 'status' });
    this.head = h('tr');
    this.body = h('tbody');
    this.table = h('div', { class: 'panel' }, h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Jobs' },
      h('table', { class: 'jobs' }, h('thead', null, this.head), this.body)));
    this.blank = h('div');
    this.more = h('p', { class: 'muted' });
    this.element = h('div', null, h('div', { class: 'bar' }, h('h1', null, 'Jobs'), this.chips,
      h('div', { class: 'search' }, this.input, h('kbd', { 'aria-hidden': 'true' }, '/'))), this.count, this.table, this.more, this.blank);
  }

  /** Go back to the list with Escape, which would clear the filter first. */
  leave(event) {
    if (event.key !== 'Escape') return;
    event.preventDefault();
    this.input.blur();
  }

  update() {
    const { rows, query, state } = this.app;
    const words = query.get('q') ?? '';
    if (document.activeElement !== this.input) this.input.value = words;
    const found = [...rows.values()].filter((row) => fits(row, words));
    this.showChips(found, query.get('state') ?? '');
    const wanted = query.get('state') ?? '';
    const shown = found.filter((row) => !wanted || row.state === wanted);
    this.showHead(query.get('sort') ?? 'age');
    const ordered = this.order(shown, query.get('sort') ?? 'age');
    place(this.body, this.rows(ordered.slice(0, MOST), (row) => row.key));
    this.keys = ordered.slice(0, MOST).map((row) => row.key);
    this.more.textContent = ordered.length > MOST ? `The first ${MOST} of ${ordered.length} jobs are shown: filter for others.` : '';
    this.more.hidden = ordered.length <= MOST;
    this.count.textContent = plural(ordered.length, 'job');
    this.table.hidden = !ordered.length;
    this.showBlank(rows.size, ordered.length, state);
    this.mark();
  }

  order(rows, sort) {
    const down = sort.startsWith('-');
    const value = (COLUMNS.find(([name]) => name === sort.replace('-', '')) ?? COLUMNS.at(-1))[2];
    const compare = (a, b) => (typeof a === 'string' ? a.localeCompare(b, undefined, { numeric: true }) : a - b);
    return rows.sort((a, b) => (down ? -1 : 1) * compare(value(a), value(b)) || compare(a.key, b.key));
  }

  showChips(rows, wanted) {
    const counts = new Map();
    for (const row of rows) counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
    if (wanted && !counts.has(wanted)) counts.set(wanted, 0);
    const focused = document.activeElement?.dataset?.state;
    const chip = (label, state, count) => h('button', {
      type: 'button', class: 'chip', 'aria-pressed': String(wanted === state), 'data-state': state || 'all', onclick: () => this.app.ask({ state }),
    }, label, h('b', null, String(count)));
    const order = ['Failed', 'Restarting', 'Running', 'Created', 'Suspended', 'Succeeded'];
    const states = [...counts].sort(([a], [b]) => (order.indexOf(a) + 1 || 9) - (order.indexOf(b) + 1 || 9));
    const signature = JSON.stringify([states, wanted, rows.length]);
    if (signature === this.signature) return;
    this.signature = signature;
    this.chips.replaceChildren(chip('All', '', rows.length), ...states.map(([state, count]) => chip(state, state, count)));
    if (focused) this.chips.querySelector(`[data-state="${CSS.escape(focused)}"]`)?.focus();
  }

  showHead(sort) {
    if (this.head.dataset.sort === sort) return;
    this.head.dataset.sort = sort;
    const [name, down] = [sort.replace('-', ''), sort.startsWith('-')];
    this.head.replaceChildren(...COLUMNS.map(([id, label]) => {
      const sorted = id === name;
      const next = sorted ? (down ? id : `-${id}`) : DOWN_FIRST.has(id) ? `-${id}` : id;
      return h('th', { scope: 'col', class: RIGHT.has(id) ? 'right' : null, 'aria-sort': sorted ? (down ? 'descending' : 'ascending') : null },
        h('button', { type: 'button', onclick: () => this.app.ask({ sort: next }) }, label));
    }));
  }

  row(row) {
    const over = isOver(row);
    const length = took(row);
    return h('tr', { 'data-key': row.key },
      h('td', { class: 'name' }, h('a', { href: `/${row.key}`, 'data-link': true }, row.name), h('span', { class: 'ns' }, row.namespace, row.api === API ? null : ` \u00b7 ${row.api}`)),
      h('td', { class: 'state' }, pill(row.state), row.note && h('span', { class: `note${row.deleting ? ' plain' : ''}`, title: row.note }, row.note)),
      h('td', { class: 'types-cell' }, meters(row.replicas, over)),
      h('td', { class: `right num extra${row.restarts ? '' : ' none'}`, 'data-label': 'Restarts' }, row.restarts ? String(row.restarts) : h('span', { class: 'muted' }, '0')),
      h('td', { class: `extra${row.queue ? '' : ' none'}`, 'data-label': 'Queue', title: row.queue }, row.queue),
      h('td', { class: `right num extra${length === null ? ' none' : ''}`, 'data-label': 'Duration' }, length === null ? '' : over ? span(length) : age(row.started)),
      h('td', { class: 'right extra', 'data-label': 'Age' }, age(row.created)));
  }

  showBlank(all, shown, state) {
    const forbidden = state?.troubles.find((each) => each.what === 'TFJobs' && each.forbidden);
    const kind = shown ? '' : forbidden ? 'rights' : !state?.synced ? 'wait' : all ? 'filter' : this.app.viewer ? 'guest' : 'empty';
    const signature = kind + (forbidden?.message ?? '');
    if (this.blank.dataset.kind === signature) return;
    this.blank.dataset.kind = signature;
    this.blank.replaceChildren(...this.blanks(kind, state, forbidden));
  }

  blanks(kind, state, forbidden) {
    const where = state?.namespace ? `the namespace ${state.namespace}` : 'this cluster';
    if (kind === 'rights') {
      const command = `kubectl create ${state.namespace ? 'role' : 'clusterrole'} tfjob-viewer${state.namespace ? ` -n ${state.namespace}` : ''} --verb=get,list,watch --resource=tfjobs.kubeflow.org,pods,pods/log,events`;
      return [h('div', { class: 'blank' }, h('h2', null, `You may not list TFJobs in ${where}`), h('p', null, forbidden.message),
        h('p', null, 'Ask for this role, and for a binding to it:'), h('pre', null, command.split(' ').map((word) => [h('span', null, word), ' '])),
        h('p', null, 'The page shows jobs as soon as the right is there.'))];
    }
    if (kind === 'wait') return [h('p', { class: 'blank' }, 'Reading the jobs of the cluster ...')];
    if (kind === 'filter') {
      return [h('div', { class: 'blank' }, h('h2', null, 'No job fits the filter'),
        h('p', null, h('button', { type: 'button', class: 'button', onclick: () => this.app.ask({ q: '', state: '' }) }, 'Show all jobs')))];
    }
    if (kind === 'guest') {
      return [h('div', { class: 'blank' }, h('h2', null, `There are no jobs in ${where} that you may list`),
        h('p', null, `You are ${this.app.viewer.name}. Jobs show here in each namespace in which you may list TFJobs.`),
        h('pre', null, 'kubectl auth can-i list tfjobs --namespace NAMESPACE'))];
    }
    if (kind === 'empty') {
      return [h('div', { class: 'blank' }, h('h2', null, `There are no jobs in ${where}`), h('p', null, 'A job shows here in the moment in which it is created:'),
        h('pre', null, 'kubectl apply -f job.yaml'))];
    }
    return [];
  }

  /** Move the choice of the keyboard. */
  move(step) {
    const at = this.keys.indexOf(this.chosen);
    this.chosen = this.keys[Math.max(0, Math.min(this.keys.length - 1, at + step))] ?? '';
    this.mark();
    const link = this.body.querySelector('tr.chosen a');
    link?.focus();
    link?.scrollIntoView({ block: 'nearest' });
  }

  mark() {
    for (const each of this.body.children) each.classList.toggle('chosen', each.dataset.key === this.chosen);
  }
}
