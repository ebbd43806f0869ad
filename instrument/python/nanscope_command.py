"""The `nanscope` command of a wheel: runs the program that the wheel holds.

A wheel holds two: one with the window, which needs the graphics libraries of the machine, and one without. This module is
no part of the package `nanscope`, so that the command does not wait for NumPy.
"""

import ctypes
import os
import sys

# Libraries of the machine that the window needs, and the packages of Debian and Ubuntu that hold them.
_WINDOW = {"libX11.so.6": "libx11-6", "libEGL.so.1": "libegl1", "libOpenGL.so.0": "libopengl0"}


def _missing():
    missing = []
    for library, package in _WINDOW.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            missing.append((library, package))
    return missing


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nanscope", "bin")
    program = os.path.join(folder, "nanscope")
    if not os.path.exists(program):
        sys.exit("nanscope: this installation was built from source and holds the Python package alone; a wheel or "
                 "scripts/demo has the command")
    missing = _missing()
    if missing:
        if sys.argv[1:2] == ["gui"]:
            names = ", ".join(library for library, _ in missing)
            packages = " ".join(package for _, package in missing)
            print(f"nanscope: the window needs {names} (Debian, Ubuntu: apt-get install {packages})", file=sys.stderr)
            return 2
        program = os.path.join(folder, "nanscope-headless")
    os.execv(program, ["nanscope", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
