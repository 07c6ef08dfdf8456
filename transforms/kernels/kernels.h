// One registration function a kernel file.
#pragma once

#include <pybind11/pybind11.h>

namespace rareword {

void bind_count_words(pybind11::module_& module);
void bind_sequences(pybind11::module_& module);
void bind_pairs(pybind11::module_& module);
void bind_chunks(pybind11::module_& module);
void bind_learn(pybind11::module_& module);
void bind_segment(pybind11::module_& module);
void bind_render(pybind11::module_& module);
void bind_count_text(pybind11::module_& module);
void bind_sort(pybind11::module_& module);
void bind_conservation(pybind11::module_& module);

}  // namespace rareword
