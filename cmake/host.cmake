# gpuop_host_program(NAME): bin/NAME from every *.cc of the calling folder: one static file that runs on any Linux of
# its architecture, and loads nothing.
function(gpuop_host_program name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE host_static)
  if(NOT GPUOP_SANITIZE)  # the sanitizers' runtimes are not static
    target_link_options(${name} PRIVATE -static)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()
