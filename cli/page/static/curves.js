// Charts of loss, metrics and step time from the logs, each with one or more runs.

import { h, s, show } from './dom.js';
import { events } from './stream.js';
import { MOST as MOST_CHOICES } from './table.js';

const MOST = 6;
const AGAIN_MS = 3000;
const NARROWEST = 300;
const HEIGHT = 220;
const PAD = { left: 56, right: 14, top: 14, bottom: 26 };

export class Curves {
  constructor(app, page) {
    this.app = app;
    this.page = page;
    this.runs = new Map();
    this.charts = new Map();
    this.add = h('select', { 'aria-label': 'Compare with another job', onchange: () => this.compare([...this.keys.slice(1), this.add.value]) });
    this.chips = h('div', { class: 'chips' });
    this.status = h('span', { class: 'grow', role: 'status' });
    this.grid = h('div', { class: 'grid' });
    this.blank = h('p', { class: 'blank' });
    this.element = h('div', null, h('section', { class: 'panel slim' }, h('div', { class: 'log-bar' }, this.chips, this.add, this.status)), this.grid, this.blank);
  }

  update() {
    const others = (this.app.query.get('with') ?? '').split(',').filter((each) => each && each !== this.page.key);
    this.keys = [this.page.key, ...others.slice(0, MOST - 1)];
    if (this.keys.join() !== this.signature) this.open(this.keys);
    this.showChoice(this.keys);
  }

  open(keys) {
    this.close();
    this.signature = keys.join();
    for (const key of [...this.runs.keys()]) if (!keys.includes(key)) this.runs.delete(key);
    const query = new URLSearchParams(keys.map((key) => ['run', key]));
    this.draw();
    this.follow(`/-/curves?${query}`, this.stop = new AbortController());
  }

  async follow(path, stop) {
    while (!stop.signal.aborted) {
      const answer = await events(path, stop.signal, ({ data }) => {
        const run = JSON.parse(data);
        this.runs.set(run.run, run);
        this.draw();
      });
      if (answer.error) this.status.textContent = answer.error;
      await new Promise((later) => setTimeout(later, AGAIN_MS));
    }
  }

  close() {
    this.stop?.abort();
    this.signature = '';
  }

  compare(keys) {
    this.app.ask({ with: keys.filter(Boolean).join() });
  }

  showChoice(keys) {
    const far = (key) => Number(!key.startsWith(`${this.page.namespace}/`));
    const choice = [...this.app.rows.keys()].filter((key) => !keys.includes(key)).sort((a, b) => far(a) - far(b) || a.localeCompare(b)).slice(0, MOST_CHOICES - 1);
    show(this.add, choice, () => [h('option', { value: '' }, 'Compare with ...'), ...choice.map((key) => h('option', { value: key }, key))]);
    this.add.disabled = keys.length >= MOST || !choice.length;
    show(this.chips, keys, () => keys.map((key, number) => h(number ? 'button' : 'span', number
      ? { type: 'button', class: 'chip', title: 'Leave it out', onclick: () => this.compare(keys.slice(1).filter((each) => each !== key)) }
      : { class: 'chip own' }, swatch(number), number ? `${key} ` : this.page.name, number ? h('span', { 'aria-hidden': 'true' }, '\u00d7') : null, number ? h('span', { class: 'sr' }, 'leave it out') : null)));
  }

  draw() {
    const curves = this.keys.flatMap((key, number) => Object.entries(this.runs.get(key)?.curves ?? {}).map(([name, points]) =>
      ({ key, name, number, points: points.filter(([, value]) => value !== null), dashed: name.startsWith('val_') })));
    const names = Map.groupBy(curves, (each) => each.name.replace(/^val_/, ''));
    const first = (name) => (/^(total_)?loss$/.test(name) ? 0 : name.includes('loss') ? 1 : name === 'step_time' ? 9 : 5);
    const ordered = [...names.keys()].sort((a, b) => first(a) - first(b) || a.localeCompare(b));
    for (const name of [...this.charts.keys()]) if (!names.has(name)) this.charts.delete(name);
    this.grid.replaceChildren(...ordered.map((name) => {
      if (!this.charts.has(name)) this.charts.set(name, new Chart(name));
      const chart = this.charts.get(name);
      chart.draw(names.get(name));
      return chart.element;
    }));
    const own = this.runs.get(this.page.key);
    const { progress } = own ?? {};
    this.status.textContent = progress ? `${progress.unit} ${progress.step}${progress.total ? ` of ${progress.total}` : ''}, from the log of ${own.pod}` : '';
    this.blank.hidden = ordered.length > 0;
    this.blank.textContent = !own ? 'Reading the log ...' : own.error ? `No curves: ${own.error}.` : 'No metrics in the log yet. The page reads lines such as "step 10: loss = 0.5", and those of Keras and estimators.';
  }
}

