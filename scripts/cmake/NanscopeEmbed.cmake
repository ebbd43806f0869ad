# nanscope_embed(<target> <symbol> <file>): puts a data file's bytes into <target> as
# `extern "C" const unsigned char <symbol>_begin[], <symbol>_end[]`, so that a binary needs no
# data folder beside it. The file is a dependency: changing it rebuilds the object.
function(nanscope_embed target symbol file)
  get_filename_component(path ${file} ABSOLUTE)
  set(assembly ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.S)
  file(WRITE ${assembly}.in
"    .section .rodata
    .global ${symbol}_begin
    .global ${symbol}_end
    .balign 64
${symbol}_begin:
    .incbin \"${path}\"
${symbol}_end:
    .byte 0
    .section .note.GNU-stack,\"\",@progbits
")
  configure_file(${assembly}.in ${assembly} COPYONLY)
  set_source_files_properties(${assembly} PROPERTIES OBJECT_DEPENDS ${path})
  target_sources(${target} PRIVATE ${assembly})
endfunction()
