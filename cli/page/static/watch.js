// Jobs whose end the browser is to report, for as long as this tab is open.

import { isOver } from './format.js';

const KEPT = 'watched';

export class Watch {
  /** `changed` is called when other jobs are watched, `open` with the key of a job whose notification is clicked. */
  constructor(changed, open) {
    this.changed = changed;
    this.open = open;
    this.keys = new Set(JSON.parse(sessionStorage.getItem(KEPT) ?? '[]'));
    this.possible = 'Notification' in window && isSecureContext && Notification.permission !== 'denied';
  }

  get size() {
    return this.keys.size;
  }

  has(key) {
    return this.keys.has(key);
  }

  async toggle(key) {
    if (this.keys.has(key)) this.drop(key);
    else if ((await Notification.requestPermission()) === 'granted') this.keep(this.keys.add(key));
    else this.possible = false; // the browser does not ask again
    this.changed();
  }

  drop(key) {
    this.keys.delete(key);
    this.keep(this.keys);
  }

  keep(keys) {
    sessionStorage.setItem(KEPT, JSON.stringify([...keys]));
  }

  /** Notify of watched jobs that have ended, or are gone, by a message of rows. */
  look({ rows, gone }) {
    if (!this.keys.size) return;
    for (const row of rows) if (isOver(row)) this.notify(row.key, row.state, row.why || row.note);
    for (const key of gone) this.notify(key, 'deleted', '');
  }

  notify(key, state, body) {
    if (!this.keys.has(key)) return;
    this.drop(key);
    const shown = new Notification(`${key}: ${state}`, { body, tag: key, icon: '/-/static/icon.svg' });
    shown.onclick = () => {
      focus();
      this.open(key);
    };
  }
}
