// The page of one job: how it stands, why not, and tabs for what it does.

import { h, keyed, place } from './dom.js';
import { API, age, clock, isOver, meters, pill, span } from './format.js';
import { took } from './list.js';
import { Curves } from './curves.js';
import { LogView } from './log.js';
import { Timeline } from './timeline.js';

export const TABS = [['replicas', 'Replicas'], ['timeline', 'Timeline'], ['curves', 'Curves'], ['logs', 'Logs'], ['events', 'Events'], ['manifest', 'Manifest']];
const RUNS = new Set(['Running', 'Restarting', 'CleanUp']);
const ASK_AGAIN_MS = 60_000; // it reads ten lists, some of them of the whole cluster

export class JobPage {
  /** `parts` are those of its key: a namespace, for a job of the first API its kind, and a name. */
  constructor(app, parts) {
    this.app = app;
    this.namespace = parts[0];
    this.name = parts.at(-1);
    this.key = parts.join('/');
    this.path = parts.map(encodeURIComponent).join('/');
    this.view = undefined; // not heard of yet; null for a job that is not there
    this.replicaRows = keyed((each) => this.replica(each));
    this.eventRows = keyed((each) => this.event(each));
    this.why = h('div', { 'aria-live': 'polite' });
    this.head = h('div');
    this.tabs = h('nav', { class: 'tabs', 'aria-label': 'Of this job' });
    this.body = h('div');
    this.element = h('div', null, this.head, this.why, this.tabs, this.body);
    this.parts = {};
    this.asked = { state: '', at: 0 };
  }

  take(view) {
    this.gone = view === null && Boolean(this.view);
    if (!this.gone) this.view = view;
  }

  close() {
    this.parts.logs?.close();
    this.parts.curves?.close();
    this.closed = true;
  }

  open(tab) {
    this.app.ask({ tab: tab === TABS[0][0] ? '' : tab });
  }

  update() {
    document.title = `${this.name} - TFJobs`;
    this.tabs.hidden = !this.view;
    if (!this.view) {
      this.showMissing();
      return;
    }
    const tab = TABS.some(([id]) => id === this.app.query.get('tab')) ? this.app.query.get('tab') : TABS[0][0];
    this.showHead();
    this.showTabs(tab);
    this.showBody(tab);
    this.explain();
  }

  showMissing() {
    const forbidden = this.app.state?.troubles.find((each) => each.what === 'TFJobs' && each.forbidden);
    const outside = this.app.state?.namespace && this.app.state.namespace !== this.namespace;
    const words = this.view === undefined ? ['Reading the job ...', '']
      : forbidden ? ['You may not read this job', forbidden.message]
      : outside ? [`This page shows the namespace ${this.app.state.namespace} alone`, this.app.viewer ? 'Others are not shown by it.' : `Start it with kubectl tfjob dashboard -n ${this.namespace}, if you may read the jobs there.`]
      : !this.app.state?.synced ? ['Reading the job ...', '']
      : [`There is no job ${this.name} in ${this.namespace}`, this.app.viewer ? 'It may have been deleted, or you may not list the TFJobs of that namespace.' : 'It may have been deleted.'];
    const signature = words.join('\n');
    if (this.head.dataset.missing === signature) return;
    this.head.dataset.missing = signature;
    this.head.replaceChildren(h('div', { class: 'blank' }, h('h1', null, words[0]), h('p', null, words[1]), h('p', null, h('a', { href: '/', 'data-link': true }, 'All jobs'))));
  }

  showHead() {
    const { row, message, held, mistakes } = this.view;
    const signature = JSON.stringify([row, message, held, mistakes, this.gone]);
    if (signature === this.head.dataset.signature) return;
    this.head.dataset.signature = signature;
    const over = isOver(row);
    const fact = (label, value) => h('div', null, h('dt', null, label), h('dd', null, value));
    const length = took(row);
    const words = this.gone ? 'This job was deleted. What follows is the last that was seen of it.' : mistakes || held || message;
    this.head.replaceChildren(
      h('div', { class: 'crumbs' }, h('a', { href: '/', 'data-link': true }, 'Jobs'), ' / ', h('a', { href: `/?q=${encodeURIComponent(`ns:${row.namespace}`)}`, 'data-link': true }, row.namespace)),
      h('div', { class: 'title' }, h('h1', null, row.name), pill(this.gone ? 'Deleted' : row.state, { big: true })),
      h('p', { class: 'lead' }, words),
      h('dl', { class: 'facts' },
        row.api !== API && fact('API', row.api), fact('Replicas', meters(row.replicas, over)), fact('Restarts', String(row.restarts)), row.queue && fact('Queue', row.queue),
        fact('Created', h('span', null, age(row.created, ' ago'))),
        length !== null && row.state !== 'Suspended' && fact(over ? 'Duration' : RUNS.has(row.state) ? 'Running for' : 'Waiting for', over ? span(length) : age(row.started)),
        over && row.ended !== null && fact('Ended', age(row.ended, ' ago'))));
  }

