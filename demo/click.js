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
    ...["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"],
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
  ],
});

/** What the page shows, with colors of each picture: at the center of cells, and left of boxes. */
function shown() {
  const colorsOf = (view, { attention, boxes }) => {
    const grid = attention ? Math.sqrt(attention.length) : 16;
    const center = (i) => [((i % grid) + 0.5) / grid, (Math.floor(i / grid) + 0.5) / grid];
    const left = ({ box }) => [box[0], (box[1] + box[3]) / 2];
    const points = boxes ? boxes.map(left) : Array.from({ length: grid * grid }, (_, i) => center(i));
    const context = view.getContext("2d");
    return points.map(([x, y]) =>
      Array.from(context.getImageData(x * view.width, y * view.height, 1, 1).data.slice(0, 3)),
    );
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
      colors: colorsOf(card.querySelector("canvas"), window.answers[i]),
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

  const answered = (run) =>
    page.waitForFunction(
      (count, expected) =>
        window.answers?.length === count &&
        window.answers.every(({ precision, device }) => `${precision}, ${device}` === expected),
      {},
      pictures.length,
      run,
    );
  async function choose() {
    await page.waitForSelector("#choose:not([disabled])");
    const [chooser] = await Promise.all([page.waitForFileChooser(), page.click("#choose")]);
    await chooser.accept(pictures);
    await answered(await page.$eval("input[name=file]:checked", ({ value }) => value));
    return page.evaluate(shown);
  }

  await page.goto(url);
  const answers = { chosen: await choose() };
  const boxes = await page.$$eval("label:not([hidden]) > [type=checkbox]", (all) =>
    all.map(({ id }) => `#${id}`),
  );
  for (const box of boxes) await page.click(box);
  answers.plain = await page.evaluate(shown);
  for (const box of boxes) await page.click(box);
  const runs = await page.$$eval("input[name=file]", (all) => all.map(({ value }) => value));
  for (const run of runs) {
    if (runs.length > 1) await page.click(`input[value="${run}"]`);
    await answered(run);
    answers[run] = await page.evaluate(shown);
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
