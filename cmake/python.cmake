# The extension modules: _core (no torch at run time) and _runtime (libtorch and c10d). Both use the pybind11
# that PyTorch bundles: with any other, process groups and tensors cannot cross between modules.
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -c "import torch; print(torch.utils.cmake_prefix_path)"
                OUTPUT_VARIABLE torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE torch_result ERROR_QUIET)
if(NOT torch_result EQUAL 0)
  message(FATAL_ERROR "PyTorch not found by ${Python_EXECUTABLE}: install torch first and build with "
                      "`pip install --no-build-isolation`")
endif()
list(APPEND CMAKE_PREFIX_PATH ${torch_prefix})
find_package(Torch REQUIRED)
find_library(torch_python_library torch_python PATHS ${TORCH_INSTALL_PREFIX}/lib REQUIRED NO_DEFAULT_PATH)

file(GLOB core_bindings CONFIGURE_DEPENDS src/bindings/core_*.cc)
Python_add_library(_core MODULE WITH_SOABI ${core_bindings})
target_include_directories(_core SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
target_link_libraries(_core PRIVATE dreamddp_core)

file(GLOB runtime_sources CONFIGURE_DEPENDS src/runtime/*.cc src/bindings/runtime_*.cc)
list(REMOVE_ITEM runtime_sources ${lane_sources})
Python_add_library(_runtime MODULE WITH_SOABI ${runtime_sources})
target_include_directories(_runtime PRIVATE src)
target_link_libraries(_runtime PRIVATE dreamddp_lane dreamddp_core ${TORCH_LIBRARIES} ${torch_python_library})

foreach(module _core _runtime)
  set_target_properties(${module} PROPERTIES CXX_VISIBILITY_PRESET hidden)
  install(TARGETS ${module} LIBRARY DESTINATION dreamddp)
endforeach()
