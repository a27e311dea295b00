// The page: shows what a model says of pictures that are chosen, dropped or filmed.
import { Card } from "./card.js";
import { open } from "./model.js";
import { GRADIENT } from "./colors.js";

const at = (id) => document.getElementById(id);
const PLACES = { masks: "Masks", boxes: "Boxes" };
const cards = []; // the newest first, as on the page
let model, run, stream;
let last = Promise.resolve();

/** Runs jobs one after another: a model answers one picture at a time. */
function inTurn(job) {
  const done = last.then(job);
  last = done.catch(() => {});
  return done;
}

function say(text, error = false) {
  at("status").textContent = text;
  at("status").classList.toggle("error", error);
}

const shows = () => ({ attention: at("attention").checked, places: at("places").checked });

function draw() {
  cards.forEach((card) => card.draw(shows()));
}

/** The name of a file on a device, as on its button. */
const nameOf = ({ precision, device }) => `${precision}, ${device}`;

/** Writes the median of a file's milliseconds over all pictures beside its name. */
function time() {
  const times = cards.filter((card) => card.answer).map((card) => card.answer.milliseconds);
  times.sort((a, b) => a - b);
  const middle = times[times.length >> 1];
  if (middle) at(nameOf(run)).textContent = `${middle.toFixed(1)} ms`;
  window.answers = cards.map(({ name, answer }) => ({ name, ...answer })); // for the console
}

function add(card) {
  cards.unshift(card);
  at("pictures").prepend(card.element);
  at("hint").hidden = true;
}

async function look(card) {
  await card.ask(run);
  card.draw(shows());
}

async function lookAtFile(source) {
  const card = new Card(at("card"), model);
  try {
    const picture = await createImageBitmap(source);
    card.take(picture, picture.width, picture.height, source.name);
    picture.close();
  } catch (error) {
    return `${source.name} is not a picture that this browser can read (${error.message})`;
  }
  add(card);
  await look(card);
}

async function lookAtFiles(sources) {
  stopCamera();
  const problems = [];
  for (const source of sources) problems.push(await inTurn(() => lookAtFile(source)));
  time();
  const unread = problems.filter((problem) => problem);
  if (unread.length) say(unread.join("; "), true);
  else say(sources.length === 1 ? sources[0].name : `${sources.length} pictures`);
}

async function startCamera() {
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    return say(`The camera cannot be used (${error.message})`, true);
  }
  const video = Object.assign(document.createElement("video"), { srcObject: stream, muted: true });
  await video.play();
  at("camera").textContent = "Stop camera";
  say("Camera");
  const card = new Card(at("card"), model);
  add(card);
  while (stream?.active) {
    await inTurn(async () => {
      card.take(video, video.videoWidth, video.videoHeight, "Camera");
      await look(card);
    });
    time();
    await new Promise(requestAnimationFrame);
  }
}

function stopCamera() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = null;
  at("camera").textContent = "Camera";
}

/** Lets another of the exported files, or another device, answer for all pictures. */
async function choose(other) {
  say(`Loading ${other.file} …`);
  const began = performance.now();
  await model.load(other);
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  run = other;
  for (const card of cards) await look(card);
  time();
  say(`${run.file}, ${(run.bytes / 1e6).toFixed(2)} MB, loaded in ${seconds} s`);
}

function offer(other) {
  const label = document.createElement("label");
  const input = { type: "radio", name: "file", value: nameOf(other), checked: other === run };
  const button = Object.assign(document.createElement("input"), input);
  button.onchange = () => inTurn(() => choose(other)).catch((error) => say(error.message, true));
  const latency = Object.assign(document.createElement("span"), { id: nameOf(other) });
  label.append(button, ` ${nameOf(other)} `, latency);
  return label;
}

async function main() {
  navigator.serviceWorker?.register("offline.js");
  model = await open("model");
  await choose(model.runs[0]);
  at("files").append(...model.runs.map(offer));
  at("files").hidden = model.runs.length < 2;
  at("overlay").hidden = !model.manifest.attention;
  at("overplaces").hidden = !PLACES[model.task.kind];
  at("kind").textContent = PLACES[model.task.kind] ?? "";
  at("legend").style.background = GRADIENT;
  at("choose").disabled = at("camera").disabled = at("clear").disabled = false;
}

at("choose").onclick = () => at("file").click();
at("file").onchange = ({ target }) => lookAtFiles([...target.files]);
at("camera").onclick = () => (stream ? stopCamera() : startCamera());
at("clear").onclick = () => {
  stopCamera();
  cards.length = 0;
  at("pictures").replaceChildren();
  at("hint").hidden = false;
};
at("attention").onchange = at("places").onchange = draw;
at("drop").ondragover = (event) => {
  event.preventDefault();
  at("drop").classList.add("over");
};
at("drop").ondragleave = () => at("drop").classList.remove("over");
at("drop").ondrop = (event) => {
  event.preventDefault();
  at("drop").classList.remove("over");
  const sources = [...event.dataTransfer.files];
  if (sources.length && model) lookAtFiles(sources);
};
main().catch((error) => say(error.message, true));
