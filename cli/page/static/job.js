// The page of a job: its state, why it is not running, and tabs with details.

import { command, copyButton, forCluster, h, headings, keyed, place, show, tablePanel } from './dom.js';
import { API, age, left, meters, now, pill, plural, span, took } from './format.js';
import { Curves } from './curves.js';
import { LogView } from './log.js';
import { Replicas } from './replicas.js';
import { ask } from './stream.js';
import { Timeline } from './timeline.js';

export const TABS = [['replicas', 'Replicas'], ['timeline', 'Timeline'], ['curves', 'Curves'], ['logs', 'Logs'], ['events', 'Events'], ['manifest', 'Manifest']];
const LATE_S = 20;
const ASK_AGAIN_MS = 60_000; // it reads ten lists, some of the whole cluster

export class JobPage {
  /** `parts` are those of its key: namespace, kind (only in the oldest API) and name. */
  constructor(app, parts) {
    this.app = app;
    this.namespace = parts[0];
    this.name = parts.at(-1);
    this.key = parts.join('/');
    this.path = parts.map(encodeURIComponent).join('/');
    this.view = undefined; // undefined before the first message; null if the job does not exist
    this.head = h('div');
    this.menu = h('dl');
    this.more = h('details', { class: 'commands' }, h('summary', null, 'Commands'), this.menu);
    this.why = h('div');
    this.sizes = new ResizeObserver(([{ target: box }]) => {
      box.lastElementChild.hidden = true; // the button "Show all" also takes space
      box.lastElementChild.hidden = box.scrollHeight <= box.clientHeight;
    });
    this.tabs = h('nav', { class: 'tabs', 'aria-label': 'Of this job' });
    this.body = h('div');
    this.element = h('div', null, this.head, this.more, this.why, this.tabs, this.body);
    this.parts = {};
    this.asked = { state: '', at: 0 };
    this.board = {}; // the address of its TensorBoard, and the time of the request
  }

  take(view) {
    this.gone = view === null && Boolean(this.view);
    if (!this.gone) this.view = view;
  }

  close() {
    for (const each of Object.values(this.parts)) each.close?.();
    this.closed = true;
  }

  address(tab) {
    return `/${this.path}${tab === TABS[0][0] ? '' : `?tab=${tab}`}`;
  }

  /** The visible table for keyboard navigation, if any. */
  get table() {
    return this.parts[this.tab]?.table;
  }

  update() {
    document.title = `${this.name} - TFJobs`;
    this.tabs.hidden = !this.view;
    this.more.hidden = !this.view || this.gone;
    if (!this.view) {
      this.showMissing();
      return;
    }
    const tab = TABS.some(([id]) => id === this.app.query.get('tab')) ? this.app.query.get('tab') : TABS[0][0];
    this.showHead();
    this.explain();
    this.findBoard();
    this.showTabs(tab);
    if (this.tab !== tab) {
      this.parts[this.tab]?.close?.();
      this.tab = tab;
      this.parts[tab] ??= this.make(tab);
      place(this.body, [this.parts[tab].element]);
    }
    this.parts[tab].update();
  }

  showMissing() {
    const { state, viewer } = this.app;
    const forbidden = this.app.forbids('TFJobs');
    const outside = state?.namespace && state.namespace !== this.namespace;
    const words = this.view === undefined ? [this.app.reason ? 'Not known' : 'Reading the job ...', '']
      : forbidden ? ['You may not read this job', forbidden.message]
      : outside ? [`This page shows the namespace ${state.namespace} alone`, viewer ? 'It does not show other namespaces.' : forCluster(`Start it with kubectl tfjob dashboard -n ${this.namespace}, if you may read the jobs there.`)]
      : !state?.synced ? ['Reading the job ...', '']
      : [`There is no job ${this.name} in ${this.namespace}`, viewer ? 'It may have been deleted, or you may not list the TFJobs of that namespace.' : 'It may have been deleted.'];
    show(this.head, words, () => h('div', { class: 'blank' }, h('h1', null, words[0]), h('p', null, words[1]), h('p', null, h('a', { href: '/', 'data-link': true }, 'All jobs'))));
  }

