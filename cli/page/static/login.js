// Logs in with a token. The page that was asked for opens by itself then, since this form stands at its address.

const at = (id) => document.getElementById(id);

async function logIn(token) {
  const response = await fetch('/-/login', {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ token }),
  });
  if (response.status === 401) return 'The cluster does not accept this token: it is wrong, or has expired.';
  if (!response.ok) return (await response.json().catch(() => ({}))).message ?? `The page's server said ${response.status}.`;
  const known = await fetch('/', { method: 'HEAD' });
  return known.status === 401 ? 'This browser did not keep the login: it does so only for https addresses, and for localhost.' : '';
}

at('login').addEventListener('submit', async (event) => {
  event.preventDefault();
  at('enter').disabled = true;
  at('problem').textContent = '';
  const problem = await logIn(at('token').value.trim()).catch(() => 'The connection was lost.');
  at('enter').disabled = false;
  if (problem) {
    at('problem').textContent = problem;
    at('token').focus();
  } else {
    location.reload();
  }
});

at('token').focus();
