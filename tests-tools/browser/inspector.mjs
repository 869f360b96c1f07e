// The inspector page in a real browser. Usage: node inspector.mjs BASE_URL LIVE_ADDRESS TRANSCRIPT SAVED_PAGE [IMAGES]
// LIVE_ADDRESS is what a gateway that records conversations has printed. With IMAGES, a folder, it only takes the pictures of the documentation.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const installed = resolve(import.meta.dirname, "../../target/test-tools/browser/");
const { chromium } = createRequire(`${installed}/`)("playwright-core");
const [base, liveAddress, transcriptFile, savedPage, images] = process.argv.slice(2);
const transcript = readFileSync(transcriptFile, "utf8");
const executablePath = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const problems = [];

const newPage = async (options = {}) => {
  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.on("console", (message) => message.type() === "error" && !message.text().includes("status of 4") && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(error.message));
  return page;
};

const explain = async (page, text, url = base) => {
  await page.goto(url);
  await page.fill("#paste", text);
  await page.click("#explain");
  await page.waitForSelector(".program");
};

// A client that orders parts; `between` is awaited before each of its requests.
const converse = async (origin, between = async () => {}) => {
  const tool = (name, parameter) => ({ type: "function", function: { name, parameters: { type: "object", properties: { [parameter]: { type: "string" } } } } });
  const tools = [tool("list_parts", "product"), tool("stock_of", "part"), tool("order", "part")];
  const execute = ({ name, arguments: text }) => (name === "list_parts" ? '["frame", "wheel"]' : name === "stock_of" ? '{"left": 0}' : `ordered ${JSON.parse(text).part}`);
  const messages = [{ role: "user", content: "Order the parts of a live bicycle." }];
  for (;;) {
    await between(messages);
    const body = JSON.stringify({ model: "m", messages, tools });
    const response = await fetch(`${origin}/v1/chat/completions`, { method: "POST", headers: { "content-type": "application/json" }, body });
    const { message } = (await response.json()).choices[0];
    messages.push(message);
    if (!message.tool_calls?.length) return messages;
    for (const call of message.tool_calls) messages.push({ role: "tool", tool_call_id: call.id, content: execute(call.function) });
  }
};

const sliderState = (page) => page.textContent(".slider-state");

