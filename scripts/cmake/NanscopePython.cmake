# NANSCOPE_PYTHON: whether the extension of the Python package is built. On by default where Python's headers and pybind11
# are found; everything that it links is compiled position independent then.
#
# A sanitized extension cannot be loaded by an interpreter that is not.
if(NANSCOPE_SANITIZE)
  set(NANSCOPE_PYTHON OFF)
else()
  # pybind11 asks FindPython only when it is told to; whoever has several Pythons names one with Python_EXECUTABLE.
  set(PYBIND11_FINDPYTHON ON)
  find_package(Python 3.9 COMPONENTS Interpreter Development.Module QUIET)
  if(Python_Development.Module_FOUND)
    find_package(pybind11 2.10 CONFIG QUIET)
  endif()
  option(NANSCOPE_PYTHON "Build the extension of the Python package (needs Python's headers and pybind11)" ${pybind11_FOUND})
  if(NANSCOPE_PYTHON AND NOT pybind11_FOUND)
    message(FATAL_ERROR "NANSCOPE_PYTHON is on, but Python's headers or pybind11 were not found: install python3-dev and pybind11-dev")
  endif()
endif()
