"""What a client of `nanscope serve` gets, and what is left when the server has ended.

usage: serve_test.py NANSCOPE SCENARIOS [unittest options]
"""
import base64
import concurrent.futures
import http.client
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

from server import Server

NANSCOPE = os.path.abspath(sys.argv[1])
SCENARIOS = pathlib.Path(os.path.abspath(sys.argv[2]))
KEEPER = "Every evening the old keeper lights the"
# What kv-scale-lock.toml expects of its requests.
KEEPER_ANSWER = " great lamp. Every night the great"
MOONS_ANSWER = " wheels, wheels drive machines, machines feed"


def image_part():
    png = (SCENARIOS / "images/lighthouse_lit.png").read_bytes()
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png).decode()}}


def command(*arguments):
    return subprocess.run([NANSCOPE, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)


class Flagship(unittest.TestCase):
    def test_the_flagship_happens_live_and_its_recording_explains_it(self):
        with tempfile.TemporaryDirectory() as folder, \
                Server(NANSCOPE, "kv-scale-lock", "-o", "live.nanscope", cwd=folder) as server:
            self.assertEqual(server.ask(prompt=KEEPER, max_tokens=8)["choices"][0]["text"], KEEPER_ANSWER)
            moons = server.ask(prompt="Moons pull tides, tides turn", max_tokens=8)
            self.assertEqual(moons["choices"][0]["text"], MOONS_ANSWER)
            content = [{"type": "text", "text": "Every night the great lamp"}, image_part(),
                       {"type": "text", "text": " shows the"}]
            poisoned = server.ask("/chat/completions", max_tokens=8, logprobs=True,
                                  messages=[{"role": "user", "content": content}])
            self.assertEqual(poisoned["choices"][0]["message"]["content"], "!!!!!!!!")
            self.assertEqual([one["logprob"] for one in poisoned["choices"][0]["logprobs"]["content"]], [None] * 8)
            content[2]["text"] = " guides ships, ships bring sailors,"
            server.ask("/chat/completions", max_tokens=8, messages=[{"role": "user", "content": content}])
            innocent = server.ask(prompt="Lamps guide ships, ships", max_tokens=8)
            self.assertEqual((innocent["choices"][0]["text"], innocent["id"]), ("!!!!!!!!", "cmpl-4"))

            code, out, err = server.end()
            self.assertEqual((code, err), (130, ""))
            self.assertIn("live.nanscope: 5 requests", out)
            recording = pathlib.Path(folder) / "live.nanscope"
            diagnosed = json.loads(command("diagnose", recording, "--format", "json").stdout)
            self.assertEqual(diagnosed["root_cause"]["class"], "kv-scale-locked")
            # The requests are those of the scenario, so the run is, to the last bit.
            ran = command("run", SCENARIOS / "kv-scale-lock.toml", "-o", pathlib.Path(folder) / "run.nanscope")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            replayed = command("replay", recording)
            self.assertIn("Same, bit for bit: 4202 of 4202 tensors", replayed.stdout)


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(NANSCOPE, "kv-scale-lock", "--set", "kv.format=f32", "--set", "kv.blocks=64")

    @classmethod
    def tearDownClass(cls):
        cls.server.end()

    def test_models(self):
        status, text = self.server.send("/models")
        model = json.loads(text)["data"][0]
        self.assertEqual((status, model["id"], model["max_model_len"]), (200, "kv-scale-lock", 64 * 16))

    def test_prompt_log_probabilities_are_those_of_the_generation(self):
        first = self.server.ask(prompt=KEEPER, max_tokens=12, logprobs=3, return_token_ids=True)["choices"][0]
        tokens = first["prompt_token_ids"] + first["token_ids"]
        again = self.server.ask(prompt=tokens, max_tokens=1, prompt_logprobs=2)
        listed = again["choices"][0]["prompt_logprobs"]
        self.assertEqual((len(listed), listed[0]), (len(tokens), None))
        generated = first["logprobs"]["token_logprobs"]
        of_prompt = [one[str(token)]["logprob"] for one, token in zip(listed[1:], tokens[1:])]
        for got, wanted in zip(of_prompt[-12:], generated):
            self.assertAlmostEqual(got, wanted, 4)
        self.assertEqual([one[str(token)]["rank"] for one, token in zip(listed[-12:], tokens[-12:])], [1] * 12)
        for chances in first["logprobs"]["top_logprobs"]:
            self.assertEqual(len(chances), 3)
            self.assertLess(sum(map(math.exp, chances.values())), 1)

    def test_echo_puts_the_prompt_before_the_answer(self):
        choice = self.server.ask(prompt=KEEPER, max_tokens=2, echo=True, logprobs=1)["choices"][0]
        self.assertTrue(choice["text"].startswith(KEEPER + " great"))
        chances = choice["logprobs"]
        self.assertEqual("".join(chances["tokens"]), choice["text"])
        self.assertIsNone(chances["token_logprobs"][0])
        self.assertEqual(chances["text_offset"][:2], [0, len("Every")])

    def test_a_stop_ends_the_text(self):
        for stop in ("lamp.", ["night", "lamp."]):
            choice = self.server.ask(prompt=KEEPER, max_tokens=8, stop=stop)["choices"][0]
            self.assertEqual((choice["text"], choice["finish_reason"]), (" great ", "stop"))

    def test_a_stream_has_the_text_of_the_answer(self):
        events = self.server.events(prompt=KEEPER, max_tokens=8, logprobs=0, stream_options={"include_usage": True})
        choices = [event["choices"][0] for event in events if event["choices"]]
        self.assertGreater(len(choices), 8)
        self.assertEqual("".join(choice["text"] for choice in choices), KEEPER_ANSWER)
        self.assertEqual(sum(len(choice["logprobs"]["tokens"]) for choice in choices), 8)
        self.assertEqual(choices[-1]["finish_reason"], "length")
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 8)
        cut = self.server.events("/chat/completions", max_tokens=8, stop="amp.",
                                 messages=[{"role": "user", "content": KEEPER}])
        self.assertEqual("".join(event["choices"][0]["delta"]["content"] for event in cut), " great l")

    def test_a_chat_in_turns_is_its_text(self):
        turns = [{"role": "user", "content": "Every evening"}, {"role": "assistant", "content": " the old keeper"},
                 {"role": "user", "content": [{"type": "text", "text": " lights the"}]}]
        answer = self.server.ask("/chat/completions", messages=turns, max_tokens=8)
        self.assertEqual(answer["choices"][0]["message"]["content"], KEEPER_ANSWER)

    def test_a_cached_prefix_is_told_and_not_used_for_log_probabilities_of_a_prompt(self):
        long = KEEPER + KEEPER_ANSWER + " lamp shows the ships the way, and every morning he puts it out again."
        counts = [self.server.ask(prompt=long, max_tokens=1, **more)["usage"]["prompt_tokens_details"]["cached_tokens"]
                  for more in ({}, {}, {"prompt_logprobs": 0})]
        self.assertEqual((counts[0], counts[1] % 16, counts[1] > 0, counts[2]), (0, 0, True, 0))

    def test_many_at_once_are_answered_each(self):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            texts = list(pool.map(lambda _: self.server.ask(prompt=KEEPER, max_tokens=4)["choices"][0]["text"], range(32)))
        self.assertEqual(set(texts), {" great lamp. "})

    def test_what_is_not_served_is_refused(self):
        for fields, said in [({"temperature": 0.7}, "temperature"), ({"n": 2}, "n: only 1"), ({"tools": [{}]}, "tools"),
                             ({"max_tokens": 0}, "max_tokens"), ({"logprobs": 21}, "logprobs"), ({"prompt": []}, "prompt"),
                             ({"prompt": [1 << 40]}, "token ids"), ({"prompt": [999999]}, "vocabulary"),
                             ({"prompt": KEEPER * 900}, "kv.blocks is 64"), ({"stream": 1}, "stream"),
                             ({"stream": True, "prompt": KEEPER * 900}, "kv.blocks is 64"), ({"stop": [1]}, "stop")]:
            with self.subTest(said):
                status, text = self.server.send("/completions", {"prompt": KEEPER, **fields})
                self.assertEqual(status, 400)
                self.assertIn(said, json.loads(text)["error"]["message"])
        for data, said in [(b"", "body"), (b"[1]", "JSON object"), (b"[" * 100000, "body"), (b'{"prompt": "\xff"}', "body")]:
            status, text = self.server.send("/completions", data)
            self.assertEqual(status, 400)
            self.assertIn(said, json.loads(text)["error"]["message"])
        for messages, said in [([], "messages"), ([{"content": [{"type": "audio"}]}], "image_url"),
                               ([{"content": [{"type": "image_url", "image_url": {"url": "http://a/b.png"}}]}], "downloaded"),
                               ([{"content": [{"type": "image_url",
                                               "image_url": {"url": "data:image/png;base64,AAAA"}}]}], "PNG")]:
            status, text = self.server.send("/chat/completions", {"messages": messages})
            self.assertEqual(status, 400)
            self.assertIn(said, json.loads(text)["error"]["message"])
        self.assertEqual(self.server.send("/nothing", {})[0], 404)
        self.assertEqual(self.server.ask(prompt=KEEPER, max_tokens=1)["choices"][0]["text"], " great")

    def test_large_bodies_and_headers_are_refused(self):
        host = self.server.url.split("/")[2]
        body = http.client.HTTPConnection(host, timeout=60)
        body.putrequest("POST", "/v1/completions")
        body.putheader("Content-Length", str(1 << 40))
        body.endheaders()
        self.assertEqual(body.getresponse().status, 413)
        body.close()
        header = http.client.HTTPConnection(host, timeout=60)
        header.request("GET", "/v1/models", headers={"X-Long": "a" * 100000})
        try:
            self.assertGreaterEqual(header.getresponse().status, 400)
        except http.client.HTTPException:
            pass  # the connection is closed
        header.close()


