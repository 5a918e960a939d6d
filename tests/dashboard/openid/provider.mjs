// An OpenID Connect provider for the tests: oidc-provider, which is certified by the OpenID Foundation, with a password form.
//
//   node provider.mjs FOLDER_OF_PACKAGES '{"port": …, "client": {…}, "users": {"ann": {"password": …, "claims": {…}}}}'
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [packages, settings] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(createRequire(`${packages}/`).resolve("oidc-provider")));
const { port, client, users } = JSON.parse(settings);
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients: [client],
  claims: { openid: ["sub"], profile: ["preferred_username"], email: ["email", "email_verified"], groups: ["groups"] },
  pkce: { required: () => true },
  cookies: { keys: ["only for tests"] },
  features: { devInteractions: { enabled: false } },
  interactions: { url: (_, { uid }) => `/password/${uid}` },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...users[id.replace("id-of-", "")].claims }) }),
  // nobody is asked whether the dashboard may know the name
  loadExistingGrant: async ({ oidc }) => {
    const grant = new oidc.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
    grant.addOIDCScope("openid profile email groups");
    await grant.save();
    return grant;
  },
});

const form = (problem) => `<!doctype html><title>Password</title><p>${problem}</p><form method="post">
  <label>Name <input name="name"></label> <label>Password <input name="password" type="password"></label> <button>Continue</button></form>`;

async function password(request, response) {
  const page = (status, problem) => response.writeHead(status, { "content-type": "text/html" }).end(form(problem));
  if (request.method !== "POST") return page(200, "");
  const said = new URLSearchParams((await request.toArray()).join(""));
  const name = said.get("name");
  if (!Object.hasOwn(users, name) || users[name].password !== said.get("password")) return page(403, "wrong password");
  return provider.interactionFinished(request, response, { login: { accountId: `id-of-${name}` } });
}

const others = provider.callback();
createServer((request, response) => (request.url.startsWith("/password/") ? password : others)(request, response)).listen(
  port,
  "127.0.0.1",
  () => console.log("ready"),
);