  showTabs(tab) {
    const warnings = this.view.events.filter((each) => each.type === 'Warning').length;
    const signature = `${tab} ${warnings} ${this.view.replicas.length}`;
    if (this.tabs.dataset.signature === signature) return;
    this.tabs.dataset.signature = signature;
    const counts = { replicas: this.view.replicas.length, events: warnings ? `${warnings} warning${warnings === 1 ? '' : 's'}` : '' };
    this.tabs.replaceChildren(...TABS.map(([id, label]) => h('a', {
      href: `/${this.path}${id === TABS[0][0] ? '' : `?tab=${id}`}`, 'data-link': true, 'aria-current': id === tab ? 'page' : null,
    }, label, counts[id] ? h('b', null, String(counts[id])) : null)));
  }

  showBody(tab) {
    if (this.tab !== tab) {
      this.parts[this.tab]?.close?.();
      this.tab = tab;
      this.parts[tab] ??= this.make(tab);
      place(this.body, [this.parts[tab].element]);
    }
    this.parts[tab].update();
  }

  make(tab) {
    if (tab === 'timeline') return new Timeline(this);
    if (tab === 'curves') return new Curves(this.app, this);
    if (tab === 'logs') return new LogView(this.app, this);
    if (tab === 'manifest') return this.manifest();
    return tab === 'events' ? this.events() : this.replicas();
  }

  replicas() {
    const body = h('tbody');
    const headings = ['Replica', 'State', 'Node', 'Restarts', 'Exit', 'Age', 'Last message', 'Log'];
    const element = table('replicas', 'Replicas', headings, body);
    const none = h('p', { class: 'blank' }, 'This job has no replicas.');
    const whole = h('div', null, element, none);
    return { element: whole, update: () => {
      const hidden = this.app.forbids('pods'); // then nobody knows whether there is one
      const shown = this.view.replicas.map((each) => (hidden && each.state === 'No pod' ? { ...each, state: 'Not known' } : each));
      place(body, this.replicaRows(shown, (each) => each.uid || each.name));
      element.hidden = !this.view.replicas.length;
      none.hidden = !element.hidden;
    } };
  }

  replica(each) {
    const log = each.uid ? h('a', { href: `/${this.path}?tab=logs&replica=${encodeURIComponent(each.name)}`, 'data-link': true, 'aria-label': `Log of ${each.name}` }, 'Log') : null;
    return h('tr', null,
      h('td', null, h('strong', null, each.type ? `${each.type} ${each.index}` : each.name), h('span', { class: 'sr' }, each.name)),
      h('td', null, pill(each.state, { bad: Boolean(each.trouble) }), each.state === 'Running' && !each.ready ? h('span', { class: 'note plain' }, 'not ready') : null),
      h('td', { class: 'mono' }, each.node),
      h('td', { class: 'num' }, each.restarts ? String(each.restarts) : h('span', { class: 'muted' }, '0')),
      h('td', { class: `num${each.exit ? ' bad' : ''}` }, each.exit === null ? '' : String(each.exit)),
      h('td', null, age(each.created)), h('td', { class: 'words' }, each.message), h('td', null, log));
  }

  events() {
    const body = h('tbody');
    const element = table('events', 'Events', ['Age', 'Type', 'Reason', 'About', 'Message'], body);
    const none = h('p', { class: 'blank' }, 'No events are known. The API server keeps them for an hour.');
    return { element: h('div', null, element, none), update: () => {
      place(body, this.eventRows(this.view.events, (each) => each.id));
      element.hidden = !this.view.events.length;
      none.hidden = !element.hidden;
    } };
  }

  event(each) {
    const warning = each.type === 'Warning';
    return h('tr', null,
      h('td', null, age(each.at)), h('td', { class: warning ? 'warn' : 'muted' }, each.type), h('td', { class: 'reason' }, each.reason),
      h('td', { class: 'muted' }, each.object || 'the job'),
      h('td', { class: 'words' }, each.message, each.count > 1 ? h('span', { class: 'muted' }, ` (${each.count} times)`) : null));
  }