  showHead() {
    const { row, message, held, mistakes, tensorboard, alpha, attempts, accelerators } = this.view;
    const { over } = row;
    const { watch } = this.app;
    const length = took(row);
    const words = this.gone ? 'This job was deleted. The page shows its last known state.' : mistakes || held || message;
    const fact = (label, value) => h('div', null, h('dt', null, label), h('dd', null, value));
    const used = attempts.most === null ? '' : `, ${attempts.counted} of ${plural(attempts.most, 'restart')} used`;
    const avoided = over ? [] : attempts.avoided.filter((each) => each.until > now()).map((each, number) => [number ? ', ' : '', `${each.name} (${plural(each.failures, 'failure')}, `, left(each.until), ' left)']);
    show(this.head, [row, words, attempts, accelerators, this.board.url, watch.possible && watch.words(this.key), this.gone], () => [
      h('div', { class: 'crumbs' }, h('a', { href: this.app.home, 'data-link': true }, 'Jobs'), ' / ', h('a', { href: `/?ns=${encodeURIComponent(row.namespace)}`, 'data-link': true }, row.namespace)),
      h('div', { class: 'title' }, h('h1', null, row.name), pill(this.gone ? 'Deleted' : row.state, { big: true }),
        !over && !this.gone && watch.possible && h('button', { type: 'button', class: 'button', 'data-focus': 'watch', 'aria-pressed': String(watch.keys.has(this.key)),
          onclick: () => watch.toggle(this.key) }, watch.words(this.key)),
        !this.gone && this.board.url && h('a', { class: 'button', href: this.board.url, target: '_blank', rel: 'noopener noreferrer' }, 'TensorBoard')),
      h('p', { class: 'lead' }, words),
      h('dl', { class: 'facts' },
        row.api !== API && fact('API', row.api), fact('Replicas', meters(row.replicas, over)), fact('Restarts', String(row.restarts)),
        attempts.number > 0 && fact('Attempt', `${attempts.number}${used}`), !over && attempts.next !== null && fact('Next restart in', left(attempts.next)),
        avoided.length > 0 && fact('Avoided nodes', avoided),
        row.queue && fact('Queue', row.queue), fact('Created', age(row.created, ' ago')),
        length !== null && fact(over ? 'Duration' : 'Started', over ? span(length) : age(row.started, ' ago')),
        over && row.ended !== null && fact('Ended', age(row.ended, ' ago')),
        accelerators.length > 0 && fact('Held by ended pods', accelerators.map((each) => h('div', null, each))))]);
    show(this.menu, this.commands(row, tensorboard, alpha), (commands) => commands.map(([label, text]) => [h('dt', null, label), h('dd', null, command(text))]));
  }

  /** Commands for changes, which the read-only page does not make itself. */
  commands(row, tensorboard, alpha) {
    const name = row.api === API ? row.name : `tfjob.${row.api}/${row.name}`;
    const tfjob = (verb, more = '') => `kubectl tfjob ${verb} -n ${row.namespace} ${name}${more}`;
    const { over } = row;
    const settled = over || row.state === 'Ending'; // its end is decided
    return [
      tensorboard && ['TensorBoard', tfjob('tensorboard')],
      !over && (row.state === 'Suspended' ? ['Resume', tfjob('resume')] : ['Suspend', tfjob('suspend')]),
      !settled && row.state !== 'Suspended' && ['Restart', tfjob('restart', alpha ? row.replicas.map((each) => ` --type=${each.type.toLowerCase()}`).join('') : '')],
      !settled && row.replicas.some((each) => each.type === 'Worker') && ['Scale', tfjob('scale', ' worker=COUNT')],
      row.api === API && ['Clone', `kubectl -n ${row.namespace} get tfjobs.${row.api} ${row.name} -o yaml | kubectl tfjob submit ${row.name}-copy -n ${row.namespace} -f -`],
      ['Delete', `kubectl -n ${row.namespace} delete tfjobs.${row.api} ${row.name}`],
    ].filter(Boolean);
  }

  showTabs(tab) {
    const warnings = this.view.events.filter((each) => each.type === 'Warning').length;
    const counts = { replicas: this.view.replicas.length, events: warnings && plural(warnings, 'warning') };
    show(this.tabs, [tab, counts], () => TABS.map(([id, label]) => h('a', {
      href: this.address(id), 'data-link': true, 'data-focus': id, 'aria-current': id === tab ? 'page' : null,
    }, label, counts[id] ? h('b', null, String(counts[id])) : null)));
  }

  make(tab) {
    if (tab === 'timeline') return new Timeline(this);
    if (tab === 'curves') return new Curves(this.app, this);
    if (tab === 'logs') return new LogView(this.app, this);
    if (tab === 'manifest') return this.manifest();
    return tab === 'events' ? this.events() : new Replicas(this.app, this);
  }

  events() {
    const rows = keyed(eventRow);
    const body = h('tbody');
    const panel = tablePanel('events', 'Events', headings(['Age', 'Type', 'Reason', 'Object', 'Message']), body);
    const none = h('p', { class: 'blank' }, 'No events. The API server keeps them for an hour.');
    return { element: h('div', null, panel, none), update: () => {
      place(body, rows(this.view.events, (each) => each.id));
      panel.hidden = !this.view.events.length;
      none.hidden = !panel.hidden;
    } };
  }

  manifest() {
    const text = h('pre', { class: 'manifest', tabindex: '0', role: 'region', 'aria-label': 'Manifest' });
    let shown = '';
    const update = async () => {
      const version = `${this.view.row.uid} ${this.view.row.state}`;
      if (shown === version || this.gone) return;
      shown = version;
      const answer = await ask(`/-/manifest/${this.path}`);
      text.replaceChildren(...(answer.error ? [answer.error] : (await answer.response.text()).split('\n').flatMap(yamlLine)));
    };
    return { element: h('section', { class: 'panel' }, h('h2', null, 'Manifest', copyButton(text)), text), update };
  }

