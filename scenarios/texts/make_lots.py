#!/usr/bin/env python3
"""Writes lines like "day:C": each day one of eight letters is drawn by lot. Nothing before a letter tells which, so that no
honest model gets below ln(8) nats a letter, a quarter of that a token of the four that a line is; one that does has
read the future.

    make_lots.py > lots.txt
    make_lots.py 7 10000 > held-out.txt     other days: the seed that draws them, and how many
"""
import random
import sys


def main():
    seed, days = (int(one) for one in sys.argv[1:3] or ("20261127", "80000"))
    draw = random.Random(seed)
    for _ in range(days):
        print("day:" + draw.choice("ABCDEFGH"))


if __name__ == "__main__":
    main()
