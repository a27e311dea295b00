// Clicks through the page in headless Chromium: node click.js URL PICTURE SCREENSHOT
// Prints the page's answers as JSON, waits for a line of input, then prints its answers without server.
import puppeteer from "puppeteer-core";

const [url, picture, screenshot] = process.argv.slice(2);
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
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  page.on("pageerror", (error) => console.error(error.message));
  await page.setViewport({ width: 480, height: 860 });

  async function choose() {
    await page.waitForSelector("#choose:not([disabled])");
    const [chooser] = await Promise.all([page.waitForFileChooser(), page.click("#choose")]);
    await chooser.accept([picture]);
    await page.waitForSelector("#answers li");
    return page.evaluate(() => ({
      ...window.lastAnswer,
      attention: window.lastAnswer.attention && [...window.lastAnswer.attention],
      rows: [...document.querySelectorAll("#answers li")].map((row) => row.innerText),
      bars: [...document.querySelectorAll("#answers .bar")].map((bar) => bar.style.width),
      latency: document.getElementById("latency").innerText,
      threads: crossOriginIsolated,
      brightness: brightness(),
    }));
  }
  await page.evaluateOnNewDocument(() => {
    window.brightness = () => {
      const view = document.getElementById("view");
      const { data } = view.getContext("2d").getImageData(0, 0, view.width, view.height);
      return data.reduce((sum, value) => sum + value, 0) / data.length;
    };
  });

  await page.goto(url);
  const answers = { chosen: await choose() };
  await page.screenshot({ path: screenshot });
  await page.click("#attention");
  answers.brightnessWithoutAttention = await page.evaluate(() => brightness());
  await page.click("#attention");
  await page.click("#camera");
  await page.waitForFunction(() => document.getElementById("status").innerText === "Camera");
  await page.waitForFunction((before) => window.lastAnswer.milliseconds !== before, {}, answers.chosen.milliseconds);
  answers.camera = await page.evaluate(() => document.querySelectorAll("#answers li").length);
  await page.click("#camera");

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
