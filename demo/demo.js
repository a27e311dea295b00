// The page: shows classes, latency and attention for a picture that is chosen, dropped or filmed.
import { open } from "./classifier.js";

const at = (id) => document.getElementById(id);
const view = at("view");
let classifier, shown, stream;

function say(text, error = false) {
  at("status").textContent = text;
  at("status").classList.toggle("error", error);
}

/** Draws the picture as the model sees it, dimmed where there is little attention. */
function draw() {
  const { picture, width, height, answer } = shown;
  const context = view.getContext("2d");
  context.globalCompositeOperation = "source-over";
  context.clearRect(0, 0, view.width, view.height);
  context.drawImage(picture, ...classifier.crop(width, height), 0, 0, view.width, view.height);
  if (!answer.attention || !at("attention").checked) return;
  const [rows, columns] = answer.grid;
  const most = Math.max(...answer.attention);
  const mask = new ImageData(columns, rows);
  answer.attention.forEach((weight, i) => (mask.data[4 * i + 3] = 215 * (1 - weight / most)));
  const small = new OffscreenCanvas(columns, rows);
  small.getContext("2d").putImageData(mask, 0, 0);
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, view.width, view.height);
}

function list({ classes, milliseconds }) {
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
  at("answers").replaceChildren(...rows);
  at("latency").textContent = `${milliseconds.toFixed(1)} ms`;
}

async function look(picture, width, height) {
  const answer = await classifier.classify(picture, width, height);
  shown = { picture, width, height, answer };
  at("hint").hidden = true;
  at("hint").style.display = "none";
  draw();
  list(answer);
  window.lastAnswer = answer; // for the console and the test
}

async function lookAtFile(file) {
  stopCamera();
  try {
    const picture = await createImageBitmap(file);
    await look(picture, picture.width, picture.height);
    say(`${file.name}, ${picture.width}×${picture.height} pixels`);
  } catch (error) {
    say(`${file.name} is not a picture that this browser can read (${error.message})`, true);
  }
}

async function startCamera() {
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    return say(`The camera cannot be used (${error.message})`, true);
  }
  const video = Object.assign(document.createElement("video"), { srcObject: stream, muted: true });
  await video.play();
  at("camera").textContent = "Stop the camera";
  say("Camera");
  while (stream?.active) {
    await look(video, video.videoWidth, video.videoHeight);
    await new Promise(requestAnimationFrame);
  }
}

function stopCamera() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = null;
  at("camera").textContent = "Use the camera";
}

async function main() {
  navigator.serviceWorker?.register("offline.js");
  const began = performance.now();
  classifier = await open("model");
  view.height = Math.round((view.width * classifier.height) / classifier.width);
  at("overlay").hidden = classifier.attention < 0;
  const { file, bytes } = classifier.file;
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  say(`${file}, ${(bytes / 1e6).toFixed(2)} MB, loaded in ${seconds} s`);
  at("choose").disabled = at("camera").disabled = false;
}

at("choose").onclick = () => at("file").click();
at("file").onchange = ({ target }) => target.files.length && lookAtFile(target.files[0]);
at("camera").onclick = () => (stream ? stopCamera() : startCamera());
at("attention").onchange = () => shown && draw();
at("drop").ondragover = (event) => {
  event.preventDefault();
  at("drop").classList.add("over");
};
at("drop").ondragleave = () => at("drop").classList.remove("over");
at("drop").ondrop = (event) => {
  event.preventDefault();
  at("drop").classList.remove("over");
  const [file] = event.dataTransfer.files;
  if (file && classifier) lookAtFile(file);
};
main().catch((error) => say(error.message, true));
