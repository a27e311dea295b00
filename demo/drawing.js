// Draws attention, masks and boxes over a picture on a canvas.
import { classColor, color } from "./colors.js";

const OPACITY = 0.6; // of attention and masks over the picture
const NAME = 22; // pixels: the height of a name over a box

/** Draws a picture with a color for each of (rows, columns) cells over the whole canvas. */
function drawCells(context, cells, [rows, columns], colorOf, smooth) {
  const colors = new ImageData(columns, rows);
  cells.forEach((cell, i) => colors.data.set([...colorOf(cell), 255], 4 * i));
  const map = new OffscreenCanvas(columns, rows);
  map.getContext("2d").putImageData(colors, 0, 0);
  const { width, height } = context.canvas;
  context.globalAlpha = OPACITY;
  context.imageSmoothingEnabled = smooth;
  context.imageSmoothingQuality = "high";
  context.drawImage(map, 0, 0, width, height);
  context.globalAlpha = 1;
}

export function drawAttention(context, attention, grid) {
  const most = Math.max(...attention);
  drawCells(context, attention, grid, (weight) => color(weight / most), true);
}

export function drawMask(context, mask, size) {
  drawCells(context, mask, size, classColor, false);
}

/** Draws boxes with their names, the most certain last, so that it lies on top. */
export function drawBoxes(context, objects) {
  const { width, height } = context.canvas;
  context.font = "600 18px system-ui, sans-serif";
  context.textBaseline = "top";
  for (const { name, class: k, box } of objects.toReversed()) {
    const [left, top, right, bottom] = box.map((share, i) => share * (i % 2 ? height : width));
    const fill = `rgb(${classColor(k)})`;
    context.lineWidth = 3;
    context.strokeStyle = fill;
    context.strokeRect(left, top, right - left, bottom - top);
    const wide = context.measureText(name).width + 8;
    const x = Math.max(Math.min(left - 1.5, width - wide), 0);
    const y = top >= NAME ? top - NAME : Math.min(top, height - NAME);
    context.fillStyle = fill;
    context.fillRect(x, y, wide, NAME);
    context.fillStyle = "black";
    context.fillText(name, x + 4, y + 2);
  }
}
