// The colors of attention: matplotlib's magma at five places, with straight lines between them.
const MAGMA = [
  [0, 0, 4],
  [81, 18, 124],
  [183, 55, 121],
  [252, 137, 97],
  [252, 253, 191],
];

/** The color [r, g, b] of a share in [0, 1] of the largest attention; more is brighter. */
export function color(share) {
  const place = Math.min(Math.max(share, 0), 1) * (MAGMA.length - 1);
  const low = Math.min(Math.floor(place), MAGMA.length - 2);
  return MAGMA[low].map((value, i) => value + (place - low) * (MAGMA[low + 1][i] - value));
}

/** The colors as a CSS background, from none to the largest attention. */
export const GRADIENT = `linear-gradient(to right, ${MAGMA.map((rgb) => `rgb(${rgb})`)})`;
