"""The build backend of pip: scikit-build-core, and two lines on the terminal.

pip shows nothing of what a backend prints, unless it is called with -v. A build of some minutes has to say what it does.
"""

import time

from scikit_build_core import build as _backend
from scikit_build_core.build import *  # noqa: F401,F403


def _say(text):
    try:
        with open("/dev/tty", "w", encoding="utf-8") as terminal:
            terminal.write(text + "\n")
    except OSError:
        pass


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _say("\nnanscope: compiling the extension from source, about 5 minutes on two cores (a wheel needs no compiler; "
         "pip install -v shows each step)")
    start = time.monotonic()
    name = _backend.build_wheel(wheel_directory, config_settings, metadata_directory)
    _say(f"nanscope: built {name} in {time.monotonic() - start:.0f} s")
    return name
