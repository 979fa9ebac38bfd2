// Tables with many rows. Filter, order and page are part of the URL; the document has at most MOST rows.

import { h, keyed, place, show, tablePanel } from './dom.js';
import { plural } from './format.js';

export const MOST = 200;
const UNHEALTHY = 'Unhealthy';

const collator = new Intl.Collator(undefined, { numeric: true });
export const compare = (a, b) => (typeof a === 'string' ? collator.compare(a, b) : a - b);

/** Return true if an item matches a filter: it contains every word, and `queue:a` matches only that field. */
function fits(fields, words) {
  const all = Object.values(fields).join('\n').toLowerCase();
  return words.every((word) => {
    const [, field, value] = /^([a-z]+):(.*)$/.exec(word) ?? [];
    return field && field in fields ? fields[field].toLowerCase().includes(value) : all.includes(word);
  });
}

export class Table {
  /**
   * `what` is the word for an item. `columns` have an id, a label, a sort value, whether it is numeric, and for an optional column
   * which items need it. `row` creates the element of an item, `fields` are the texts that the filter searches, `rank` is the
   * priority of an item (0 needs attention), `order` compares items of equal rank in the default order.
   */
  constructor(app, { kind, what, hint, states, columns, row, keyOf, fields, rank, order }) {
    Object.assign(this, { app, what, columns, keyOf, fields, rank, order, states });
    this.chosen = '';
    this.rows = keyed(row);
    this.chips = h('div', { class: 'chips', role: 'group', 'aria-label': 'Filter by state' });
    this.input = h('input', {
      type: 'search', placeholder: hint, 'aria-label': `Filter ${what}s`, autocomplete: 'off', spellcheck: 'false',
      oninput: () => app.ask({ q: this.input.value, page: '' }), onkeydown: (event) => {
        if (event.key !== 'Escape') return;
        event.preventDefault(); // the default clears the filter
        this.input.blur();
      },
    });
    this.bar = h('div', { class: 'bar' }, this.chips, h('div', { class: 'search' }, this.input, h('kbd', { 'aria-hidden': 'true' }, '/')));
    this.count = h('span', { class: 'sr', role: 'status' });
    this.head = h('tr');
    this.body = h('tbody');
    this.panel = tablePanel(kind, `${what[0].toUpperCase()}${what.slice(1)}s`, this.head, this.body);
    this.pages = h('nav', { class: 'pages', 'aria-label': 'Pages' });
    this.element = h('div', null, this.bar, this.count, this.panel, this.pages);
  }

  /** Show these items; return how many match the filter. `all` has the states that can be selected. */
  update(items, all = items) {
    const { query } = this.app;
    const words = query.get('q') ?? '';
    if (document.activeElement !== this.input) this.input.value = words;
    const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = parts.length ? items.filter((each) => fits(this.fields(each), parts)) : items;
    this.ranks = new Map(found.map((each) => [each, this.rank(each)]));
    const state = query.get('state') ?? '';
    this.showChips(found, state, all);
    const shown = found.filter((each) => !state || (state === UNHEALTHY ? this.ranks.get(each) === 0 : each.state === state));
    const sort = query.get('sort') ?? '';
    this.showHead(sort);
    for (const { id, needed } of this.columns) if (needed) this.panel.classList.toggle(`without-${id}`, !items.some(needed));
    const pages = Math.max(1, Math.ceil(shown.length / MOST));
    const page = Math.min(pages, Math.max(1, Number.parseInt(query.get('page') ?? '1', 10) || 1));
    const paged = this.ordered(shown, sort).slice((page - 1) * MOST, page * MOST);
    place(this.body, this.rows(paged, this.keyOf));
    this.keys = paged.map(this.keyOf);
    this.showPages(page, pages, shown.length);
    this.count.textContent = plural(shown.length, this.what);
    this.panel.hidden = !shown.length;
    this.mark();
    return shown.length;
  }

  ordered(items, sort) {
    const column = this.columns.find(({ id, value }) => value && id === sort.replace('-', ''));
    const sign = sort.startsWith('-') ? -1 : 1;
    const first = column ? (a, b) => sign * compare(column.value(a), column.value(b)) : (a, b) => this.ranks.get(a) - this.ranks.get(b);
    return items.toSorted((a, b) => first(a, b) || this.order(a, b));
  }

  showChips(items, wanted, all) {
    const counts = new Map(all.map((each) => [each.state, 0]));
    for (const each of items) counts.set(each.state, counts.get(each.state) + 1);
    if (wanted && !counts.has(wanted) && wanted !== UNHEALTHY) counts.set(wanted, 0);
    const column = (state) => this.states.indexOf(state) + 1 || this.states.length + 1;
    const states = [...counts].sort(([a], [b]) => column(a) - column(b));
    const unhealthy = items.reduce((sum, each) => sum + (this.ranks.get(each) === 0), 0);
    show(this.chips, [wanted, ['All', items.length], [UNHEALTHY, unhealthy], ...states], ([, ...entries]) => entries.map(([state, count]) => {
      const value = state === 'All' ? '' : state;
      return h('button', { type: 'button', class: `chip${value === UNHEALTHY && count ? ' urgent' : ''}`, 'aria-pressed': String(wanted === value), 'data-focus': state,
        onclick: () => this.app.ask({ state: value, page: '' }) }, state, h('b', null, String(count)));
    }));
  }

  showHead(sort) {
    const [sorted, down] = [sort.replace('-', ''), sort.startsWith('-')];
    show(this.head, sort, () => this.columns.map(({ id, label, value, number, title }) => {
      const next = sorted !== id ? (number ? `-${id}` : id) : down === Boolean(number) ? (down ? id : `-${id}`) : '';
      const order = sorted === id ? (down ? 'descending' : 'ascending') : null;
      return h('th', { scope: 'col', class: `${id}${number ? ' right' : ''}`, 'aria-sort': order, title },
        value ? h('button', { type: 'button', 'data-focus': id, onclick: () => this.app.ask({ sort: next, page: '' }) }, label) : h('span', null, label));
    }));
  }

  showPages(page, pages, all) {
    this.pages.hidden = pages < 2;
    const turn = (to, label) => h('button', { type: 'button', class: 'button', 'data-focus': label, disabled: to < 1 || to > pages, onclick: () => {
      this.app.ask({ page: to > 1 ? String(to) : '' });
      this.panel.scrollIntoView();
    } }, label);
    show(this.pages, [page, pages, all], () => [turn(page - 1, `Previous ${MOST}`),
      h('span', null, `${(page - 1) * MOST + 1} to ${Math.min(all, page * MOST)} of ${plural(all, this.what)}`), turn(page + 1, `Next ${MOST}`)]);
  }

  /** Move the keyboard selection. */
  move(step) {
    const at = this.keys.indexOf(this.chosen);
    this.chosen = this.keys[Math.max(0, Math.min(this.keys.length - 1, at + step))] ?? '';
    this.mark();
    const link = this.body.querySelector('tr.chosen a');
    link?.focus();
    link?.scrollIntoView({ block: 'nearest' });
  }

  mark() {
    if (this.chosen) for (const each of this.body.children) each.classList.toggle('chosen', each.dataset.key === this.chosen);
  }
}
