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

# What the static host binaries link: src/shim and what it stands on, without what only exists as a shared library or would load one
# (formatting, TLS, the event loop). Built for every architecture (preset arm64).
set(host_base result text quote files root_walk json boost_json time yaml)
list(TRANSFORM host_base REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/src/base/\\1.cc")
file(GLOB host_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/shim/*.cc ${CMAKE_SOURCE_DIR}/src/shim/host/*.cc
     ${CMAKE_SOURCE_DIR}/src/cdi/*.cc ${CMAKE_SOURCE_DIR}/src/elf/*.cc)
add_library(host_static STATIC ${host_base} ${host_sources})
gpuop_host_library(YAML_CPP_STATIC libyaml-cpp.a libyaml-cpp-dev)
target_link_libraries(host_static PUBLIC ${YAML_CPP_STATIC})

# Their tests in one program, which runs under qemu-user for another architecture.
if(EXISTS /usr/src/googletest/googletest/src/gtest-all.cc)
  file(GLOB host_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/shim/*_test.cc ${CMAKE_SOURCE_DIR}/tests/cdi/*_test.cc
       ${CMAKE_SOURCE_DIR}/tests/elf/*_test.cc)
  list(FILTER host_tests EXCLUDE REGEX "/ldconfig_test.cc$")  # runs a program of the build machine
  add_executable(host_test EXCLUDE_FROM_ALL ${host_tests} /usr/src/googletest/googletest/src/gtest-all.cc
                 /usr/src/googletest/googletest/src/gtest_main.cc)
  target_include_directories(host_test PRIVATE /usr/src/googletest/googletest)
  target_link_libraries(host_test PRIVATE host_static)
  if(NOT GPUOP_SANITIZE)
    target_link_options(host_test PRIVATE -static)
  endif()
  set_target_properties(host_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()