  manifest() {
    const text = h('pre', { class: 'manifest', tabindex: '0', role: 'region', 'aria-label': 'Manifest' });
    const copy = h('button', { type: 'button', class: 'button', onclick: () => navigator.clipboard?.writeText(text.textContent) }, 'Copy');
    let shown = '';
    const read = async (uid) => {
      const answer = await ask(`/-/manifest/${this.path}`);
      if (answer.error) {
        text.textContent = answer.error;
        return;
      }
      shown = uid;
      text.replaceChildren(...(await answer.response.text()).split('\n').flatMap(yamlLine));
    };
    const element = h('section', { class: 'panel' }, h('h2', null, 'Manifest', h('span', { class: 'muted' }, 'as it is in the cluster'), copy), text);
    return { element, update: () => {
      const version = `${this.view.row.uid} ${this.view.row.state}`;
      if (shown !== version && !this.gone) {
        shown = version;
        read(version);
      }
    } };
  }

  /** Ask why, where something is wrong: when that begins or changes, and again after a while. */
  async explain() {
    const { row, mistakes } = this.view;
    const late = !isOver(row) && row.state !== 'Suspended' && row.replicas.some((each) => each.ready + each.succeeded < each.wanted) && Date.now() / 1000 - (row.created ?? 0) > 20;
    const wrong = !this.gone && (row.note || mistakes || row.state === 'Failed' || row.state === 'Restarting' || late);
    const state = wrong ? JSON.stringify([row.state, row.note, mistakes]) : '';
    const again = wrong && !document.hidden && Date.now() - this.asked.at > ASK_AGAIN_MS && !isOver(row);
    if (state === this.asked.state && !again) return;
    this.asked = { state, at: Date.now() };
    clearTimeout(this.timer);
    if (!wrong) {
      this.why.replaceChildren();
      return;
    }
    const answer = await ask(`/-/explain/${this.path}`);
    if (this.asked.state !== state || this.closed) return;
    if (!isOver(row)) this.timer = setTimeout(() => !this.closed && this.app.later(), ASK_AGAIN_MS + 100);
    if (answer.error) return;
    const told = await answer.response.text();
    if (told === this.told) return;
    this.told = told;
    this.showWhy(JSON.parse(told));
  }

  showWhy(diagnosis) {
    const [first, ...others] = diagnosis.causes;
    if (!first) {
      this.why.replaceChildren();
      return;
    }
    const level = { error: '', warning: ' warning', info: ' note-level' }[first.severity] ?? '';
    const advice = (cause) => h('ul', { class: 'advice' }, cause.to_do.map((line) => {
      const [prose, ...command] = line.split(/(?=kubectl )/);
      return h('li', null, line.startsWith('kubectl ') ? h('code', null, line) : h('span', null, prose, command.length ? h('code', null, command.join('')) : null));
    }));
    const proofs = (cause) => h('ul', { class: 'proofs' }, cause.evidence.map((line) => h('li', null, line)));
    const rest = others.length ? h('details', null, h('summary', null, `${others.length} more`), others.map((cause) => [h('h3', null, cause.title), proofs(cause), advice(cause)])) : null;
    this.why.replaceChildren(h('section', { class: `why${level}`, 'aria-label': 'Why' }, h('h2', null, first.title), proofs(first), advice(first), rest,
      diagnosis.unseen ? h('details', null, h('summary', null, 'What could not be looked at'), h('p', null, diagnosis.unseen)) : null));
  }
}

/** A table in a frame that scrolls by itself on a narrow screen. */
function table(kind, label, headings, body) {
  return h('div', { class: 'panel' }, h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label },
    h('table', { class: kind }, h('thead', null, h('tr', null, headings.map((each) => h('th', { scope: 'col' }, h('span', null, each))))), body)));
}

function yamlLine(line) {
  const [, space, key, rest] = /^(\s*(?:- )?)([\w./-]+:)(.*)$/.exec(line) ?? [];
  return key ? [space, h('span', { class: 'key' }, key), rest, '\n'] : [line, '\n'];
}

/** Fetch; `error` says in words what went wrong. */
export async function ask(path, options) {
  try {
    const response = await fetch(path, options);
    if (response.ok) return { response };
    const body = await response.json().catch(() => ({}));
    return { error: body.message ?? `the page's server said ${response.status}`, code: response.status };
  } catch (error) {
    return { error: error.name === 'AbortError' ? '' : 'the connection was lost', code: 0 };
  }
}
