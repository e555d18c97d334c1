# gpuop_host_program(NAME): bin/NAME from every *.cc of the calling folder: one static file that runs on any Linux of
# its architecture, and loads nothing.
function(gpuop_host_program name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE host_static)
  if(NOT GPUOP_SANITIZE)  # the sanitizers' runtimes are not static
    target_link_options(${name} PRIVATE -static)
    if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
      target_link_options(${name} PRIVATE -s)  # they are copied to every node
    endif()
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

# gpuop_host_library(VARIABLE FILE PACKAGE): a static library of Debian's PACKAGE. Its development packages of two
# architectures exclude each other, so that of another one is unpacked beneath the build folder.
function(gpuop_host_library variable file package)
  if(NOT CMAKE_CROSSCOMPILING)
    find_library(${variable} NAMES ${file} REQUIRED)
    return()
  endif()
  set(folder ${CMAKE_BINARY_DIR}/foreign)
  file(GLOB found ${folder}/usr/lib/*/${file})
  if(NOT found)
    file(MAKE_DIRECTORY ${folder})
    execute_process(COMMAND apt-get download ${package}:arm64 WORKING_DIRECTORY ${folder} COMMAND_ERROR_IS_FATAL ANY)
    file(GLOB archive ${folder}/${package}_*_arm64.deb)
    execute_process(COMMAND dpkg -x ${archive} ${folder} COMMAND_ERROR_IS_FATAL ANY)
    file(GLOB found ${folder}/usr/lib/*/${file})
  endif()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()
