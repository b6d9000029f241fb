# The extension modules: _core (no torch at run time) and _runtime (libtorch and c10d). Both use the pybind11
# that PyTorch bundles: with any other, process groups and tensors cannot cross between modules.
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import torch; print(torch.utils.cmake_prefix_path, torch.__version__, sep=';')"
  OUTPUT_VARIABLE torch_found OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE torch_result ERROR_QUIET)
if(NOT torch_result EQUAL 0)
  message(FATAL_ERROR "PyTorch not found by ${Python_EXECUTABLE}: install torch first (`pip install torch==2.13.0`) "
                      "and build with `pip install --no-build-isolation`")
endif()
list(GET torch_found 0 torch_prefix)
list(GET torch_found 1 torch_version)
if(torch_version VERSION_LESS 2.13)
  message(FATAL_ERROR "PyTorch ${torch_version} is too old: expected 2.13. Install it with `pip install torch==2.13.0`")
elseif(torch_version VERSION_GREATER_EQUAL 2.14)
  message(WARNING "PyTorch ${torch_version} is not tested: expected 2.13")
endif()
list(APPEND CMAKE_PREFIX_PATH ${torch_prefix})
find_package(Torch REQUIRED)
find_library(torch_python_library torch_python PATHS ${TORCH_INSTALL_PREFIX}/lib REQUIRED NO_DEFAULT_PATH)

file(GLOB core_bindings CONFIGURE_DEPENDS src/bindings/core_*.cc)
Python_add_library(_core MODULE WITH_SOABI ${core_bindings})
target_include_directories(_core SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
target_link_libraries(_core PRIVATE dreamddp_core)
# Become _core.built_for_torch (extension modules load only with the minor version that they were built for)
# and dreamddp.__version__.
target_compile_definitions(_core PRIVATE DREAMDDP_BUILT_FOR_TORCH="${torch_version}" DREAMDDP_VERSION="${PROJECT_VERSION}")

file(GLOB runtime_sources CONFIGURE_DEPENDS src/runtime/*.cc src/bindings/runtime_*.cc)
list(REMOVE_ITEM runtime_sources ${lane_sources})
Python_add_library(_runtime MODULE WITH_SOABI ${runtime_sources})
target_include_directories(_runtime PRIVATE src)
target_link_libraries(_runtime PRIVATE dreamddp_lane dreamddp_core ${TORCH_LIBRARIES} ${torch_python_library})

foreach(module _core _runtime)
  # Reading pybind11's and torch's headers takes most of the time of a build: several sources share it.
  set_target_properties(${module} PROPERTIES CXX_VISIBILITY_PRESET hidden UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  install(TARGETS ${module} LIBRARY DESTINATION dreamddp)
endforeach()
