// The list of jobs: those that need attention first, with the reason.

import { command, h, show } from './dom.js';
import { API, age, left, meters, now, pill, span, took } from './format.js';
import { Table, compare } from './table.js';

const STATES = ['Failed', 'Restarting', 'Running', 'Created', 'New', 'Suspended', 'Ending', 'Succeeded'];
const DAY_S = 86_400;

/** The priority of a job: 0 needs attention; 1 restarted or waiting; 2 running; 3 suspended; 4 failed long ago; 5 finished. */
function rank(row) {
  if (row.state === 'Failed') return now() - (row.ended ?? row.since ?? 0) < DAY_S ? 0 : 4;
  if (row.deleting || row.over) return 5;
  if (row.state === 'Restarting' || (row.note && !row.quiet)) return 0;
  if (row.state === 'Suspended') return 3;
  return row.note || row.restarts ? 1 : 2;
}

const order = (a, b) => (b.since ?? b.created ?? 0) - (a.since ?? a.created ?? 0) || compare(a.key, b.key);
const COLUMNS = [
  { id: 'name', label: 'Job', value: (row) => row.name },
  { id: 'ns', label: 'Namespace', value: (row) => row.namespace },
  { id: 'state', label: 'State', value: (row) => row.state },
  { id: 'reason', label: 'Reason', value: (row) => row.note },
  { id: 'ready', label: 'Ready', title: 'of finished jobs: succeeded', value: (row) => row.replicas.reduce((all, each) => all + each.ready, 0) },
  { id: 'restarts', label: 'Restarts', value: (row) => row.restarts, number: true, title: 'of all replicas together, and of the whole job' },
  { id: 'queue', label: 'Queue', value: (row) => row.queue, needed: (row) => row.queue },
  { id: 'took', label: 'Duration', value: (row) => took(row) ?? -1, number: true },
  { id: 'age', label: 'Age', value: (row) => now() - (row.created ?? 0), number: true },
];

export class List {
  constructor(app) {
    this.app = app;
    this.table = new Table(app, {
      kind: 'jobs', what: 'job', hint: 'Filter: name, queue:a, note:OOM', states: STATES, columns: COLUMNS, row: jobRow, keyOf: (row) => row.key, rank, order,
      fields: (row) => ({ name: row.name, ns: row.namespace, namespace: row.namespace, state: row.state, queue: row.queue, note: row.note, why: row.why, api: row.api === API ? '' : row.api }),
    });
    this.choice = h('select', { 'aria-label': 'Namespace', onchange: () => app.ask({ ns: this.choice.value, page: '' }) });
    this.table.bar.prepend(h('h1', null, 'Jobs'), this.choice);
    this.blank = h('div');
    this.element = h('div', null, this.table.element, this.blank);
  }

  update() {
    const { rows, query, state } = this.app;
    document.title = 'TFJobs';
    const wanted = query.get('ns') ?? '';
    const all = [...rows.values()];
    const found = wanted ? all.filter((row) => row.namespace === wanted) : all;
    const namespaces = [...new Set(all.map((row) => row.namespace))].sort(compare);
    show(this.choice, [wanted, namespaces], () => ['', ...namespaces].map((each) => h('option', { value: each, selected: each === wanted }, each || 'All namespaces')));
    this.choice.hidden = namespaces.length < 2 && !wanted;
    this.table.panel.classList.toggle('without-ns', namespaces.length < 2 || Boolean(wanted));
    const shown = this.table.update(found, all);
    const forbidden = this.app.forbids('TFJobs');
    const kind = shown ? '' : forbidden ? 'rights' : !state?.synced ? 'wait' : rows.size ? 'filter' : this.app.viewer ? 'guest' : 'empty';
    show(this.blank, [kind, forbidden, this.app.reason], () => this.blanks(kind, state, forbidden));
  }

  blanks(kind, state, forbidden) {
    const where = state?.namespace ? `the namespace ${state.namespace}` : 'this cluster';
    const blank = (title, ...rest) => h('div', { class: 'blank' }, h('h2', null, title), rest.map((each) => h('p', null, each)));
    if (kind === 'rights') {
      const [role, scope] = state.namespace ? ['role', ` -n ${state.namespace}`] : ['clusterrole', ''];
      return blank(`You may not list TFJobs in ${where}`, forbidden.message, 'Ask for this role, and for a binding to it:',
        command(`kubectl create ${role} tfjob-viewer${scope} --verb=get,list,watch --resource=tfjobs.kubeflow.org,pods,pods/log,events`),
        'Jobs appear as soon as the permission is granted.');
    }
    if (kind === 'wait') return h('p', { class: 'blank' }, this.app.reason ? null : 'Reading the jobs of the cluster ...');
    if (kind === 'filter') {
      return blank('No job matches the filter', h('button', { type: 'button', class: 'button', onclick: () => this.app.ask({ q: '', state: '', ns: '', page: '' }) }, 'Show all jobs'));
    }
    if (kind === 'guest') {
      return blank(`There are no jobs in ${where} that you may list`, `You are ${this.app.viewer.name}. The page shows the jobs of each namespace in which you may list TFJobs.`,
        command('kubectl auth can-i list tfjobs --namespace NAMESPACE'));
    }
    return kind === 'empty' ? blank(`There are no jobs in ${where}`, 'New jobs appear here as soon as they are created:', command('kubectl apply -f job.yaml')) : [];
  }
}

function jobRow(row) {
  const { note, over } = row;
  const length = took(row);
  const words = row.deleting ? note : [note, row.why].filter(Boolean).join(': ');
  const cell = (id, label, value, number = true) => h('td', { class: `${id}${number ? ' right num' : ''}${value ? '' : ' none'}`, 'data-label': label }, value);
  return h('tr', { 'data-key': row.key },
    h('td', { class: 'name' }, h('a', { href: `/${row.key}`, 'data-link': true, title: row.name }, row.name), row.api !== API && h('span', { class: 'muted' }, ` ${row.api}`)),
    cell('ns', '', row.namespace, false),
    h('td', { class: 'state' }, pill(row.state)),
    h('td', { class: `reason${words ? '' : ' none'}`, title: words }, h('div', { class: 'clamp' }, note && h('b', { class: row.quiet ? 'muted' : 'bad' }, note, row.until !== null && [':', left(row.until)]), words.slice(note.length))),
    h('td', { class: 'ready' }, meters(row.replicas, over)),
    cell('restarts', 'Restarts', row.restarts ? String(row.restarts) : ''),
    cell('queue', 'Queue', row.queue, false),
    cell('took', 'Duration', length === null ? '' : over ? span(length) : age(row.started)),
    cell('age', 'Age', age(row.created)));
}
