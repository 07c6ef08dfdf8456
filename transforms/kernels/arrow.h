// Arrow string arrays without copying, through the Arrow C data interface.
//
// The two structs are the interface's published ABI. A StringColumn keeps the producer's buffers
// alive; offsets may be 32 or 64 bits wide, the array may be a slice, and rows may be null.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

namespace rareword {

namespace py = pybind11;

// A view of a string array: rows as byte ranges. Holds a reference to the Python capsules.
class StringColumn {
 public:
  explicit StringColumn(const py::object& array) {
    if (!py::hasattr(array, "__arrow_c_array__"))
      throw py::type_error("expected an Arrow array, found " +
                           std::string(py::str(py::type::of(array))));
    capsules_ = array.attr("__arrow_c_array__")();
    auto* schema = static_cast<ArrowSchema*>(pointer(capsules_[0], "arrow_schema"));
    auto* data = static_cast<ArrowArray*>(pointer(capsules_[1], "arrow_array"));
    const std::string_view format = schema->format;
    if (format != "u" && format != "U")
      throw py::type_error("expected an Arrow array of strings, found format '" +
                           std::string(format) + "'");
    wide_ = format == "U";
    rows_ = data->length;
    first_ = data->offset;
    validity_ = data->null_count == 0 ? nullptr : static_cast<const uint8_t*>(data->buffers[0]);
    offsets_ = data->buffers[1];
    bytes_ = static_cast<const uint8_t*>(data->buffers[2]);
    check();
  }

  int64_t rows() const { return rows_; }

  bool is_null(int64_t row) const {
    const int64_t bit = first_ + row;
    return validity_ != nullptr && !(validity_[bit >> 3] >> (bit & 7) & 1);
  }

  // The bytes of a row; a null row is empty.
  std::string_view operator[](int64_t row) const {
    if (is_null(row)) return {};
    const int64_t begin = offset(row);
    return {reinterpret_cast<const char*>(bytes_) + begin,
            static_cast<size_t>(offset(row + 1) - begin)};
  }

  // The row that holds a byte, which must be one of the column's.
  int64_t row_of(const char* byte) const {
    const auto at = byte - reinterpret_cast<const char*>(bytes_);
    int64_t first = 0, last = rows_ - 1;
    while (first < last) {
      const int64_t middle = (first + last + 1) / 2;
      if (offset(middle) <= at)
        first = middle;
      else
        last = middle - 1;
    }
    return first;
  }

  // Bytes of the rows begin .. end.
  int64_t bytes(int64_t begin, int64_t end) const {
    return begin < end ? offset(end) - offset(begin) : 0;
  }

 private:
  static void* pointer(const py::object& capsule, const char* name) {
    void* found = PyCapsule_GetPointer(capsule.ptr(), name);
    if (found == nullptr) throw py::error_already_set();
    return found;
  }

  int64_t offset(int64_t row) const {
    return wide_ ? static_cast<const int64_t*>(offsets_)[first_ + row]
                 : static_cast<const int32_t*>(offsets_)[first_ + row];
  }

  // Offsets that run backwards would make rows of negative length.
  void check() const {
    if (rows_ == 0) return;
    if (offset(0) < 0) throw std::invalid_argument("row 0: negative offset in the string array");
    for (int64_t row = 0; row < rows_; ++row)
      if (offset(row + 1) < offset(row))
        throw std::invalid_argument("row " + std::to_string(row) +
                                    ": offsets of the string array run backwards");
  }

  py::tuple capsules_;
  const void* offsets_ = nullptr;
  const uint8_t* bytes_ = nullptr;
  const uint8_t* validity_ = nullptr;
  int64_t rows_ = 0, first_ = 0;
  bool wide_ = false;
};

}  // namespace rareword
