// The history of a job's pods, with one lane per replica.

import { h, headings, s, show, tablePanel } from './dom.js';
import { clock, now, plural, span } from './format.js';

const STATES = {
  waiting: ['Pending', 'var(--grey-fill)'], starting: ['Starting', 'var(--amber-fill)'], running: ['Running', 'var(--blue-fill)'],
  restarting: ['Back-off', 'var(--c1)'], unstable: ['Restarting repeatedly', 'url(#stripes)'], stopping: ['Terminating', 'var(--c3)'],
};
const BANDS = { suspended: ['Suspended', 'var(--violet-bg)'], held: ['On hold: invalid edit', 'var(--amber-bg)'], ending: ['Ending', 'var(--green-bg)'] };
const LANE = 28;
const TOP = 26;
const NARROWEST = 320;
const TICK = 80;
const STEPS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800];
const EVERY_MS = 5000;

export class Timeline {
  constructor(page) {
    this.page = page;
    this.frame = h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Timeline' });
    this.legend = h('div', { class: 'legend' });
    this.table = h('tbody');
    const table = tablePanel('', 'Timeline as a table', headings(['Replica', 'Pod', 'From', 'To', 'Restarts', 'Ending']), this.table);
    this.history = h('tbody');
    this.attempts = tablePanel('events', 'Attempts', headings(['Attempt', 'From', 'To', 'Ended by']), this.history);
    this.element = h('div', null, h('section', { class: 'panel' }, h('h2', null, 'Timeline', h('span', { class: 'muted' }, 'of each replica and its pods')), this.frame, this.legend),
      this.attempts, h('details', { class: 'more' }, h('summary', null, 'As a table'), table));
    new ResizeObserver(() => this.update()).observe(this.frame);
  }

  update() {
    const { timeline, attempts } = this.page.view;
    const width = Math.max(NARROWEST, this.frame.clientWidth);
    clearTimeout(this.timer);
    if (timeline.end === null) this.timer = setTimeout(() => this.element.isConnected && this.update(), EVERY_MS);
    show(this.frame, [timeline, width, timeline.end ?? Math.floor(Date.now() / EVERY_MS)], () => this.draw(timeline, width));
    show(this.table, timeline, () => rows(timeline));
    this.attempts.hidden = !attempts.history.length;
    show(this.history, attempts.history, () => attempts.history.toReversed().map((each) => h('tr', null,
      h('td', null, String(each.number)), h('td', null, clock(each.start)), h('td', null, clock(each.end)), h('td', { class: 'words' }, each.why))));
  }

