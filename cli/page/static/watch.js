// Browser notifications for the end of jobs, while this tab is open.


const KEPT = 'watched';

export class Watch {
  /** `changed` is called when the watched jobs change, `open` with the key of a job when its notification is clicked. */
  constructor(changed, open) {
    this.changed = changed;
    this.open = open;
    this.keys = new Set(JSON.parse(sessionStorage.getItem(KEPT) ?? '[]'));
    this.possible = 'Notification' in window && isSecureContext;
  }

  /** The label of a job's button. */
  words(key) {
    return this.keys.has(key) ? 'You will be notified' : Notification.permission === 'denied' ? 'Notifications are blocked in this browser' : 'Notify me when it ends';
  }

  async toggle(key) {
    const granted = (await Notification.requestPermission()) === 'granted'; // the browser asks only once
    if (!this.keys.delete(key) && granted) this.keys.add(key);
    this.keep();
  }

  keep() {
    sessionStorage.setItem(KEPT, JSON.stringify([...this.keys]));
    this.changed();
  }

  /** Send notifications for watched jobs in this update that have finished or were deleted. */
  look({ rows, gone }) {
    for (const row of rows) if (row.over) this.notify(row.key, row.state, row.why || row.note);
    for (const key of gone) this.notify(key, 'deleted', '');
  }

  notify(key, state, body) {
    if (!this.keys.delete(key)) return;
    this.keep();
    const shown = new Notification(`${key}: ${state}`, { body, tag: key, icon: '/-/static/icon.svg' });
    shown.onclick = () => {
      focus();
      this.open(key);
    };
  }
}
