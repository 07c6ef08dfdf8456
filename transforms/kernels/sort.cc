// Sorts strings by their bytes, which for UTF-8 is the order of the code points.

#include <algorithm>

#include "arrays.h"
#include "arrow.h"
#include "kernels.h"
#include "text.h"

namespace rareword {
namespace {

Array<int64_t> sorted_rows(const py::object& strings) {
  struct Row {
    uint64_t head;
    int64_t number;
  };
  const StringColumn column(strings);
  Buffer<int64_t> numbers(column.rows());
  {
    const py::gil_scoped_release release;
    Buffer<Row> rows(column.rows());
    for (int64_t r = 0; r < column.rows(); ++r) rows[r] = {sort_head(column[r]), r};
    std::sort(&rows[0], &rows[0] + rows.size, [&](const Row& a, const Row& b) {
      if (a.head != b.head) return a.head < b.head;
      const int order = column[a.number].compare(column[b.number]);
      return order != 0 ? order < 0 : a.number < b.number;
    });
    for (int64_t r = 0; r < column.rows(); ++r) numbers[r] = rows[r].number;
  }
  return to_numpy(std::move(numbers));
}

}  // namespace

void bind_sort(py::module_& module) {
  module.def("sorted_rows", &sorted_rows, py::arg("strings"),
             "The row numbers (int64) of an Arrow string array in the order of the strings' bytes;\n"
             "equal strings stay in their order.");
}

}  // namespace rareword