const swatch = (number) => s('svg', { width: 10, height: 10, 'aria-hidden': 'true' }, s('circle', { cx: 5, cy: 5, r: 4.5, fill: `var(--c${number})` }));

/** Format a number with as few digits as necessary. */
function short(value) {
  const size = Math.abs(value);
  if (size && (size < 0.001 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(size >= 1000 ? 6 : 4)));
}

class Chart {
  constructor(name) {
    this.name = name;
    this.readout = h('span', { class: 'muted num' });
    this.frame = h('div');
    this.element = h('section', { class: 'panel' }, h('h2', null, name.replace('step_time', 'step time'), this.readout), this.frame);
    new ResizeObserver(() => this.curves && this.draw(this.curves)).observe(this.frame);
  }

  draw(curves) {
    const drawn = curves.filter((each) => each.points.length);
    this.width = Math.max(NARROWEST, Math.round(this.frame.clientWidth));
    this.curves = drawn;
    show(this.frame, [drawn, this.width], () => (drawn.length ? this.picture(drawn) : h('p', { class: 'blank' }, 'No finite values in the log.')));
  }

  picture(drawn) {
    const steps = drawn.flatMap((each) => [each.points[0][0], each.points.at(-1)[0]]);
    const values = drawn.flatMap((each) => each.points.map(([, value]) => value)).sort((a, b) => a - b);
    const [low, high] = bounds(values);
    const [from, to] = [Math.min(...steps), Math.max(...steps)];
    this.x = (step) => PAD.left + ((step - from) / (to - from || 1)) * (this.width - PAD.left - PAD.right);
    this.y = (value) => PAD.top + (1 - (Math.min(Math.max(value, low), high) - low) / (high - low || 1)) * (HEIGHT - PAD.top - PAD.bottom);
    this.cursor = s('g');
    const last = drawn[0].points.at(-1);
    const words = drawn.map((each) => `${each.key} ${each.name}: ${short(each.points.at(-1)[1])} at step ${each.points.at(-1)[0]}`).join('; ');
    const picture = s('svg', { class: 'chart', viewBox: `0 0 ${this.width} ${HEIGHT}`, role: 'img', 'aria-label': words },
      ticks(low, high, 5).map((value) => [s('line', { class: 'axis', x1: PAD.left, x2: this.width - PAD.right, y1: this.y(value), y2: this.y(value) }),
        s('text', { x: PAD.left - 8, y: this.y(value) + 4, 'text-anchor': 'end' }, short(value))]),
      ticks(from, to, this.width / 90).map((step) => s('text', { x: this.x(step), y: HEIGHT - 8, 'text-anchor': 'middle' }, short(step))),
      drawn.map((each) => each.points.length > 1
        ? s('polyline', { points: each.points.map(([step, value]) => `${this.x(step).toFixed(1)},${this.y(value).toFixed(1)}`).join(' '), fill: 'none', stroke: `var(--c${each.number})`, 'stroke-width': 1.8, 'stroke-linejoin': 'round', 'stroke-dasharray': each.dashed ? '5 4' : null })
        : s('circle', { cx: this.x(each.points[0][0]), cy: this.y(each.points[0][1]), r: 3, fill: `var(--c${each.number})` })),
      this.cursor);
    picture.addEventListener('pointermove', (event) => this.point(picture, event));
    const latest = `${short(last[1])}${this.name === 'step_time' ? ' s' : ''} at ${last[0]}${drawn.some((each) => each.dashed) ? ', dashed: on evaluation data' : ''}`;
    const leave = () => {
      this.cursor.replaceChildren();
      this.readout.textContent = latest;
    };
    picture.addEventListener('pointerleave', leave);
    leave();
    return picture;
  }

  point(picture, event) {
    const box = picture.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * this.width;
    const away = ([step]) => Math.abs(this.x(step) - at);
    const near = this.curves.map((each) => [each, each.points.reduce((best, point) => (away(point) < away(best) ? point : best))]);
    const [step] = near[0][1];
    this.cursor.replaceChildren(s('line', { x1: this.x(step), x2: this.x(step), y1: PAD.top, y2: HEIGHT - PAD.bottom, stroke: 'var(--muted)', 'stroke-dasharray': '3 3' }),
      ...near.map(([each, point]) => s('circle', { cx: this.x(point[0]), cy: this.y(point[1]), r: 3.4, fill: `var(--c${each.number})` })));
    this.readout.textContent = `${near.map(([, point]) => short(point[1])).join(' / ')} at ${step}`;
  }
}

/** The range to draw, without the few outliers that would flatten the rest. */
function bounds(sorted) {
  const [low, top] = [sorted[0], sorted.at(-1)];
  const most = sorted[Math.floor(0.98 * (sorted.length - 1))];
  const high = top - low > 20 * (most - low) && most > low ? most + (most - low) * 0.2 : top;
  return low === high ? [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1] : [low, high];
}

function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return found;
}
