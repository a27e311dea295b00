"""A server on loopback that speaks the routes of the Hugging Face hub, for reading and writing."""

import base64
import hashlib
import json
import urllib.parse

from tests.loopback import LoopbackServer, QuietHandler

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors", ".keras", ".bin", ".h5")  # what the hub keeps as LFS files


class HubServer(LoopbackServer):
    """One repository of models.

    Attributes:
        files: `{name: content}` of the repository at its newest commit, `commit`.
        earlier: `{commit: files}` of the commits before, see `upload`.
        lies: What to answer instead of the truth: `sha`, `names`, `commit` or `etag`.
        status: The answer to every request, if it is not 200; `{route: status}` for some.
        cut: How many bytes of each file arrive before the connection closes.
        requests: `(method, path)` of each request, without those for the files' heads.
    """

    def __init__(self, repository, files):
        super().__init__(Handler)
        self.repository, self.files = repository, dict(files)
        self.lies, self.status, self.cut, self.requests = {}, {}, None, []
        self.uploads, self.commits, self.created = {}, [], []
        self.commit, self.earlier = COMMIT, {}

    def upload(self, files, commit):
        """Makes another commit, with these files alone."""
        self.earlier[self.commit] = self.files
        self.files, self.commit = dict(files), commit
        self.earlier.pop(commit, None)

    def at(self, revision):
        """The commit that a revision names, and its files; a branch names the newest."""
        known = revision in self.earlier
        return (revision, self.earlier[revision]) if known else (self.commit, self.files)


class Handler(QuietHandler):
    def do_GET(self):
        server, path = self.server, urllib.parse.unquote(self.path.partition("?")[0])
        if self.command == "GET":
            server.requests.append(("GET", path))
        if self._refused(path):
            return
        kind, _, rest = path.partition(f"/{server.repository}")
        if kind == "/api/models" and server.files:  # without files, there is no repository
            commit, files = server.at(rest.removeprefix("/revision/"))
            siblings = [{"rfilename": name} for name in server.lies.get("names", list(files))]
            sha = server.lies.get("sha", commit)
            self._json({"id": server.repository, "sha": sha, "siblings": siblings})
        elif rest.startswith("/resolve/"):
            revision, _, name = rest.removeprefix("/resolve/").partition("/")
            commit, files = server.at(revision)
            if name in files:
                self._file(commit, name, files[name])
            else:
                self._answer(404, {"X-Error-Code": "EntryNotFound"})
        else:
            self._answer(404, {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET

    def _file(self, commit, name, content):
        lies = self.server.lies
        etag = lies.get("etag") or hub_hash(name, content)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": lies.get("commit", commit)}
        headers["Content-Length"] = str(len(content))
        self._answer(200, headers, content[: self.server.cut] if self.command == "GET" else b"")

    def do_POST(self):
        server, path = self.server, self.path.partition("?")[0]
        server.requests.append(("POST", path))
        content = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self._refused(path):
            return
        if path == "/api/repos/create":
            server.created.append(json.loads(content))
            self._json({"url": f"{server.url}/{server.repository}", "name": server.repository})
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif "/preupload/" in path:
            names = [file["path"] for file in json.loads(content)["files"]]
            mode = lambda name: "lfs" if name.endswith(LARGE) else "regular"
            row = {"shouldIgnore": False, "oid": None}
            self._json({"files": [{**row, "path": n, "uploadMode": mode(n)} for n in names]})
        elif path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(content)["objects"]
            for row in objects:
                href = f"{server.url}/lfs/{row['oid']}"
                row["actions"] = {"upload": {"href": href, "header": {}}}
            self._json({"transfer": "basic", "objects": objects})
        elif "/commit/" in path:
            server.commits.append([json.loads(line) for line in content.splitlines()])
            for row in server.commits[-1]:
                value = row["value"]
                if row["key"] == "file":
                    server.files[value["path"]] = base64.b64decode(value["content"])
                elif row["key"] == "lfsFile":
                    server.files[value["path"]] = server.uploads[value["oid"]]
            address = f"{server.url}/{server.repository}/commit/{COMMIT}"
            self._json({"success": True, "commitOid": COMMIT, "commitUrl": address})
        else:
            self._answer(404, {"X-Error-Code": "RepoNotFound"})

    def do_PUT(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        digest = hashlib.sha256(content).hexdigest()
        assert self.path == f"/lfs/{digest}"
        self.server.uploads[digest] = content
        self._answer(200)

    def _refused(self, path):
        status = next((self.server.status[r] for r in self.server.status if r in path), None)
        if status is not None:
            code = {401: "RepoNotFound", 403: "GatedRepo", 404: "RepoNotFound"}.get(status, "")
            self._answer(status, {"X-Error-Code": code})
        return status is not None

    def _json(self, content):
        self._answer(200, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def _answer(self, status, headers=None, body=b""):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def hub_hash(name, content):
    """What the hub calls a file's content: SHA-256 of large files, git's hash of others."""
    if name.endswith(LARGE):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