  /** Request the address of TensorBoard's load balancer, which is assigned with a delay. Without one the command is shown. */
  async findBoard() {
    if (!this.view.tensorboard || this.gone || this.board.url || Date.now() - (this.board.at ?? 0) < ASK_AGAIN_MS) return;
    this.board = { at: Date.now() };
    const answer = await ask(`/-/tensorboard/${this.path}`);
    if (answer.error || this.closed) return;
    this.board.url = (await answer.response.json()).url;
    this.app.later();
  }

  /**
   * Show the problem: first the row's message, then the diagnosis of `explain`; refreshed on changes and periodically.
   * Logs may show one in a job whose state has none: a silent replica, or a success after an exception.
   */
  async explain() {
    const { row, mistakes } = this.view;
    const { over } = row;
    const ends = row.state === 'Ending';
    const byUser = row.state === 'Suspended' && row.quiet && !row.queue;
    const possible = !this.gone && !row.deleting && !byUser;
    const wrong = possible && (row.note || mistakes || row.state === 'Failed' || row.state === 'Restarting' || ends);
    const due = possible && ((wrong && !row.quiet) || over || Date.now() / 1000 - (row.created ?? 0) > LATE_S);
    const state = due ? JSON.stringify([row.state, row.note, mistakes]) : '';
    if (!possible || (!wrong && state !== this.asked.state)) this.found = null;
    const shown = wrong || this.found?.causes.length; // a job that seems healthy has a box only if there is a cause
    show(this.why, shown ? [row.note, row.why, row.state, this.found, this.whole] : [], () => shown && this.box(row));
    const again = due && !document.hidden && Date.now() - this.asked.at > ASK_AGAIN_MS && !over;
    if (state === this.asked.state && !again) return;
    this.asked = { state, at: Date.now() };
    clearTimeout(this.timer);
    if (!due) return;
    const answer = await ask(`/-/explain/${this.path}`);
    if (this.asked.state !== state || this.closed) return;
    if (!over) this.timer = setTimeout(() => !this.closed && this.app.later(), ASK_AGAIN_MS + 100);
    this.found = answer.error ? { causes: [], unseen: '' } : await answer.response.json();
    this.app.later();
  }

  /** The box has a fixed height, so that the content below does not move when the diagnosis arrives. */
  box(row) {
    const [first, ...others] = this.found?.causes ?? [];
    const proofs = (cause) => h('ul', { class: 'proofs' }, cause.evidence.map((line) => h('li', null, line)));
    const advice = (cause) => h('ul', { class: 'advice' }, cause.to_do.map((line) => {
      const [, prose, text] = /^(.*?)(kubectl .*)?$/s.exec(line);
      return h('li', null, prose && h('span', null, prose), text && command(text));
    }));
    const level = first ? { error: '', warning: ' warning' }[first.severity] ?? ' note-level' : (row.note && !row.quiet) || row.state === 'Failed' ? '' : ' note-level';
    const box = h('section', { class: `why${level}${this.whole ? ' whole' : ''}`, 'aria-label': 'Why', 'aria-live': 'polite', tabindex: '0' },
      first ? [h('h2', null, first.title), proofs(first), advice(first)]
        : [h('h2', null, row.note || row.state), h('p', { class: 'muted' }, row.why || this.view.message), !this.found && h('p', { class: 'muted' }, 'Looking for the cause ...')],
      others.length > 0 && h('details', null, h('summary', null, `${others.length} more`), others.map((cause) => [h('h3', null, cause.title), proofs(cause), advice(cause)])),
      this.found?.unseen && h('details', null, h('summary', null, 'Not checked'), h('p', null, this.found.unseen)),
      !this.whole && h('button', { type: 'button', class: 'button all', hidden: true, onclick: () => { this.whole = true; this.app.later(); } }, 'Show all'));
    this.sizes.disconnect();
    if (!this.whole) this.sizes.observe(box, { box: 'border-box' });
    return box;
  }
}

function eventRow(each) {
  return h('tr', null,
    h('td', null, age(each.at)), h('td', { class: each.type === 'Warning' ? 'warn' : 'muted' }, each.type), h('td', { class: 'cause' }, each.reason),
    h('td', { class: 'muted' }, each.object || 'TFJob'),
    h('td', { class: 'words' }, each.message, each.count > 1 && h('span', { class: 'muted' }, ` (${each.count} times)`)));
}

function yamlLine(line) {
  const [, space, key, rest] = /^(\s*(?:- )?)([\w./-]+:)(.*)$/.exec(line) ?? [];
  return key ? [space, h('span', { class: 'key' }, key), rest, '\n'] : [line, '\n'];
}
