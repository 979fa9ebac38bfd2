// Creates elements. All text is added as text nodes: data of a cluster is never parsed as HTML.

const SVG = 'http://www.w3.org/2000/svg';
const present = (each) => each !== null && each !== undefined && each !== false && each !== '';

/** Set attributes and add children: strings become text nodes; null, false and "" are ignored. */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.flat(Infinity).filter(present));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const shown = new WeakMap();

/** Replace the children of an element by the result of `make` if `data` has changed. Restores the focus by `data-focus`. */
export function show(element, data, make) {
  const text = JSON.stringify(data);
  if (shown.get(element) === text) return;
  shown.set(element, text);
  const focus = element.contains(document.activeElement) ? document.activeElement.dataset.focus : '';
  element.replaceChildren(...[make(data)].flat(Infinity).filter(present));
  if (focus) element.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus();
}

/** Make `wanted` the children of `parent`, in this order; unchanged elements stay, with their focus. */
export function place(parent, wanted) {
  const keep = new Set(wanted);
  for (const each of [...parent.childNodes]) if (!keep.has(each)) each.remove();
  let next = parent.firstChild;
  for (const each of wanted) {
    if (next && next !== each && next.nextSibling === each) next.remove(); // it moves down: otherwise all elements above its new position would move
    else if (next !== each) parent.insertBefore(each, next);
    next = each.nextSibling;
  }
}

/** Return a function that creates an element for each item, and reuses those of unchanged items. */
export function keyed(make) {
  let kept = new Map();
  return (items, keyOf) => {
    const next = new Map();
    for (const item of items) {
      const key = keyOf(item);
      const old = kept.get(key);
      const same = old && (old.item === item || JSON.stringify(old.item) === JSON.stringify(item));
      next.set(key, { item, element: same ? old.element : make(item) });
    }
    kept = next;
    return [...next.values()].map((each) => each.element);
  };
}

/** A button that copies a text, or selects it if the browser denies access to the clipboard (plain HTTP). */
export function copyButton(source) {
  const button = h('button', { type: 'button', class: 'copy', 'aria-label': 'Copy', 'data-focus': `copy ${source.textContent}`, onclick: async () => {
    const done = await navigator.clipboard?.writeText(source.textContent).then(() => true, () => false);
    if (!done) getSelection().selectAllChildren(source);
    button.textContent = done ? 'Copied' : 'Selected';
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  } }, 'Copy');
  return button;
}

let flags = '';

/** Set the options that select the cluster and the user in all commands. */
export function selectCluster(given) {
  flags = given && `${given} `;
}

/** A text whose kubectl commands are for the cluster of the page. */
export const forCluster = (text) => text.replaceAll(/\bkubectl (tfjob )?/g, (found) => found + flags);

/** A command with a button that copies it. */
export function command(text) {
  const code = h('code', null, forCluster(text));
  return h('span', { class: 'command' }, code, copyButton(code));
}

/** A panel with a table, which scrolls separately on a narrow screen. */
export function tablePanel(kind, label, head, body) {
  return h('div', { class: 'panel' }, h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label },
    h('table', { class: kind }, h('thead', null, head), body)));
}

export const headings = (names) => h('tr', null, names.map((each) => h('th', { scope: 'col' }, h('span', null, each))));
