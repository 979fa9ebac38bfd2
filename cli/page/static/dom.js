// Makes elements. All text goes in as text nodes: what a cluster says is never read as HTML.

const SVG = 'http://www.w3.org/2000/svg';

/** Set attributes and add children: strings become text, null and false are left out. */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Make the children of `parent` those of `wanted`, in their order; keyed elements that are the same stay, with their focus. */
export function place(parent, wanted) {
  const keep = new Set(wanted);
  for (const each of [...parent.childNodes]) if (!keep.has(each)) each.remove();
  wanted.forEach((each, number) => {
    const there = parent.childNodes[number];
    if (there !== each) parent.insertBefore(each, there ?? null);
  });
}

/** Keep elements by key, and make one anew only when its data have changed. */
export function keyed(make) {
  let kept = new Map();
  return (items, keyOf) => {
    const next = new Map();
    const elements = items.map((item) => {
      const key = keyOf(item);
      const data = JSON.stringify(item);
      const old = kept.get(key);
      const entry = old && old.data === data ? old : { data, element: make(item) };
      next.set(key, entry);
      return entry.element;
    });
    kept = next;
    return elements;
  };
}