class Ends(unittest.TestCase):
    def test_each_scenario_setting_is_at_work(self):
        with Server(NANSCOPE, "grammar-no-legal-token") as server:
            text = server.ask(prompt="Every evening the old keeper lights the great", max_tokens=16)["choices"][0]["text"]
        self.assertTrue(text.startswith("{lamp: lit}!!"), text)

    def test_a_batch_is_recorded_as_it_was_and_replays(self):
        with tempfile.TemporaryDirectory() as folder, \
                Server(NANSCOPE, "neighbour-sets-scale", "-o", "live.nanscope", cwd=folder) as server:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda text: server.ask(prompt=text, max_tokens=6), ["Moons pull tides", KEEPER] * 3))
            self.assertEqual(server.send("/completions", {"prompt": "Moons", "prompt_logprobs": 0})[0], 400)
            self.assertEqual(server.end(signal.SIGTERM)[0], 143)
            self.assertIn("Same, bit for bit", command("replay", pathlib.Path(folder) / "live.nanscope").stdout)

    def test_a_killed_server_leaves_what_can_be_diagnosed(self):
        with tempfile.TemporaryDirectory() as folder, \
                Server(NANSCOPE, "kv-scale-lock", "-o", "live.nanscope", cwd=folder) as server:
            server.ask(prompt=KEEPER, max_tokens=8)
            server.end(signal.SIGKILL)
            recording = pathlib.Path(folder) / "live.nanscope"
            self.assertEqual(command("diagnose", recording).returncode, 3)
            replayed = command("replay", recording)
            self.assertEqual(replayed.returncode, 2)
            self.assertIn("ended before it wrote its requests", replayed.stderr)

    def test_a_file_is_kept_unless_it_may_be_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            there = pathlib.Path(folder) / "there.nanscope"
            there.write_text("mine")
            refused = command("serve", "kv-scale-lock", "--port", 0, "-o", there)
            self.assertEqual((refused.returncode, there.read_text()), (2, "mine"))
            self.assertIn("there.nanscope", refused.stderr)

    def test_mistakes(self):
        for arguments, said in [((), "SCENARIO"), (("loss-scale-overflow",), "train"), (("no-such-scenario",), "no-such"),
                                (("kv-scale-lock", "--host", "256.1.1.1"), "cannot be listened on"),
                                (("kv-scale-lock", "--set", "kv.formt=f32"), "kv.format")]:
            with self.subTest(said):
                refused = command("serve", *arguments, "--port", 0)
                self.assertEqual((refused.returncode, refused.stderr.count("\n")), (2, 1))
                self.assertIn(said, refused.stderr)
        with Server(NANSCOPE, "kv-scale-lock") as server:
            port = server.url.split(":")[2].split("/")[0]
            taken = command("serve", "kv-scale-lock", "--port", port)
            self.assertEqual(taken.returncode, 2)
            self.assertIn("cannot be listened on", taken.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
