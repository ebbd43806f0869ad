"""The recipe of docs/recipes/transformers.md and the workflow of docs/ci.md, as they stand there. usage: recipes_test.py NANSCOPE

Exit 77 (skipped) without torch or transformers.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

from small_models import PYTHON, CaptureCase, torch

try:
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError:
    if __name__ == "__main__":
        print("skipped: transformers is not installed")
        sys.exit(77)
    raise unittest.SkipTest("transformers is not installed") from None

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
NANSCOPE = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 and os.path.exists(sys.argv[1]) else "nanscope"


def small_llama(faulty=False):
    torch.manual_seed(2)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                                         num_key_value_heads=1, eos_token_id=None, bos_token_id=None)).eval()
    if faulty:
        with torch.no_grad():
            model.model.layers[1].mlp.down_proj.weight[3, 5] = float("nan")
    return model


def block_of(page, language):
    return re.search(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)[1]


class RecipesTest(CaptureCase):
    def run_command(self, command):
        words = shlex.split(command)
        words = {"nanscope": [NANSCOPE], "python": [sys.executable]}[words[0]] + words[1:]
        if words[1:3] == ["-m", "nanscope.capture"]:
            words[1:3] = [os.path.join(PYTHON, "nanscope_capture.py")]
        return subprocess.run(words, capture_output=True, text=True, check=False, cwd=self.folder, timeout=300)

    def test_transformers(self):
        recipe = block_of("recipes/transformers.md", "python")
        commands = re.findall(r"`(nanscope (?:diagnose|why|verify) [^`]*)`", (DOCS / "recipes/transformers.md").read_text(encoding="utf-8"))
        self.assertEqual([command.split()[1] for command in commands], ["diagnose", "why", "verify"])
        for faulty, codes in ((False, [0, 0, 0]), (True, [1, 0, 1])):
            here = os.getcwd()
            os.chdir(self.folder)
            try:
                exec(recipe, {"model": small_llama(faulty), "input_ids": torch.arange(1, 9)[None]})
            finally:
                os.chdir(here)
            done = [self.run_command(command) for command in commands]
            self.assertEqual([one.returncode for one in done], codes, [one.stdout + one.stderr for one in done])
            self.assertEqual("layers.1.mlp.down_proj" in done[0].stdout, faulty)
            os.rename(os.path.join(self.folder, "dump"), os.path.join(self.folder, f"dump-{faulty}"))

    def test_workflow(self):
        script = block_of("ci.md", "python")
        workflow = next(block for block in re.findall(r"```yaml\n(.*?)```", (DOCS / "ci.md").read_text(encoding="utf-8"), re.S)
                        if "numerics.yml" in block)
        commands = [command for command in re.findall(r"run: (.*)", workflow) if not command.startswith("pip ")]
        self.assertEqual(len(commands), 3)
        os.mkdir(os.path.join(self.folder, "tests"))
        with open(os.path.join(self.folder, "tests", "one_prompt.py"), "w", encoding="utf-8") as file:
            file.write(script)
        for faulty, codes in ((False, [0, 0, 0]), (True, [0, 1, 1])):
            small_llama(faulty).save_pretrained(os.path.join(self.folder, "path/of/the/checkpoint"))
            done = []
            for command in commands:
                command, _, to = command.replace("--baseline known.json ", "").partition(" > ")
                done.append(self.run_command(command))
            self.assertEqual([one.returncode for one in done], codes, [one.stderr for one in done])
            self.assertEqual("sarif" in done[1].stdout and "down_proj" in done[1].stdout, faulty)
            os.rename(os.path.join(self.folder, "dump"), os.path.join(self.folder, f"dump-{faulty}"))


if __name__ == "__main__":
    unittest.main()
