# They are copied into every driver root, so they carry no symbols (-s).
#
# gpuop_fake_library(TARGET SONAME): a driver library of the simulated node. It loads in any container, so it needs
# nothing but libc, and it exports nothing but what it marks. Its own calls stay inside (-Bsymbolic): a driver that is
# too old for a function has that name spoiled (sim/driver_install.cc).
function(gpuop_fake_library target soname)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -fvisibility=hidden -fvisibility-inlines-hidden)
  target_link_libraries(${target} PRIVATE sim_state)
  target_link_options(${target} PRIVATE -s -static-libstdc++ -static-libgcc -Wl,-soname,${soname}
                      -Wl,--exclude-libs,ALL -Wl,-z,nodelete -Wl,-Bsymbolic)
  string(REGEX REPLACE "\\.so.*" "" stem ${soname})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${stem} NO_SONAME ON
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/sim/lib)
endfunction()

# gpuop_fake_program(NAME): a program of the simulated node, in <build>/sim/bin.
function(gpuop_fake_program name)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE sim_state)
  target_link_options(${name} PRIVATE -s -static-libstdc++ -static-libgcc)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/sim/bin)
endfunction()

# gpuop_static_tool(TARGET): a program that runs in any root: static, on sim_kernel (sim/CMakeLists.txt).
function(gpuop_static_tool target)
  target_link_libraries(${target} PRIVATE sim_kernel)
  # Sanitizers do not work in static programs.
  if(NOT GPUOP_SANITIZE)
    target_link_options(${target} PRIVATE -static -s)
  endif()
endfunction()
