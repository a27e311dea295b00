// node pipelines.mjs NODE_MODULES MODELS PICTURE: prints the answers of Node as JSON, and then, in
// another line, those of headless Chromium if there is puppeteer-core.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { answers } from "./answers.mjs";

const [modules, models, picture] = process.argv.slice(2).map((path) => resolve(path));
const LIBRARY = join(modules, "@huggingface/transformers");
const TYPES = { ".html": "text/html", ".wasm": "application/wasm", ".png": "image/png" };
const ROOTS = { models, modules, scripts: import.meta.dirname, picture };
const PAGE = `<script type="module">
  import * as transformers from "/modules/@huggingface/transformers/dist/transformers.min.js";
  import { answers } from "/scripts/answers.mjs";
  const { env } = transformers;
  Object.assign(env, { allowRemoteModels: false, allowLocalModels: true, localModelPath: "/models/" });
  const ort = "/modules/@huggingface/transformers/node_modules/onnxruntime-web/dist/";
  const file = ort + "ort-wasm-simd-threaded.asyncify";
  env.backends.onnx.wasm.wasmPaths = { mjs: file + ".mjs", wasm: file + ".wasm" };
  answers(transformers, "/picture/").then(
    (told) => (window.told = told), (error) => (window.told = String(error.stack)));
</script>`;

async function inNode() {
  const transformers = await import(pathToFileURL(join(LIBRARY, "dist/transformers.node.mjs")));
  Object.assign(transformers.env, { allowRemoteModels: false, localModelPath: models });
  return answers(transformers, picture);
}

async function serve(request, response) {
  const [, root, ...rest] = new URL(request.url, "http://localhost").pathname.split("/");
  const path = join(ROOTS[root] ?? "", ...rest);
  const body = root ? await readFile(path).catch(() => null) : PAGE;
  const type = root ? (TYPES[extname(path)] ?? "text/javascript") : "text/html";
  response.writeHead(body === null ? 404 : 200, { "Content-Type": type }).end(body);
}

async function inChromium() {
  const { default: puppeteer } = await import(
    pathToFileURL(join(modules, "puppeteer-core/lib/esm/puppeteer/puppeteer-core.js"))
  );
  const server = createServer(serve).listen(0, "127.0.0.1");
  const browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
    timeout: 240_000,
    protocolTimeout: 240_000,
  });
  try {
    const page = await browser.newPage();
    page.on("console", (line) => line.type() === "error" && console.error(line.text()));
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await page.waitForFunction("window.told", { timeout: 240_000 });
    return await page.evaluate("window.told");
  } finally {
    await browser.close();
    server.close();
  }
}

console.log(JSON.stringify(await inNode()));
console.log(JSON.stringify(await inChromium()));
