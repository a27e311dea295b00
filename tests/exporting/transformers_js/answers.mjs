// What transformers.js answers to a picture, by the task of each folder; in Node and in a browser.

const plain = (tensor) => ({ dims: tensor.dims, data: Array.from(tensor.data) });
const TASKS = {
  classes: async (pipeline, picture) =>
    (await pipeline("image-classification"))(picture, { top_k: 100 }),
  features: async (pipeline, picture) => {
    const extract = await pipeline("image-feature-extraction");
    return [plain(await extract(picture)), plain(await extract(picture, { pool: true }))];
  },
  masks: async (pipeline, picture) => {
    const segments = await (await pipeline("image-segmentation"))(picture);
    return segments.map(({ label, mask }) => ({ label, mask: Array.from(mask.data) }));
  },
  boxes: async (pipeline, picture) =>
    (await pipeline("object-detection"))(picture, { threshold: 0.01, percentage: true }),
};

/** Answers {folder: answer} of the library `transformers`, whose `env` finds the folders. */
export async function answers(transformers, picture) {
  const all = {};
  for (const [folder, ask] of Object.entries(TASKS))
    all[folder] = await ask(
      (task) => transformers.pipeline(task, folder, { dtype: "fp32", device: null }),
      picture,
    );
  return all;
}
