#!/usr/bin/env python3
"""Writes village.txt, the text that small models are trained on: days of a village by the sea, made of sentences that
were written for it. Who does what is drawn, so that every sentence has words that nothing before it tells.

    make_village.py > village.txt
    make_village.py 7 1500 > held-out.txt     other days: the seed that draws them, and how many
"""
import random
import sys

PEOPLE = ["Anna", "Ben", "Clara", "David", "Emil", "Frida", "Gustav", "Hanna"]
TRADES = ["baker", "miller", "sailor", "teacher", "doctor", "smith", "fisher", "keeper"]
PLACES = ["harbour", "mill", "market", "church", "school", "bridge", "beach", "lighthouse"]
THINGS = ["a loaf of bread", "a letter", "two fish", "a lamp", "a rope", "an old clock", "some apples", "a red coat"]
SKIES = ["The sky was grey.", "It rained a little.", "The sun was warm.", "A cold wind blew.", "Snow lay on the roofs.",
         "Fog came in from the sea."]
MOODS = ["glad", "tired", "hungry", "afraid", "proud", "quiet"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def sentence(draw, cast):
    who, other = draw.sample(cast, 2)
    place, thing = draw.choice(PLACES), draw.choice(THINGS)
    return draw.choice([
        f"{who} walked to the {place}.",
        f"{who} carried {thing} to the {place}.",
        f"{who} met {other} at the {place}.",
        f"{who} gave {other} {thing}.",
        f"{who} asked {other} for {thing}.",
        f"{other} was {draw.choice(MOODS)}, and {who} was {draw.choice(MOODS)}.",
        f"At the {place} {who} found {thing}.",
        f"The {draw.choice(TRADES)} told {who} about the {place}.",
        f"{who} sold {thing} to the {draw.choice(TRADES)}.",
        f'"Have you seen {thing}?" asked {who}. "It is at the {place}," said {other}.',
    ])


def day(draw, number):
    cast = draw.sample(PEOPLE, 3)
    lines = [f"It was {DAYS[number % 7]}. {draw.choice(SKIES)}"]
    lines += [sentence(draw, cast) for _ in range(draw.randint(4, 7))]
    lines.append(f"In the evening {draw.choice(cast)} went home.")
    return " ".join(lines)


def main():
    seed, days = (int(one) for one in sys.argv[1:3] or ("20261126", "500"))
    draw = random.Random(seed)
    for number in range(days):
        print(day(draw, number))


if __name__ == "__main__":
    main()
