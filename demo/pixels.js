// Resizes pictures as training does: the same bytes as Pillow, or as a model's own rule says.
const WEIGHTS = {
  bilinear: [1, (x) => Math.max(1 - x, 0)],
  bicubic: [2, (x) => (x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0)],
};
const FIXED = 2 ** 22; // Pillow computes with whole multiples of 1 / FIXED

/** The first pixel and the weights of each of `length` new pixels of a row of `old` ones. */
function taps(old, length, { interpolation, antialias, rounding }) {
  const [reach, weight] = WEIGHTS[interpolation];
  const scale = old / length;
  const stretch = antialias ? Math.max(scale, 1) : 1;
  return Array.from({ length }, (_, place) => {
    const center = (place + 0.5) * scale;
    const first = Math.max(Math.trunc(center - reach * stretch + 0.5), 0);
    const end = Math.min(Math.trunc(center + reach * stretch + 0.5), old);
    const weights = Array.from({ length: end - first }, (_, i) =>
      weight(Math.abs((first + i - center + 0.5) / stretch)),
    );
    const total = weights.reduce((sum, value) => sum + value, 0);
    const shares = weights.map((value) => value / total);
    const whole = rounding !== "none";
    return { first, weights: whole ? shares.map((value) => Math.round(value * FIXED) / FIXED) : shares };
  });
}

/** Resizes the columns of (rows, old, C) and turns the result: (length, rows, C). */
function turned(data, rows, old, channels, length, rule) {
  const Type = rule.rounding === "none" ? Float32Array : Uint8ClampedArray;
  const result = new Type(length * rows * channels);
  taps(old, length, rule).forEach(({ first, weights }, place) => {
    for (let row = 0; row < rows; row++) {
      for (let channel = 0; channel < channels; channel++) {
        let sum = 0;
        let from = (row * old + first) * channels + channel;
        for (const weight of weights) {
          sum += data[from] * weight;
          from += channels;
        }
        const to = (place * rows + row) * channels + channel;
        result[to] = Type === Float32Array ? sum : Math.floor(sum + 0.5);
      }
    }
  });
  return result;
}

/** The size (height, width) that a picture is resized to, and the corner (top, left) of the crop. */
function plan(sides, size, { crop_fraction: fraction, rounding }) {
  if (fraction === null) return [size, [0, 0]];
  const exact = size.map((side) => side / fraction);
  const smallest = rounding === "none" ? exact : exact.map((side) => Math.floor(side + 1e-6));
  const ratios = smallest.map((side, i) => side / sides[i]);
  const tight = ratios[0] >= ratios[1] ? 0 : 1;
  const scaled = sides.map((side) =>
    rounding === "none"
      ? Math.floor(side * ratios[tight] + 1e-6)
      : Math.floor((smallest[tight] * side) / sides[tight]),
  );
  const even = (x) => (x % 1 === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));
  const round = rounding === "transformers" ? Math.floor : even;
  return [scaled, scaled.map((side, i) => round((side - size[i]) / 2))];
}

/** The left, top, width and height of the part of a picture that a model of `size` sees. */
export function seenPart(sides, size, rule) {
  const [scaled, [top, left]] = plan(sides, size, rule);
  const [down, across] = sides.map((side, i) => side / scaled[i]);
  return [left * across, top * down, size[1] * across, size[0] * down];
}

/** The pixels (h, w, C) uint8 that a model takes, of a picture's RGBA (H, W, 4). */
export function resized({ data, width, height }, size, channels, rule) {
  const plain = new Uint8ClampedArray(width * height * channels);
  for (let from = 0, to = 0; from < data.length; from += 4) {
    if (channels === 1)
      plain[to++] =
        (19595 * data[from] + 38470 * data[from + 1] + 7471 * data[from + 2] + 32768) >> 16;
    else for (let channel = 0; channel < 3; channel++) plain[to++] = data[from + channel];
  }
  const [[rows, columns], [top, left]] = plan([height, width], size, rule);
  const across = turned(plain, height, width, channels, columns, rule); // (w, H, C)
  const whole = turned(across, columns, height, channels, rows, rule); // (h, w, C)
  const result = new Uint8ClampedArray(size[0] * size[1] * channels);
  for (let row = 0; row < size[0]; row++) {
    const from = ((top + row) * columns + left) * channels;
    result.set(whole.subarray(from, from + size[1] * channels), row * size[1] * channels);
  }
  return new Uint8Array(result.buffer);
}
