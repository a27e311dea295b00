// Runs exported ONNX files in ONNX Runtime Web: picture -> classes, attention, a mask or boxes.
import { resized, seenPart } from "./pixels.js";

const RUNTIME = "./node_modules/onnxruntime-web/dist/ort";
const THREADS = 4; // more gain little with one picture

async function read(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path} is missing: export with --format onnx`);
  return response;
}

/** Opens an exported folder. Its `runs` are the pairs of an ONNX file, the smallest first, and a device. */
export async function open(folder) {
  const manifest = await (await read(`${folder}/manifest.json`)).json();
  const files = manifest.files.filter((file) => file.format === "onnx");
  if (!files.length || manifest.input.type !== "uint8" || manifest.output === "features")
    throw new Error("The page needs an export of 8-bit pictures with --format onnx, without --raw");
  const names = (await (await read(`${folder}/labels.txt`)).text()).trimEnd().split("\n");
  files.sort((a, b) => a.bytes - b.bytes);
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  const runtime = await import(adapter ? `${RUNTIME}.webgpu.min.mjs` : `${RUNTIME}.wasm.min.mjs`);
  runtime.env.logLevel = "error"; // it warns of operations that stay on the processor
  runtime.env.wasm.numThreads = crossOriginIsolated ? Math.min(navigator.hardwareConcurrency, THREADS) : 1;
  const devices = adapter ? ["webgpu", "wasm"] : ["wasm"];
  const runs = devices.flatMap((device) => files.map((file) => ({ ...file, device })));
  return new Model(folder, manifest, runs, names, runtime);
}

class Model {
  sessions = new Map();

  constructor(folder, manifest, runs, names, runtime) {
    Object.assign(this, { folder, manifest, runs, names, runtime, task: manifest.task });
    [this.height, this.width, this.channels] = manifest.input.shape;
    this.size = [this.height, this.width];
  }

  /** Loads a file on a device once, and runs it once, so that no picture pays for the first run. */
  async load(run) {
    if (this.sessions.has(run)) return;
    const options = { executionProviders: [run.device] };
    const path = `${this.folder}/${run.file}`;
    this.sessions.set(run, await this.runtime.InferenceSession.create(path, options));
    await this.ask(new Uint8Array(this.height * this.width * this.channels), run);
  }

  /** The left, top, width and height of the part of a picture that the model sees. */
  seen(width, height) {
    return seenPart([height, width], this.size, this.manifest.input.preprocessing);
  }

  /** The pixels that the model takes, of a picture as `ImageData`: (H, W, C) uint8. */
  pixels(picture) {
    return resized(picture, this.size, this.channels, this.manifest.input.preprocessing);
  }

  /**
   * The answer to pixels, and the milliseconds of the model alone. It has `attention`, if the file
   * gives it, and one of `classes`, the most likely first; `mask`, a class for each pixel of the
   * model's size; or `boxes`, the objects above their thresholds, with corners in 0..1.
   */
  async ask(pixels, run) {
    const shape = [1, this.height, this.width, this.channels];
    const began = performance.now();
    const images = new this.runtime.Tensor("uint8", pixels, shape);
    const outputs = await this.sessions.get(run).run({ images });
    const milliseconds = performance.now() - began;
    const { attention = null, output, boxes, scores } = outputs;
    const { precision, device } = run;
    return {
      ...{ milliseconds, precision, device },
      attention: attention && Array.from(attention.data),
      ...(boxes ? { boxes: this.objects(boxes.data, scores.data) } : this.answer(output)),
    };
  }

  answer({ data, dims }) {
    if (dims.length === 2) {
      const classes = Array.from(data, (value, k) => ({ name: this.names[k], probability: value }));
      return { classes: classes.sort((a, b) => b.probability - a.probability) };
    }
    const count = this.names.length;
    const best = (at) => {
      let most = at * count;
      for (let k = most; k < (at + 1) * count; k++) if (data[k] > data[most]) most = k;
      return most - at * count;
    };
    if (dims.length === 3) return { mask: Array.from(data) };
    return { mask: Array.from({ length: data.length / count }, (_, at) => best(at)) };
  }

  objects(corners, scores) {
    const count = this.names.length;
    const objects = [];
    for (let i = 0; i < scores.length / count; i++) {
      const row = scores.subarray(i * count, (i + 1) * count);
      const k = row.indexOf(Math.max(...row));
      if (row[k] < (this.task.thresholds?.[k] ?? 0.5)) continue;
      const box = Array.from(corners.subarray(4 * i, 4 * i + 4));
      objects.push({ name: this.names[k], class: k, probability: row[k], box });
    }
    return objects.sort((a, b) => b.probability - a.probability);
  }
}
