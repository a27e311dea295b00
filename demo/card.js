// A picture with what a model says of it: its classes, its milliseconds, and where it looks.
import { color } from "./colors.js";

const OPACITY = 0.6; // of the attention over the picture
const VIEW = 448; // pixels: the width of a card's picture

export class Card {
  constructor(template, classifier) {
    this.classifier = classifier;
    this.element = template.content.firstElementChild.cloneNode(true);
    this.view = this.element.querySelector("canvas");
    this.view.width = VIEW;
    this.view.height = Math.round((VIEW * classifier.height) / classifier.width);
    this.seen = new OffscreenCanvas(this.view.width, this.view.height);
  }

  /** Takes what the model sees of a picture; the picture itself is no longer needed. */
  take(picture, width, height, name) {
    const { seen, classifier } = this;
    this.name = name;
    this.element.querySelector(".name").textContent = name;
    this.pixels = classifier.pixels(picture, width, height);
    const context = seen.getContext("2d");
    context.clearRect(0, 0, seen.width, seen.height);
    context.drawImage(picture, ...classifier.crop(width, height), 0, 0, seen.width, seen.height);
  }

  /** Lets one of the classifier's files answer. */
  async ask(file) {
    this.answer = await this.classifier.classify(this.pixels, file);
    this.list();
  }

  /** Draws the picture, and the attention over it as colors that show on dark pictures too. */
  draw(showsAttention) {
    const { view, seen, answer } = this;
    const context = view.getContext("2d");
    context.clearRect(0, 0, view.width, view.height);
    context.drawImage(seen, 0, 0);
    if (!answer?.attention || !showsAttention) return;
    context.globalAlpha = OPACITY;
    context.imageSmoothingQuality = "high";
    context.drawImage(this.map(), 0, 0, view.width, view.height);
    context.globalAlpha = 1;
  }

  /** The attention as a picture with a pixel for each patch. */
  map() {
    const { attention } = this.answer;
    const [rows, columns] = this.classifier.manifest.attention;
    const most = Math.max(...attention);
    const colors = new ImageData(columns, rows);
    attention.forEach((weight, i) => colors.data.set([...color(weight / most), 255], 4 * i));
    const map = new OffscreenCanvas(columns, rows);
    map.getContext("2d").putImageData(colors, 0, 0);
    return map;
  }

  list() {
    const { classes, milliseconds, precision } = this.answer;
    const rows = classes.slice(0, 5).map(({ name, probability }) => {
      const row = document.createElement("li");
      const bar = Object.assign(document.createElement("div"), { className: "bar" });
      bar.style.width = `${100 * probability}%`;
      const percent = `${(100 * probability).toFixed(1)} %`;
      const texts = [name, percent].map((textContent) =>
        Object.assign(document.createElement("span"), { textContent }),
      );
      row.append(bar, ...texts);
      return row;
    });
    this.element.querySelector(".answers").replaceChildren(...rows);
    const latency = `${precision}, ${milliseconds.toFixed(1)} ms`;
    this.element.querySelector(".latency").textContent = latency;
  }
}
