// A picture with what a model says of it: classes, a mask or boxes, milliseconds, and attention.
import { classColor } from "./colors.js";
import { drawAttention, drawBoxes, drawMask } from "./drawing.js";

const VIEW = 448; // pixels: the width of a card's picture
const ROWS = 5; // that are listed of the classes or objects of a picture

const percent = (share) => `${(100 * share).toFixed(1)}%`;

export class Card {
  constructor(template, model) {
    this.model = model;
    this.element = template.content.firstElementChild.cloneNode(true);
    this.view = this.element.querySelector("canvas");
    this.whole = new OffscreenCanvas(1, 1);
    this.seen = new OffscreenCanvas(VIEW, VIEW);
  }

  /** Takes what the model sees of a picture; the picture itself is no longer needed. */
  take(picture, width, height, name) {
    const { whole, seen, view, model } = this;
    this.name = name;
    this.element.querySelector(".name").textContent = name;
    Object.assign(whole, { width, height });
    const context = whole.getContext("2d", { willReadFrequently: true });
    context.fillStyle = "white"; // behind transparent pixels
    context.fillRect(0, 0, width, height);
    context.drawImage(picture, 0, 0);
    this.pixels = model.pixels(context.getImageData(0, 0, width, height));
    const part = model.seen(width, height);
    seen.height = view.height = Math.round((VIEW * part[3]) / part[2]);
    seen.width = view.width = VIEW;
    seen.getContext("2d").drawImage(whole, ...part, 0, 0, seen.width, seen.height);
    Object.assign(whole, { width: 1, height: 1 });
  }

  /** Lets one of the model's files answer. */
  async ask(run) {
    this.answer = await this.model.ask(this.pixels, run);
    this.list();
  }

  /** Draws the picture and, as `shows` says, its attention and its mask or boxes. */
  draw(shows) {
    const { view, seen, answer, model } = this;
    const context = view.getContext("2d");
    context.clearRect(0, 0, view.width, view.height);
    context.drawImage(seen, 0, 0);
    if (shows.places && answer?.mask) drawMask(context, answer.mask, model.size);
    if (shows.attention && answer?.attention)
      drawAttention(context, answer.attention, model.manifest.attention);
    if (shows.places && answer?.boxes) drawBoxes(context, answer.boxes);
  }

  /** The rows below the picture: a name, the length of its bar, what it shows, and its color. */
  rows() {
    const { classes, mask, boxes } = this.answer;
    const { names, task } = this.model;
    if (classes && task.kind === "numbers")
      return names.map((name) => {
        const { probability } = classes.find((row) => row.name === name);
        return [name, 0, probability.toPrecision(4)];
      });
    if (classes)
      return classes.map((row) => [row.name, row.probability, percent(row.probability)]);
    if (boxes)
      return boxes.map((row) => [row.name, row.probability, percent(row.probability), row.class]);
    const counts = names.map(() => 0);
    for (const k of mask) counts[k]++;
    const shares = counts.map((count, k) => [names[k], count / mask.length, k]);
    const present = shares.filter(([, share]) => share > 0).sort((a, b) => b[1] - a[1]);
    return present.map(([name, share, k]) => [name, share, percent(share), k]);
  }

  list() {
    const { milliseconds, precision, device } = this.answer;
    const all = this.rows();
    const rows = all.slice(0, ROWS).map(([name, share, text, k]) => {
      const row = document.createElement("li");
      const bar = Object.assign(document.createElement("div"), { className: "bar" });
      bar.style.width = `${100 * share}%`;
      if (k !== undefined) bar.style.background = `rgb(${classColor(k).join(" ")} / 60%)`;
      const texts = [name, text].map((textContent) =>
        Object.assign(document.createElement("span"), { textContent }),
      );
      row.append(bar, ...texts);
      return row;
    });
    const rest = this.answer.boxes ? all.length - rows.length : 0;
    const textContent = all.length ? rest && `and ${rest} more` : "No objects";
    if (textContent) rows.push(Object.assign(document.createElement("li"), { textContent }));
    this.element.querySelector(".answers").replaceChildren(...rows);
    const latency = `${precision}, ${device}, ${milliseconds.toFixed(1)} ms`;
    this.element.querySelector(".latency").textContent = latency;
  }
}
