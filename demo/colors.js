// The colors of attention, and those of classes.

// matplotlib's magma at five places, with straight lines between them.
const MAGMA = [
  [0, 0, 4],
  [81, 18, 124],
  [183, 55, 121],
  [252, 137, 97],
  [252, 253, 191],
];
const CLASSES = [
  [230, 159, 0], // Okabe and Ito's, which most people tell apart
  [86, 180, 233],
  [0, 158, 115],
  [240, 228, 66],
  [0, 114, 178],
  [213, 94, 0],
  [204, 121, 167],
];

/** The color [r, g, b] of a share in [0, 1] of the largest attention; more is brighter. */
export function color(share) {
  const place = Math.min(Math.max(share, 0), 1) * (MAGMA.length - 1);
  const low = Math.min(Math.floor(place), MAGMA.length - 2);
  return MAGMA[low].map((value, i) => value + (place - low) * (MAGMA[low + 1][i] - value));
}

/** The color [r, g, b] of a class. */
export const classColor = (k) => CLASSES[k % CLASSES.length];

/** The colors as a CSS background, from none to the largest attention. */
export const GRADIENT = `linear-gradient(to right, ${MAGMA.map((rgb) => `rgb(${rgb})`)})`;
