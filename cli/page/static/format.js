// Formats times, states and their icons.

import { h, s } from './dom.js';

/** The API of almost all jobs; only others are shown. */
export const API = 'kubeflow.org';
const UNITS = [[86400, 'd'], [3600, 'h'], [60, 'm'], [1, 's']];

/** A duration in its two largest units: 3h12m, 45s. */
export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const at = UNITS.findIndex(([size]) => whole >= size);
  if (at < 0) return '0s';
  const [size, unit] = UNITS[at];
  const [lower, lowerUnit] = UNITS[at + 1] ?? UNITS[at];
  const rest = Math.floor((whole % size) / lower);
  return `${Math.floor(whole / size)}${unit}${rest ? `${rest}${lowerUnit}` : ''}`;
}

export const now = () => Date.now() / 1000;
export const clock = (then) =>
  then === null || then === undefined ? '' : new Date(then * 1000).toLocaleString([], { dateStyle: 'medium', timeStyle: 'medium' });

const label = ({ since, until, suffix }) => (until ? span(until - now()) : span(now() - since) + suffix);

/** A time since or until now: `tick` updates the text of all visible ones. */
function running(then, data) {
  const element = h('time', { datetime: new Date(then * 1000).toISOString(), title: clock(then), class: 'num', ...data });
  element.textContent = label(element.dataset);
  return element;
}

export const age = (then, suffix = '') =>
  then === null || then === undefined ? h('span') : running(then, { 'data-since': then, 'data-suffix': suffix });
export const left = (then) => running(then, { 'data-until': then });

export function tick() {
  for (const each of document.querySelectorAll('time')) {
    const text = label(each.dataset);
    if (each.textContent !== text) each.textContent = text;
  }
}

const CIRCLE = () => s('circle', { cx: 8, cy: 8, r: 6.2, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.6 });
const path = (d, attributes) => s('path', { d, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.8, 'stroke-linecap': 'round', 'stroke-linejoin': 'round', ...attributes });
const ICONS = {
  done: () => [CIRCLE(), path('M5.2 8.2l2 2 3.6-4')],
  failed: () => [CIRCLE(), path('M5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4')],
  runs: () => [path('M14.2 8a6.2 6.2 0 1 1-3-5.3', { class: 'turns' }), s('circle', { cx: 8, cy: 8, r: 2.2, fill: 'currentColor' })],
  waits: () => [CIRCLE(), path('M8 4.8V8l2.2 1.6')],
  paused: () => [CIRCLE(), path('M6.4 5.8v4.4M9.6 5.8v4.4')],
  again: () => [path('M13 4.5V7.4h-2.9M12.8 7.2A5.4 5.4 0 1 0 13.2 10')],
};
const STATES = {
  Succeeded: ['green', 'done'], Done: ['green', 'done'], Running: ['blue', 'runs'], Failed: ['red', 'failed'], Restarting: ['amber', 'again'],
  Suspended: ['violet', 'paused'], Created: ['grey', 'waits'], Pending: ['grey', 'waits'], 'No pod': ['grey', 'waits'], Unknown: ['grey', 'waits'], BackOff: ['amber', 'again'], Missing: ['amber', 'waits'], Terminating: ['grey', 'paused'],
  New: ['grey', 'waits'], Ending: ['blue', 'done'],
};
const GOOD = new Set(['ContainerCreating', 'PodInitializing']);

/** A state as a colored word with an icon, since not everyone can distinguish colors. */
export function pill(state, { big = false, bad = false } = {}) {
  const [colour, icon] = STATES[state] ?? (bad ? ['red', 'failed'] : GOOD.has(state) ? ['grey', 'waits'] : ['amber', 'waits']);
  const mark = s('svg', { viewBox: '0 0 16 16', 'aria-hidden': 'true' }, ICONS[icon]());
  return h('span', { class: `pill ${colour}${big ? ' big' : ''}` }, mark, state);
}

/** The ready and requested replicas of each type. */
export function meters(replicas, over) {
  return h('div', { class: 'types' }, replicas.map((each) => {
    const wanted = Math.max(each.wanted, 1);
    const good = over ? each.succeeded : each.ready ?? '?';
    const part = (count, kind) => {
      const bar = h('i', { class: kind });
      bar.style.width = `${Math.min(100, (100 * count) / wanted)}%`;
      return bar;
    };
    const ready = each.ready ?? 'an unknown number';
    const words = `${each.type}: ${ready} of ${each.wanted} ready, ${each.succeeded} succeeded, ${each.failed} failed`;
    return h('div', { class: 'type', title: words },
      h('span', { class: 'muted' }, each.type), h('span', { class: 'num' }, `${good}/${each.wanted}`),
      h('div', { class: 'meter', role: 'img', 'aria-label': words }, part(over ? 0 : each.ready ?? 0, 'ready'), part(each.succeeded, 'done'), part(each.failed, 'failed')));
  }));
}

export const took = (row) => (row.started === null ? null : (row.ended ?? now()) - row.started);
export const plural = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;

/** Cores and bytes in the format of kubectl top. */
export const cores = (value) => `${Math.round(value * 1000)}m`;
export const bytes = (value) => (value < 10 * 2 ** 30 ? `${Math.round(value / 2 ** 20)}Mi` : `${(value / 2 ** 30).toFixed(1)}Gi`);
