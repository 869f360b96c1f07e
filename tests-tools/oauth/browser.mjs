// A person at a browser: opens an address, logs in as `ann`, and agrees. With `--deny` the person declines instead.
// Prints the text of the page at which it ends; with `--elsewhere`, on a machine that cannot reach the client's, its address.
const [deny, elsewhere] = ["--deny", "--elsewhere"].map((option) => process.argv.includes(option));
const cookies = new Map();
let [address, body] = [process.argv[2], undefined];
for (let step = 0; step < 20; step++) {
  const headers = { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join("; ") };
  const response = await fetch(address, { method: body ? "POST" : "GET", body, headers, redirect: "manual" });
  for (const cookie of response.headers.getSetCookie()) {
    const [name, ...value] = cookie.split(";")[0].split("=");
    cookies.set(name, value.join("="));
  }
  const location = response.headers.get("location");
  const page = await response.text();
  const form = page.match(/<form[^>]* action="([^"]+)"/);
  if (elsewhere && location?.includes("/callback?")) {
    console.log(location);
    process.exit(0);
  } else if (location) {
    [address, body] = [new URL(location, address).href, undefined];
  } else if (form && deny) {
    [address, body] = [new URL(page.match(/href="([^"]+\/abort)"/)[1], address).href, undefined];
  } else if (form) {
    address = new URL(form[1], address).href;
    body = new URLSearchParams({ login: "ann", password: "any" });
    for (const [, name, value] of page.matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)"/g)) body.set(name, value);
  } else {
    console.log(page);
    process.exit(response.ok ? 0 : 1);
  }
}
throw new Error(`the login does not end: ${address}`);
