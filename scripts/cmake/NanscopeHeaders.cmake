# Headers that most sources include, parsed once (NANSCOPE_SHARED_HEADERS). Half of the time that an unoptimised build takes
# goes into the headers of other libraries.
set(NANSCOPE_COMMON_HEADERS ${CMAKE_CURRENT_LIST_DIR}/common_headers.h)

# nanscope_header_owner(name library... HEADERS header...): a target that owns one precompiled header.
function(nanscope_header_owner name)
  cmake_parse_arguments(ARG "" "" "HEADERS" ${ARGN})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "// ${name} owns a precompiled header.\n")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE nanscope_flags ${ARG_UNPARSED_ARGUMENTS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # Checked by contents, not by time: a compiler cache returns an older file.
    target_compile_options(${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()

# nanscope_share_headers(owner folder): lets every library and program defined in and below a folder use the precompiled
# header of its NANSCOPE_HEADER_OWNER, else of `owner`, unless it has options of its own or a header already.
function(nanscope_share_headers owner folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(own ${target} NANSCOPE_OWN_OPTIONS)
    get_target_property(shared ${target} PRECOMPILE_HEADERS_REUSE_FROM)
    get_target_property(headers ${target} PRECOMPILE_HEADERS)
    if(type MATCHES "LIBRARY|EXECUTABLE" AND NOT type STREQUAL INTERFACE_LIBRARY AND NOT own AND NOT shared AND NOT headers)
      get_target_property(named ${target} NANSCOPE_HEADER_OWNER)
      if(NOT named)
        set(named ${owner})
      endif()
      target_precompile_headers(${target} REUSE_FROM ${named})
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below ${folders})
    nanscope_share_headers(${owner} ${below})
  endforeach()
endfunction()