  draw(timeline, width) {
    const lives = timeline.lanes.flatMap((lane) => lane.lives);
    const starts = [timeline.start, ...lives.map((life) => life.start)].filter((each) => each !== null);
    if (!starts.length) return h('p', { class: 'blank' }, 'No history yet.');
    const begin = Math.min(...starts);
    const last = Math.max(begin + 1, ...(timeline.end !== null ? [timeline.end] : [now()]), ...lives.map((life) => life.end ?? begin));
    const names = timeline.lanes.map((lane) => (lane.type ? `${lane.type} ${lane.index}` : lane.lives[0]?.pod ?? ''));
    const left = Math.min(180, 24 + 8 * Math.max(6, ...names.map((each) => each.length)));
    const x = (time) => left + ((Math.min(Math.max(time, begin), last) - begin) / (last - begin)) * (width - left - 20);
    const top = TOP + (timeline.attempts.length ? LANE : 0);
    const height = top + timeline.lanes.length * LANE + 10;
    const used = new Set();
    const picture = s('svg', { class: 'gantt', width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `Timeline of ${timeline.lanes.length} replicas over ${span(last - begin)}; the table below says the same` },
      s('defs', null, s('pattern', { id: 'stripes', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
        s('rect', { width: 6, height: 6, fill: 'var(--blue-fill)' }), s('rect', { width: 3, height: 6, fill: 'var(--c1)' }))),
      timeline.spans.map((each) => this.band(each, x, last, height, used)), this.axis(begin, last, x, height, (width - left) / TICK),
      timeline.attempts.length > 0 && s('text', { class: 'name', x: 16, y: TOP + 17 }, 'Attempt'), timeline.attempts.map((each) => attempt(each, x, last)),
      timeline.lanes.map((lane, number) => this.lane(lane, names[number], top + number * LANE, x, last, used)));
    const entry = ([label, fill]) => h('span', null, s('svg', { width: 14, height: 10, 'aria-hidden': 'true' }, s('rect', { width: 14, height: 10, rx: 3, fill })), label);
    this.legend.replaceChildren(...Object.entries({ ...STATES, ...BANDS }).filter(([id]) => used.has(id)).map(([, each]) => entry(each)),
      timeline.more ? `${timeline.more} more replicas, which run and have no more restarts than these, are not drawn.` : '');
    return picture;
  }

  axis(begin, last, x, height, most) {
    const step = STEPS.find((each) => (last - begin) / each <= most) ?? 604800 * Math.ceil((last - begin) / 604800 / most);
    const ticks = [];
    for (let at = 0; begin + at <= last; at += step) ticks.push(at);
    return ticks.map((at) => [s('line', { class: 'axis', x1: x(begin + at), x2: x(begin + at), y1: TOP - 6, y2: height - 6 }),
      s('text', { x: x(begin + at) + 3, y: 14 }, at ? `+${span(at)}` : 'start')]);
  }

  band(each, x, last, height, used) {
    used.add(each.kind);
    const end = each.end ?? last;
    return s('rect', { x: x(each.start), y: TOP - 6, width: Math.max(2, x(end) - x(each.start)), height: height - TOP, fill: BANDS[each.kind][1] },
      s('title', null, `${BANDS[each.kind][0]} for ${span(end - each.start)}${each.message ? `: ${each.message}` : ''}`));
  }

  lane(lane, name, y, x, last, used) {
    const parts = [s('text', { class: 'name', x: 16, y: y + 17 }, name)];
    for (const life of lane.lives) {
      for (const each of life.intervals) {
        used.add(each.state);
        const end = each.end ?? life.end ?? last;
        const again = each.state === 'unstable' ? plural(life.restarts, 'restart') : '';
        const words = `${name}: ${again || STATES[each.state][0]} for ${span(end - each.start)}${each.reason ? ` (${each.reason})` : ''}${each.exit_code === null ? '' : `, exit code ${each.exit_code}`}${life.node ? `, on ${life.node}` : ''}`;
        parts.push(s('rect', { x: x(each.start), y: y + 5, width: Math.max(2, x(end) - x(each.start) - 1), height: LANE - 12, rx: 3, fill: STATES[each.state][1] }, s('title', null, words)));
        if (again && x(end) - x(each.start) > 8 * again.length) parts.push(s('text', { class: 'count', x: (x(each.start) + x(end)) / 2, y: y + 18, 'text-anchor': 'middle' }, again));
      }
      if (life.end !== null && life.ending && life.ending !== 'succeeded') {
        const at = x(life.end);
        const failed = life.ending === 'failed';
        parts.push(s('path', { d: `M${at - 4} ${y + 9}l8 8m0 -8l-8 8`, stroke: failed ? 'var(--red)' : 'var(--muted)', 'stroke-width': 2.2, fill: 'none' },
          s('title', null, `${life.pod} ${ending(life)}`)));
      }
    }
    return parts;
  }
}

function attempt({ number, start, end, message }, x, last) {
  const [from, to] = [x(start), x(end ?? last)];
  return [s('rect', { x: from, y: TOP + 5, width: Math.max(2, to - from - 2), height: LANE - 12, rx: 3, fill: 'var(--violet-bg)' },
    s('title', null, `Attempt ${number} for ${span((end ?? last) - start)}${message ? `, ended by ${message}` : ''}`)),
    to - from > 16 && s('text', { class: 'count', x: (from + to) / 2, y: TOP + 18, 'text-anchor': 'middle' }, String(number))];
}

const rows = (timeline) => timeline.lanes.flatMap((lane) => lane.lives.map((life) => h('tr', null,
  [`${lane.type} ${lane.index}`, life.pod || 'deleted pods', clock(life.start), clock(life.end), String(life.restarts || ''), ending(life)].map((each) => h('td', null, each)))));

const ending = (life) => (life.ending === null ? '' : `${life.ending}${life.exit_code === null ? '' : `, exit code ${life.exit_code}`}${life.reason ? ` (${life.reason})` : ''}`);
