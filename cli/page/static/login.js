// Logs in with a token, then reloads: the form is served at the URL of the requested page.

import { ask } from './stream.js';

const at = (id) => document.getElementById(id);

async function logIn(token) {
  const { code, error } = await ask('/-/login', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ token }) });
  if (code === 401) return 'The cluster does not accept this token: it is wrong, or has expired.';
  if (error) return error;
  const known = await ask('/', { method: 'HEAD' });
  return known.code === 401 ? 'This browser did not keep the login: it does so only for https addresses, and for localhost.' : '';
}

at('login').addEventListener('submit', async (event) => {
  event.preventDefault();
  at('enter').disabled = true;
  at('problem').textContent = '';
  const problem = await logIn(at('token').value.trim());
  at('enter').disabled = false;
  at('problem').textContent = problem;
  problem ? at('token').focus() : location.reload();
});

at('token').focus();
