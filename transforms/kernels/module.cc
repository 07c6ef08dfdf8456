#include "kernels.h"

PYBIND11_MODULE(_kernels, module) {
  module.doc() =
      "Kernels on Arrow strings and flat symbol arrays. They copy no input, release the GIL, keep "
      "no global state, and raise ValueError naming row and byte for input they cannot take.";
  rareword::bind_count_words(module);
  rareword::bind_sequences(module);
  rareword::bind_pairs(module);
  rareword::bind_chunks(module);
  rareword::bind_learn(module);
  rareword::bind_segment(module);
  rareword::bind_render(module);
  rareword::bind_count_text(module);
  rareword::bind_sort(module);
  rareword::bind_conservation(module);
}
