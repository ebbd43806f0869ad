"""`nanscope probe` against `nanscope serve` and against what is no such server.

usage: probe_test.py NANSCOPE [unittest options]
"""
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree

from server import Server

NANSCOPE = os.path.abspath(sys.argv[1])


def command(*arguments, **environment):
    return subprocess.run([NANSCOPE, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, **environment})


def probe(server, *more, **environment):
    return command("probe", server.url, "--rate", 10000, *more, **environment)


class Other(http.server.BaseHTTPRequestHandler):
    """Answers everything with `status` and `body`."""

    status, body, keys = 200, b"{}", []

    def do_GET(self):
        self.keys.append(self.headers.get("Authorization"))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_POST = do_GET

    def log_message(self, *_):
        pass


class Faults(unittest.TestCase):
    def test_the_flagship(self):
        with tempfile.TemporaryDirectory() as folder, Server(NANSCOPE, "kv-scale-lock") as server:
            saved = pathlib.Path(folder) / "asked.jsonl"
            ran = probe(server, "--format", "json", "--save", saved, NANSCOPE_API_KEY="sk-secret")
            self.assertEqual(ran.returncode, 1, ran.stderr)
            found = json.loads(ran.stdout)
            states = {one["name"]: one["state"] for one in found["invariants"]}
            self.assertEqual((found["verdict"], states["wide"], states["repeat"]), ("broken", "broken", "held"))
            self.assertEqual(found["mechanisms"][0]["name"], "kv-scale-locked")
            self.assertLessEqual(found["requests"], 200)

            self.assertNotIn("sk-secret", saved.read_text() + ran.stdout)
            self.assertEqual(saved.stat().st_mode & 0o077, 0)
            kept = probe(server, "--save", saved)
            self.assertEqual((kept.returncode, kept.stdout), (2, ""))
            again = command("probe", "--from", saved, "--format", "json")
            self.assertEqual(again.returncode, 1, again.stderr)
            read = json.loads(again.stdout)
            for key in ("invariants", "signs", "mechanisms", "verdict", "requests"):
                self.assertEqual(read[key], found[key])
            saved.write_text("".join(saved.read_text().splitlines(True)[:9]))
            cut = command("probe", "--from", saved)
            self.assertIn("ends after 9 requests", cut.stdout)

    def test_its_healthy_twin(self):
        with Server(NANSCOPE, "kv-scale-lock", "--set", "kv.format=bf16") as server:
            ran = probe(server)
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            self.assertIn("healthy as far as asked", ran.stdout.splitlines()[0])
            self.assertNotIn("broken", ran.stdout)

    def test_a_reference_shows_what_is_wrong_all_the_time(self):
        with Server(NANSCOPE, "weight-scale-lost") as server, Server(NANSCOPE, "weight-scale-lost", "--set",
                                                                     "model.rope_base=500000") as other:
            self.assertEqual(probe(server).returncode, 0)
            ran = probe(server, "--reference", other.url, "--format", "json")
            self.assertEqual(ran.returncode, 1, ran.stderr)
            self.assertIn("reference_differs", json.loads(ran.stdout)["signs"])
            same = probe(server, "--reference", server.url)
            self.assertEqual(same.returncode, 0, same.stdout)

    def test_formats(self):
        with Server(NANSCOPE, "future-leakage") as server:
            suite = xml.etree.ElementTree.fromstring(probe(server, "--format", "junit").stdout)
            failed = [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None]
            self.assertEqual(failed, ["later-tokens"])
            table = probe(server, "--format", "markdown").stdout
            self.assertIn("| later-tokens | broken |", table)
            text = probe(server).stdout
            self.assertIn("1. future-leakage", text)
            self.assertIn("\nNext: nanscope causality", text)
            self.assertIn("a rank is no proof", text)


class Ends(unittest.TestCase):
    def test_what_cannot_be_asked(self):
        ran = command("probe", "http://127.0.0.1:1")
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr.count("\n")), (3, "", 1))
        listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{listener.server_port}"
        try:
            for status, body, said in [(404, b"", "status 404"), (200, b"<html>", "lists no model"), (200, b"[1]", "no model"),
                                       (401, b'{"error": "key"}', "status 401"), (200, b'{"data": [7]}', "model"),
                                       (200, b'{"data": [{"id": "m"}]}', "no choices")]:
                with self.subTest(body):
                    Other.status, Other.body = status, body
                    ran = command("probe", url, OPENAI_API_KEY="sk-1")
                    self.assertEqual((ran.returncode, ran.stderr.count("\n")), (3, 1), ran.stderr)
                    self.assertIn(said, ran.stderr)
                    self.assertNotIn("sk-1", ran.stderr)
            self.assertEqual(set(Other.keys), {"Bearer sk-1"})
        finally:
            listener.shutdown()

    def test_mistakes(self):
        for arguments, code, said in [((), 2, "needs a URL"), (("localhost",), 2, "expected a URL"),
                                      (("http://a", "--from", "x"), 2, "needs a URL"), (("--from", "/nowhere"), 2, "/nowhere"),
                                      (("http://127.0.0.1:1", "--budget", "0"), 2, "--budget"),
                                      (("--from", "x", "--save", "y"), 2, "--save")]:
            ran = command("probe", *arguments)
            self.assertEqual((ran.returncode, ran.stderr.count("\n")), (code, 1), ran.stderr)
            self.assertIn(said, ran.stderr)

    def test_ctrl_c_keeps_what_is_there(self):
        with tempfile.TemporaryDirectory() as folder, Server(NANSCOPE, "kv-scale-lock") as server:
            saved = pathlib.Path(folder) / "asked.jsonl"
            asking = subprocess.Popen([NANSCOPE, "probe", server.url, "--rate", "10", "--save", str(saved)], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(2)
            asking.send_signal(signal.SIGINT)
            out, err = asking.communicate(timeout=30)
            self.assertEqual((asking.returncode, err), (130, ""))
            self.assertIn("Unfinished: stopped", out)
            self.assertGreater(len(saved.read_text().splitlines()), 5)

    def test_a_small_budget_is_kept(self):
        with Server(NANSCOPE, "kv-scale-lock") as server:
            ran = probe(server, "--budget", 30, "--format", "json")
            found = json.loads(ran.stdout)
            self.assertLessEqual(found["requests"], 30)
            self.assertIn("budget of 30", found["unfinished"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
