// Runs exported TFLite files in LiteRT.js: picture -> classes and attention.
import { loadAndCompile, loadLiteRt, Tensor } from "@litertjs/core";

const WASM = "./node_modules/@litertjs/core/wasm/";

async function read(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path} is missing: export with --format litert`);
  return response;
}

/** Opens an exported folder, whose TFLite files are then `files`, the smallest first. */
export async function open(folder) {
  const manifest = await (await read(`${folder}/manifest.json`)).json();
  const names = (await (await read(`${folder}/labels.txt`)).text()).trimEnd().split("\n");
  const files = manifest.files.filter((file) => file.format === "litert" && file.batch === 1);
  if (!files.length || !manifest.input.preprocessing_is_inside || manifest.output !== "softmax")
    throw new Error("The page needs an export with --format litert, without --raw or --output");
  files.sort((a, b) => a.bytes - b.bytes);
  await loadLiteRt(WASM, { threads: crossOriginIsolated });
  return new Classifier(folder, manifest, files, names);
}

class Classifier {
  models = new Map();

  constructor(folder, manifest, files, names) {
    Object.assign(this, { folder, manifest, files, names });
    [this.height, this.width, this.channels] = manifest.input.shape;
    this.canvas = new OffscreenCanvas(this.width, this.height);
  }

  /** Loads a file once, and runs it once, so that no picture pays for the first run. */
  async load(file) {
    if (this.models.has(file)) return;
    const model = await loadAndCompile(`${this.folder}/${file.file}`, { accelerator: "wasm" });
    this.models.set(file, model);
    await this.classify(new Uint8Array(this.height * this.width * this.channels), file);
  }

  /** The left, top, width and height of the part of a picture that the model sees. */
  crop(width, height) {
    const fraction = this.manifest.input.preprocessing.crop_fraction;
    if (fraction === null) return [0, 0, width, height];
    const side = Math.round(fraction * Math.min(width, height));
    return [(width - side) / 2, (height - side) / 2, side, side];
  }

  /** The picture's pixels as the model takes them: (1, H, W, C) uint8. */
  pixels(picture, width, height) {
    const context = this.canvas.getContext("2d", { willReadFrequently: true });
    const { antialias } = this.manifest.input.preprocessing;
    context.imageSmoothingQuality = antialias ? "high" : "low";
    context.fillStyle = "white"; // behind transparent pixels
    context.fillRect(0, 0, this.width, this.height);
    context.drawImage(picture, ...this.crop(width, height), 0, 0, this.width, this.height);
    const { data } = context.getImageData(0, 0, this.width, this.height);
    const pixels = new Uint8Array(this.height * this.width * this.channels);
    for (let i = 0; i < this.height * this.width; i++) {
      const [r, g, b] = data.subarray(4 * i, 4 * i + 3);
      if (this.channels === 1) pixels[i] = Math.round(0.299 * r + 0.587 * g + 0.114 * b);
      else pixels.set([r, g, b], 3 * i);
    }
    return pixels;
  }

  /**
   * The classes, most likely first, the attention or null, and the milliseconds of the model alone.
   * The rank of an output tells which one it is.
   */
  async classify(pixels, file) {
    const model = this.models.get(file);
    const ranks = model.getOutputDetails().map((output) => output.shape.length);
    const began = performance.now();
    const images = new Tensor(pixels, [1, this.height, this.width, this.channels]);
    const outputs = await model.run(images);
    const data = await Promise.all(outputs.map((output) => output.data()));
    const milliseconds = performance.now() - began;
    const classes = Array.from(data[ranks.indexOf(2)], (probability, i) => ({
      name: this.names[i],
      probability,
    })).sort((a, b) => b.probability - a.probability);
    const attention = this.manifest.attention && Array.from(data[ranks.indexOf(3)]);
    for (const tensor of [images, ...outputs]) tensor.delete();
    return { classes, attention, milliseconds, precision: file.precision };
  }
}
