#!/usr/bin/env python3
"""Draws a command's text output as an SVG picture: terminal_picture.py TITLE < output > picture.svg"""
import html
import sys

CELL_WIDTH, LINE_HEIGHT, MARGIN = 8.4, 18, 18


def main() -> None:
    title = sys.argv[1] if len(sys.argv) > 1 else ""
    lines = sys.stdin.read().rstrip("\n").split("\n")
    columns = max(len(line) for line in lines + [title])
    width = int(columns * CELL_WIDTH + 2 * MARGIN)
    height = int((len(lines) + 1) * LINE_HEIGHT + 2 * MARGIN + 12)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">')
    print(f'<rect width="{width}" height="{height}" rx="8" fill="#14181f"/>')
    print('<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" xml:space="preserve">')
    print(f'<text x="{MARGIN}" y="{MARGIN + 12}" fill="#8b98a9">$ {html.escape(title)}</text>')
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        y = MARGIN + 12 + number * LINE_HEIGHT + 6
        length = len(line) * CELL_WIDTH
        print(f'<text x="{MARGIN}" y="{y}" fill="{colour(line)}" textLength="{length:.1f}" '
              f'lengthAdjust="spacingAndGlyphs">{html.escape(line)}</text>')
    print("</g></svg>")


def colour(line: str) -> str:
    """Lines that speak of NaN are red, headings bright, the rest grey."""
    if ("\u2588" in line or " NaN " in line) and "healthy" not in line:
        return "#ff7b72"
    if line[:1] not in (" ", ""):
        return "#e6edf3"
    return "#b6c2cf"


if __name__ == "__main__":
    main()
