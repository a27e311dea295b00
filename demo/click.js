// Clicks through the page in headless Chromium: node click.js URL SCREENSHOT PICTURE ...
// Prints the page's answers as JSON, waits for a line of input, then prints its answers without server.
import puppeteer from "puppeteer-core";

const [url, screenshot, ...pictures] = process.argv.slice(2);
const PATIENCE = 240_000; // milliseconds: a busy machine takes its time
const browser = await puppeteer.launch({
  timeout: PATIENCE,
  protocolTimeout: PATIENCE,
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: [
    "--no-sandbox",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
  ],
});

/** What the page shows, with the brightness of each picture at the center of each patch. */
function shown() {
  const brightness = (view) => {
    const grid = Math.sqrt(window.answers[0].attention.length);
    const context = view.getContext("2d");
    return Array.from({ length: grid * grid }, (_, i) => {
      const x = ((i % grid) + 0.5) * (view.width / grid);
      const y = (Math.floor(i / grid) + 0.5) * (view.height / grid);
      const [r, g, b] = context.getImageData(x, y, 1, 1).data;
      return 0.299 * r + 0.587 * g + 0.114 * b;
    });
  };
  const texts = (element, selector) =>
    [...element.querySelectorAll(selector)].map((child) => child.innerText);
  return {
    threads: crossOriginIsolated,
    files: texts(document, "#files label"),
    cards: [...document.querySelectorAll("figure")].map((card, i) => ({
      ...window.answers[i],
      rows: texts(card, "li"),
      bars: [...card.querySelectorAll(".bar")].map((bar) => bar.style.width),
      latency: card.querySelector(".latency").innerText,
      brightness: brightness(card.querySelector("canvas")),
    })),
  };
}

try {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  page.on("pageerror", (error) => console.error(error.message));
  page.on("console", (line) => line.type() === "error" && console.error(line.text()));
  await page.setViewport({ width: 480, height: 860 });

  const answered = (precision) =>
    page.waitForFunction(
      (count, expected) =>
        window.answers?.length === count && window.answers.every((answer) => answer.precision === expected),
      {},
      pictures.length,
      precision,
    );
  async function choose() {
    await page.waitForSelector("#choose:not([disabled])");
    const [chooser] = await Promise.all([page.waitForFileChooser(), page.click("#choose")]);
    await chooser.accept(pictures);
    await answered(await page.$eval("input[name=file]:checked", (button) => button.value));
    return page.evaluate(shown);
  }

  await page.goto(url);
  const answers = { chosen: await choose() };
  await page.click("#attention");
  answers.withoutAttention = await page.evaluate(shown);
  await page.click("#attention");
  for (const precision of await page.$$eval("input[name=file]", (all) => all.map(({ value }) => value))) {
    await page.click(`input[value=${precision}]`);
    await answered(precision);
    answers[precision] = await page.evaluate(shown);
  }
  await page.screenshot({ path: screenshot });

  await page.click("#camera");
  await page.waitForFunction((count) => window.answers.length === count, {}, pictures.length + 1);
  const [first] = await page.evaluate(() => window.answers);
  await page.waitForFunction(
    (before) => window.answers[0].milliseconds !== before,
    {},
    first.milliseconds,
  );
  answers.camera = first.name;
  await page.click("#clear");
  answers.cleared = await page.evaluate(() => document.querySelectorAll("figure").length);

  await page.evaluate(() => navigator.serviceWorker.ready);
  await page.reload(); // the worker then sees every file once
  await page.waitForSelector("#choose:not([disabled])");
  process.stdout.write(`${JSON.stringify({ ...answers, asked })}\n`);
  await new Promise((resolve) => process.stdin.once("data", resolve)); // the server stops
  await page.reload();
  process.stdout.write(`${JSON.stringify({ offline: await choose() })}\n`);
} finally {
  await browser.close();
}