const stories = {
  async "a transcript is pasted, and its programs are shown"() {
    const page = await newPage();
    const response = await page.goto(base);
    const policy = response.headers()["content-security-policy"];
    assert.match(policy, /^default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'; connect-src 'self';/);
    assert.doesNotMatch(policy, /unsafe/);
    await explain(page, transcript);
    assert.deepEqual(await page.locator(".block-link").allTextContents(), ["program 1", "program 2"]);
    assert.equal(await page.getAttribute(".code li.failing", "data-line"), "5");
    assert.equal(await page.locator(".call-row:not(.heading)").count(), 5);
    assert.equal(await page.locator(".tile dd").first().textContent(), "5");
    await page.keyboard.press("m");
    const [client, model] = await page.locator(".kind-program").first().locator(".history-column").all();
    assert.match(await client.textContent(), /list_parts/);
    assert.match(await model.textContent(), /execute/);
  },

  async "the slider shows the run at each point"() {
    const page = await newPage();
    await explain(page, transcript);
    assert.equal(await sliderState(page), "after 5 of 5 answers: finished");
    await page.keyboard.press(",");
    assert.equal(await sliderState(page), "after 4 of 5 answers: waits for 1 answer");
    await page.locator(".slider input").press("Home");
    assert.equal(await sliderState(page), "after 0 of 5 answers: waits for 1 answer");
    assert.equal(await page.locator(".call-row.later").count(), 4);
    await page.keyboard.press(".");
    assert.equal(await sliderState(page), "after 1 of 5 answers: waits for 4 answers");
    assert.equal(await page.locator(".code li.failing").count(), 0);
  },

  async "an edited answer leads to other calls, an edited program to another result"() {
    const page = await newPage();
    await explain(page, transcript);
    await page.click("text=What if it had answered…");
    await page.fill(".editor", '["frame", "lamp"]');
    await page.click("text=Run");
    await page.waitForSelector(".program.what-if");
    assert.deepEqual(await page.locator(".waiting-call").allTextContents(), ['stock_of({"part":"lamp"})']);
    await page.click("text=Back to what happened");
    await page.keyboard.press("e");
    await page.fill(".editor", 'return (await list_parts({ product: "bicycle" })).length');
    await page.keyboard.press("Control+Enter");
    await page.waitForSelector(".program.what-if");
    assert.equal(await page.textContent(".end .text"), "4");
    await page.click("text=Back to what happened");
    await page.keyboard.press("e");
    await page.fill(".editor", "return (");
    await page.keyboard.press("Control+Enter");
    await page.waitForSelector(".program.what-if");
    assert.match(await page.textContent(".end"), /SyntaxError/);
  },

  async "what is copied can be pasted again"() {
    const page = await newPage();
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await explain(page, transcript);
    const copied = async (what) => {
      await page.click(`.toolbar >> text="${what}"`);
      await page.waitForSelector("text=Copied ✓");
      return page.evaluate(() => navigator.clipboard.readText());
    };
    assert.match(await copied("curl"), /^curl http:\/\/127\.0\.0\.1:\d+\/v1\/step/);
    const step = await copied("step request");
    assert.equal(JSON.parse(step).journal.length, 5);
    await explain(page, step);
    assert.equal(await sliderState(page), "after 5 of 5 answers: finished");
    await explain(page, transcript);
    assert.match(await copied("scenario"), /```tools\nlist_parts\(product\)/);
  },

  async "a thousand calls stay fluid"() {
    const page = await newPage();
    const journal = Array.from({ length: 1000 }, (_, call) => ({ call, tool: "price", args: { item: call }, ok: { eur: call % 90 } }));
    const code = "const items = [...Array(1000).keys()];\nlet sum = 0;\nfor (let at = 0; at < 1000; at += 50) {\n  const some = await Promise.all(items.slice(at, at + 50).map((item) => price({ item })));\n  for (const { eur } of some) sum += eur;\n}\nreturn sum;";
    await explain(page, JSON.stringify({ program: { code }, tools: [{ name: "price" }], journal }));
    assert.equal(await sliderState(page), "after 1,000 of 1,000 answers: finished");
    assert.ok((await page.locator(".call-row").count()) < 100);
    const milliseconds = await page.evaluate(async () => {
      const range = document.querySelector(".slider input");
      const start = performance.now();
      for (let at = 0; at <= 1000; at += 10) {
        range.value = at;
        range.dispatchEvent(new Event("input"));
        await new Promise(requestAnimationFrame);
      }
      return performance.now() - start;
    });
    assert.ok(milliseconds < 101 * 200, `101 moves took ${milliseconds} ms`);
    await page.focus(".call-list");
    await page.keyboard.press("End");
    assert.match(await page.textContent(".call-detail h3"), /call 999/);
    return `101 moves of the slider in ${Math.round(milliseconds)} ms`;
  },

  async "strings that look like markup stay strings"() {
    const page = await newPage();
    const evil = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>";
    const code = `// ${evil}\nconsole.log(${JSON.stringify(evil)});\nconst found = await look({ at: ${JSON.stringify(evil)} });\nthrow new Error(found);`;
    const step = { program: { code }, tools: [{ name: "look", description: evil }], journal: [{ call: 0, tool: "look", args: { at: evil }, ok: evil }] };
    await explain(page, JSON.stringify(step));
    const history = [{ role: "user", content: evil }, { role: "assistant", content: evil, tool_calls: [{ id: evil, type: "function", function: { name: evil, arguments: evil } }] }, { role: "tool", tool_call_id: evil, content: evil }];
    await page.click("text=Open another");
    await page.fill("#paste", JSON.stringify({ model: evil, messages: history }));
    await page.click("#explain");
    await page.waitForSelector("h1:has-text('onerror')");
    await page.keyboard.press("m");
    assert.equal(await page.locator("img").count(), 0);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
  },

  async "the keyboard is enough"() {
    const page = await newPage();
    await page.goto(base);
    for (let tabs = 0; tabs < 12; tabs++) {
      await page.keyboard.press("Tab");
      if ((await page.evaluate(() => document.activeElement.id)) === "example") break;
    }
    await page.keyboard.press("Enter");
    await page.waitForSelector(".program");
    for (let tabs = 0; tabs < 30; tabs++) {
      await page.keyboard.press("Tab");
      if ((await page.evaluate(() => document.activeElement.className)) === "call-list") break;
    }
    await page.keyboard.press("ArrowDown");
    assert.match(await page.textContent(".call-detail h3"), /call 1/);
    const unnamed = await page.evaluate(() => [...document.querySelectorAll("button, input, textarea")].filter((element) => !(element.textContent || element.getAttribute("aria-label") || element.labels?.length)).length);
    assert.equal(unnamed, 0);
  },

  async "a narrow window and the dark mode work"() {
    const narrow = await newPage({ viewport: { width: 380, height: 800 } });
    await explain(narrow, transcript);
    assert.ok(await narrow.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth));
    const dark = await newPage({ colorScheme: "dark" });
    await explain(dark, transcript);
    const background = await dark.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    assert.equal(background, "rgb(18, 19, 20)");
  },

  async "what cannot be read is said, and the page stays usable"() {
    const page = await newPage();
    await page.goto(base);
    for (const [text, message] of [["Dear model", /is not JSON/], ["", /is empty/], ['{"contents": []}', /no request of a known wire/]]) {
      await page.fill("#paste", text);
      await page.click("#explain");
      await page.locator("main .problem", { hasText: message }).waitFor();
    }
    await page.fill("#paste", transcript.replaceAll('"dc1_A', '"dc1_B'));
    await page.click("#explain");
    await page.waitForSelector("text=could not be opened");
    await explain(page, transcript);
  },

  async "a conversation is seen while its client runs"() {
    const { origin } = new URL(liveAddress);
    const page = await newPage();
    await page.goto(liveAddress);
    await page.waitForSelector("text=Nothing yet.");
    assert.equal(new URL(page.url()).hash, "");
    assert.match(await page.textContent(".live-banner"), /^This gateway records the last 100 conversations/);
    let requests = 0;
    await converse(origin, async () => {
      requests += 1;
      if (requests !== 3) return;
      await page.click(".live .conversation-link");
      await page.waitForSelector(".program");
      assert.match(await page.textContent(".slider-state"), /waits for 2 answers/);
    });
    await page.waitForSelector(".live-list >> text=answered");
    await page.waitForSelector(".block-link >> text=program 2");
    await page.waitForSelector(`summary >> text=${requests} requests`);
    // The address works once, and nobody else sees anything.
    const other = await newPage();
    await other.goto(liveAddress);
    await other.waitForSelector(".problem >> text=was used before");
    assert.equal((await fetch(`${origin}/inspect/conversations`)).status, 403);
    const foreign = await fetch(`${origin}/inspect/session`, { method: "POST", headers: { origin: "https://evil.example" }, body: "{}" });
    assert.equal(foreign.status, 403);
    await page.reload();
    await page.waitForSelector(".live .conversation-link");
    await page.click("text=Forget all");
    await page.waitForSelector("text=Nothing yet.");
    problems.splice(0);
  },

  async "a saved page needs no gateway"() {
    const page = await newPage();
    await page.goto(`file://${savedPage}`);
    await page.waitForSelector(".program");
    await page.keyboard.press(",");
    assert.equal(await sliderState(page), "after 4 of 5 answers: waits for 1 answer");
    assert.equal(await page.locator("text=What if").count(), 0);
  },
};

const pictures = async (folder) => {
  const shot = async (name, options, prepare) => {
    const page = await newPage({ deviceScaleFactor: 1.5, ...options });
    await explain(page, transcript);
    await prepare(page);
    await page.screenshot({ path: `${folder}/${name}.png` });
  };
  await shot("inspector-program", {}, (page) => page.keyboard.press("]"));
  await shot("inspector-slider", { colorScheme: "dark" }, async (page) => {
    await page.keyboard.press(",");
    await page.keyboard.press(",");
  });
  await shot("inspector-histories", {}, (page) => page.keyboard.press("m"));
  await shot("inspector-what-if", {}, async (page) => {
    await page.keyboard.press("e");
    const code = await page.inputValue(".editor");
    await page.fill(".editor", code.replace(/throw new Error[^\n]*/, "return { short };"));
    await page.keyboard.press("Control+Enter");
    await page.waitForSelector(".program.what-if");
  });
};

let failed = 0;
if (images) {
  await pictures(images);
} else {
  for (const [name, story] of Object.entries(stories)) {
    try {
      const figure = await story();
      assert.deepEqual(problems.splice(0), []);
      console.log(`ok      ${name}${figure ? ` (${figure})` : ""}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}: ${error.stack}`);
    }
  }
}
await browser.close();
process.exit(failed ? 1 : 0);
