// Connects the parts: the address says what is shown, the stream brings what has changed.

import { h, show } from './dom.js';
import { tick } from './format.js';
import { JobPage, TABS } from './job.js';
import { List } from './list.js';
import { Stream, enter } from './stream.js';
import { Watch } from './watch.js';

const at = (id) => document.getElementById(id);

class App {
  constructor() {
    this.rows = new Map();
    this.state = null;
    this.viewer = null; // in a cluster, who looks; on the user's own machine there is nobody else
    this.live = 'connecting';
    this.list = new List(this);
    this.page = null;
    this.watch = new Watch(() => this.later(), (key) => this.go(`/${key}`));
    this.stream = new Stream((...news) => this.told(...news), () => this.watch.keys.size > 0);
    this.due = false;
    this.home = '/'; // the list as it was last filtered
  }

  /** Show what the address names. */
  route() {
    const url = new URL(location.href);
    this.query = url.searchParams;
    const parts = url.pathname.split('/').filter(Boolean).map(decodeURIComponent);
    const key = parts.length > 1 ? parts.join('/') : ''; // of the first API: NAMESPACE/tfjob.tensorflow.org/NAME
    if (this.shown !== key) {
      this.shown = key;
      this.page?.close();
      this.page = key ? new JobPage(this, parts) : null;
      at('main').replaceChildren((this.page ?? this.list).element);
      scrollTo(0, 0);
    }
    if (!key) this.home = url.pathname + url.search;
    this.stream.watch(key);
    this.show();
  }

  go(address) {
    history.pushState(null, '', address);
    this.route();
    at('main').focus({ preventScroll: true });
  }

  /** Change the query of the address; "" removes a name. */
  ask(changes) {
    const url = new URL(location.href);
    for (const [name, value] of Object.entries(changes)) value ? url.searchParams.set(name, value) : url.searchParams.delete(name);
    history.replaceState(null, '', url);
    this.route();
  }

  told(kind, data, reason = '') {
    if (kind === 'live') {
      if (data === this.live && reason === this.reason) return;
      this.live = data;
      this.reason = reason;
    } else if (kind === 'rows') {
      if (data.full) this.rows.clear();
      if (data.state) this.state = data.state;
      for (const row of data.rows) this.rows.set(row.key, row);
      for (const key of data.gone) this.rows.delete(key);
      this.watch.look(data);
    } else if (kind === 'job') {
      this.page?.take(data);
    } else if (kind === 'viewer') {
      this.viewer = data;
    }
    this.later();
  }

  /** Draw once for all that came since the last frame. */
  later() {
    if (this.due) return;
    this.due = true;
    const draw = () => { this.due = false; this.show(); };
    document.hidden ? setTimeout(draw, 500) : requestAnimationFrame(draw);
  }

  show() {
    this.banners();
    const words = { connecting: 'connecting', live: 'live', lost: 'connection lost', out: 'access denied', stale: 'out of date' };
    const state = this.live === 'live' && this.state?.troubles.some((each) => each.lost) ? 'stale' : this.live;
    const live = at('live');
    if (live.textContent !== words[state]) live.textContent = words[state];
    live.dataset.state = state === 'out' || state === 'stale' ? 'lost' : state;
    if (this.state) at('where').textContent = this.where();
    at('leave').hidden = this.viewer?.by !== 'cookie';
    (this.page ?? this.list).update();
  }

  /** Which cluster is read, or in a cluster for whom; and the namespace that the server was started for, if it was for one. */
  where() {
    const { context, server, namespace } = this.state;
    return [this.viewer?.name ?? (context || server), namespace].filter(Boolean).join(' / ');
  }

  /** What keeps these objects from being read, such as 'pods', if that is forbidden. */
  forbids(what) {
    return this.state?.troubles.find((each) => each.what === what && each.forbidden);
  }

  /** What is wrong with all that is shown, each in a line: not being connected says more than what is not known because of that. */
  troubles() {
    const own = this.viewer ? '' : ' Does kubectl tfjob dashboard still run?';
    if (this.live === 'out' && this.viewer) return [['lost', 'You are logged out, or your token has expired: load the page again to log in.']];
    if (this.reason) return [['lost', this.reason]];
    if (this.live === 'lost') return [['lost', `Connection lost. What you see may be out of date; it is tried again.${own}`]];
    const troubles = this.state?.troubles ?? [];
    const lost = troubles.filter((each) => each.lost);
    const missing = troubles.filter((each) => each.forbidden);
    const texts = [];
    if (lost.length) texts.push(['lost', 'No connection to the API server. What you see may be out of date; it is tried again.', lost[0].message]);
    if (missing.length && (this.rows.size || !this.forbids('TFJobs'))) { // else the page itself says so
      texts.push(['missing', `You may not read ${missing.map((each) => each.what).sort().join(' and ')}, so they are missing here.`, missing[0].message]);
    }
    for (const each of troubles) if (!each.lost && !each.forbidden) texts.push(['missing', `${each.what} cannot be read.`, each.message]);
    return texts;
  }

  banners() {
    show(at('banners'), this.troubles(), (shown) => shown.map(([kind, text, detail]) =>
      h('div', { class: `banner ${kind}` }, h('strong', null, text), detail && h('span', null, detail))));
  }
}

const app = new App();

document.addEventListener('click', (event) => {
  const link = event.target.closest?.('a[data-link]');
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  app.go(link.getAttribute('href'));
});

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.('input, select, textarea, dialog')) return;
  const tab = TABS[Number(event.key) - 1];
  const { table } = app.page ?? app.list;
  if (event.key === '?') at('help').showModal();
  else if (event.key === '/' && table) table.input.focus();
  else if (event.key === 'j' && table) table.move(1);
  else if (event.key === 'k' && table) table.move(-1);
  else if (event.key === 'u' && app.page) app.go(app.home);
  else if (tab && app.page) app.page.open(tab[0]);
  else return;
  event.preventDefault();
});

at('leave').addEventListener('click', async () => {
  await fetch('/-/logout', { method: 'POST', headers: { 'Content-Type': 'application/json' } }).catch(() => null);
  location.assign('/');
});
at('help-button').addEventListener('click', () => at('help').showModal());
const begin = () => enter().then(() => app.route());
addEventListener('popstate', begin);
setInterval(tick, 1000);
begin();
