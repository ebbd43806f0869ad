# NANSCOPE_INTERPRETER: the Python that tests run with, and that the Python package is built for unless Python_EXECUTABLE names
# another. Several may be in PATH; the first that has what the tests import is taken, and where there is none the first.
# NANSCOPE_PYTHON: whether the extension of the Python package is built. On by default where Python's headers and pybind11
# are found; everything that it links is compiled position independent then.

# nanscope_has_packages(result interpreter): whether it has what the tests of the Python package need.
function(nanscope_has_packages result interpreter)
  execute_process(COMMAND ${interpreter} -c
    "import numpy, os, pytest, sysconfig; open(os.path.join(sysconfig.get_path('include'), 'Python.h')).close()"
    RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
  if(missing)
    set(${result} FALSE PARENT_SCOPE)
  else()
    set(${result} TRUE PARENT_SCOPE)
  endif()
endfunction()

if(Python_EXECUTABLE)
  set(NANSCOPE_INTERPRETER ${Python_EXECUTABLE} CACHE FILEPATH "The Python that tests run with" FORCE)
endif()
find_program(NANSCOPE_INTERPRETER python3 VALIDATOR nanscope_has_packages DOC "The Python that tests run with")
if(NANSCOPE_INTERPRETER AND NOT Python_EXECUTABLE)
  set(Python_EXECUTABLE ${NANSCOPE_INTERPRETER})
elseif(NOT NANSCOPE_INTERPRETER)  # not remembered: there may be a better one the next time
  find_program(first_python python3 NO_CACHE)
  set(NANSCOPE_INTERPRETER ${first_python})
endif()

# A sanitized extension cannot be loaded by an interpreter that is not.
if(NANSCOPE_SANITIZE)
  set(NANSCOPE_PYTHON OFF)
else()
  # pybind11 asks FindPython only when it is told to.
  set(PYBIND11_FINDPYTHON ON)
  # FindPython keeps the headers that it found for another interpreter, by names of its own.
  if(NOT "${_Python_EXECUTABLE}" STREQUAL "${Python_EXECUTABLE}")
    unset(_Python_INCLUDE_DIR CACHE)
  endif()
  find_package(Python 3.9 COMPONENTS Interpreter Development.Module QUIET)
  if(Python_Development.Module_FOUND)
    find_package(pybind11 2.10 CONFIG QUIET)
  endif()
  # Not remembered where they are missing: they may be there the next time.
  if(pybind11_FOUND)
    option(NANSCOPE_PYTHON "Build the extension of the Python package (needs Python's headers and pybind11)" ON)
  elseif(NANSCOPE_PYTHON)
    message(FATAL_ERROR "NANSCOPE_PYTHON is on, but Python's headers or pybind11 were not found: install python3-dev and pybind11-dev")
  endif()
endif()
