"""A `nanscope serve` that a test asks."""
import json
import re
import signal
import subprocess
import urllib.error
import urllib.request


class Server:
    """The server runs inside the `with` block; `url` ends in /v1."""

    def __init__(self, nanscope, *arguments, cwd=None):
        self.process = subprocess.Popen([nanscope, "serve", *map(str, arguments), "--port", "0"], cwd=cwd, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+?/v1", line)
        if not found:
            raise RuntimeError(line + self.process.stderr.read())
        self.url = found[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()

    def end(self, sent=signal.SIGINT):
        """(exit code, standard output, standard error) after a signal."""
        self.process.send_signal(sent)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err

    def send(self, path, data=None):
        """(status, body) of a request: a GET without data."""
        if isinstance(data, dict):
            data = json.dumps(data).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ask(self, path="/completions", **body):
        status, text = self.send(path, body)
        if status != 200:
            raise RuntimeError(f"{status}: {text}")
        return json.loads(text)

    def events(self, path="/completions", **body):
        """The events of a stream, as JSON, without the last one, which is [DONE]."""
        status, text = self.send(path, {**body, "stream": True})
        lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        if status != 200 or lines[-1] != "[DONE]":
            raise RuntimeError(f"{status}: {text}")
        return [json.loads(line) for line in lines[:-1]]
