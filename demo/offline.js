// Keeps what the page has loaded, and answers with it where the server does not.
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => event.respondWith(answer(event.request)));

async function answer(request) {
  const kept = await caches.open("vit-keras-demo");
  try {
    const response = await fetch(request);
    if (response.ok) await kept.put(request, response.clone());
    return response;
  } catch (error) {
    const found = await kept.match(request);
    if (found) return found;
    throw error;
  }
}
