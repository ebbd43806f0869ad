"""What the package is as a whole: its names, its types, its one file for servers, what it imports."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

import nanscope


def test_all_that_is_promised_is_there():
    lazy = {"capture"}  # needs torch
    assert all(hasattr(nanscope, name) for name in set(nanscope.__all__) - lazy)


def test_everything_public_says_what_it_is():
    silent = [name for name in nanscope.__all__ if name != "capture" and not getattr(nanscope, name).__doc__]
    assert silent == []


def test_the_version_is_the_projects(source):
    text = (source / "CMakeLists.txt").read_text()
    assert nanscope.__version__ == re.search(r"project\(nanscope VERSION ([0-9.]+)", text).group(1)


def test_importing_it_imports_neither_torch_nor_ml_dtypes():
    code = "import sys, nanscope; print(sorted({'torch', 'ml_dtypes'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_capture_is_one_file_under_two_names(source):
    alone = source / "instrument" / "python" / "nanscope_capture.py"
    spec = importlib.util.find_spec("nanscope")
    packed = pathlib.Path(spec.submodule_search_locations[0]) / "capture.py"
    assert packed.read_bytes() == alone.read_bytes()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        nanscope.nothing


def test_types_are_right(source):
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir=/dev/null"], capture_output=True, text=True,
                          check=False, cwd=source / "instrument" / "python")
    assert done.returncode == 0, done.stdout


def test_the_stub_has_what_the_extension_has():
    from nanscope import _nanscope

    stub = (pathlib.Path(nanscope.__file__).parent / "_nanscope.pyi").read_text()
    stated = set(re.findall(r"^(?:class|def) (\w+)", stub, re.MULTILINE)) | {"__version__"}
    there = {name for name in vars(_nanscope) if not name.startswith("__")} | {"__version__"}
    assert stated == there
    for name in stated - {"__version__", "Error"}:
        if not isinstance(getattr(_nanscope, name), type):
            continue
        body = re.search(rf"^class {name}.*?(?=^\S|\Z)", stub, re.MULTILINE | re.DOTALL).group(0)
        members = set(re.findall(r"^    (?:def )?(\w+)", body, re.MULTILINE)) - {"__len__", "__buffer__"}
        made = {one for one in vars(getattr(_nanscope, name)) if not one.startswith("_")}
        assert members == made, name
