// Connects the parts: the URL selects what is shown, the stream delivers changes.

import { h, selectCluster, show } from './dom.js';
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
    this.viewer = null; // the user in a cluster; null on the user's own machine
    this.live = 'connecting';
    this.list = new List(this);
    this.page = null;
    this.watch = new Watch(() => this.later(), (key) => this.go(`/${key}`));
    this.stream = new Stream((...news) => this.receive(...news), () => this.watch.keys.size > 0);
    this.due = false;
    this.home = '/'; // the URL of the list with its last filter
  }

  /** Show the page for the URL. */
  route() {
    const url = new URL(location.href);
    this.query = url.searchParams;
    const parts = url.pathname.split('/').filter(Boolean).map(decodeURIComponent);
    const key = parts.length > 1 ? parts.join('/') : ''; // in the oldest API: NAMESPACE/tfjob.tensorflow.org/NAME
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

  /** Change the query of the URL; "" removes a parameter. */
  ask(changes) {
    const url = new URL(location.href);
    for (const [name, value] of Object.entries(changes)) value ? url.searchParams.set(name, value) : url.searchParams.delete(name);
    history.replaceState(null, '', url);
    this.route();
  }

  receive(kind, data, reason = '') {
    if (kind === 'live') {
      if (data === this.live && reason === this.reason) return;
      this.live = data;
      this.reason = reason;
    } else if (kind === 'rows') {
      if (data.full) this.rows.clear();
      if (data.state) {
        this.state = data.state;
        selectCluster(this.state.flags);
      }
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

  /** Draw all changes since the last frame. */
  later() {
    if (this.due) return;
    this.due = true;
    const draw = () => { this.due = false; this.show(); };
    document.hidden ? setTimeout(draw, 500) : requestAnimationFrame(draw);
  }

  show() {
    show(at('banners'), this.troubles(), (shown) => shown.map(([kind, text, detail]) =>
      h('div', { class: `banner ${kind}` }, h('strong', null, text), detail && h('span', null, detail))));
    const words = { connecting: 'connecting', live: 'live', lost: 'connection lost', out: 'access denied', stale: 'out of date' };
    const state = this.live === 'live' && this.state?.troubles.some((each) => each.lost) ? 'stale' : this.live;
    const live = at('live');
    if (live.textContent !== words[state]) live.textContent = words[state];
    live.dataset.state = state === 'out' || state === 'stale' ? 'lost' : state;
    if (this.state) at('where').textContent = this.where();
    at('leave').hidden = this.viewer?.by !== 'cookie';
    (this.page ?? this.list).update();
  }

  /** The cluster, or in a cluster the viewer; and the namespace if the server is limited to one. */
  where() {
    const { context, server, namespace } = this.state;
    return [this.viewer?.name ?? (context || server), namespace].filter(Boolean).join(' / ');
  }

  /** The error for objects, such as 'pods', that may not be read. */
  forbids(what) {
    return this.state?.troubles.find((each) => each.what === what && each.forbidden);
  }

  /** General problems, one per line. A lost connection hides problems that follow from it. */
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
    if (missing.length && (this.rows.size || !this.forbids('TFJobs'))) { // otherwise the page itself shows it
      texts.push(['missing', `You may not read ${missing.map((each) => each.what).sort().join(' and ')}, so they are missing here.`, missing[0].message]);
    }
    for (const each of troubles) if (!each.lost && !each.forbidden) texts.push(['missing', `${each.what} cannot be read.`, each.message]);
    return texts;
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
  else if (tab && app.page) app.go(app.page.address(tab[0]));
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
