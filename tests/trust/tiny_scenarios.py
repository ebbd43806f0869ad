"""Scenarios that run in milliseconds, for the tests of this folder."""

_MODEL = """[model]
weights = "random"
layers = {layers}
width = 32
heads = 2
kv_heads = 1
head_dim = 16
mlp_width = 32
"""
STATIC_SCALES = '[scores]\nformat = "e4m3"\npolicy = "static"\nper = "head"\nscales_of = "any"\nscales = "scales.safetensors"\n'
TEXT = "Moons pull tides, and tides slow the moons down. " * 20


def run(name, more=""):
    """A healthy run of four tokens; `more`: further tables."""
    return (f'name = "{name}"\n' + _MODEL.format(layers=2) + more
            + f'[[request]]\ntext = "{TEXT[:48]}"\nmax_tokens = 4\n[expect]\nverdict = "clean"\n')


def training(steps):
    """On text.txt, which holds TEXT, next to the scenario."""
    return _MODEL.format(layers=1) + f'[train]\ntext = "text.txt"\nsteps = {steps}\nbatch = 1\nlength = 16\n'
