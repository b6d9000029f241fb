# nlohmann-json, header only: from an installed CMake package, else from the Python package nlohmann-json.
add_library(dreamddp_json INTERFACE)
find_package(nlohmann_json 3.10 QUIET)
if(nlohmann_json_FOUND)
  target_link_libraries(dreamddp_json INTERFACE nlohmann_json::nlohmann_json)
else()
  find_package(Python COMPONENTS Interpreter REQUIRED)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import nlohmann_json, pathlib; print(pathlib.Path(nlohmann_json.__file__).parent / 'include')"
    OUTPUT_VARIABLE json_include OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE json_result ERROR_QUIET)
  if(NOT json_result EQUAL 0)
    message(FATAL_ERROR "nlohmann-json not found: install it with `pip install nlohmann-json` (interpreter "
                        "${Python_EXECUTABLE}) or as a system package (nlohmann-json3-dev)")
  endif()
  target_include_directories(dreamddp_json SYSTEM INTERFACE ${json_include})
endif()
