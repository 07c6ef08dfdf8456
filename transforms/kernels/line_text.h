// Lines of plain text. A line ends with `\n` and nothing else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace rareword {

// A line in three parts: `\r`, `\n` and spaces at its ends, and the words between.
struct Line {
  std::string_view before, words, after;
};

// Calls use(line) for each line of the text.
template <class Use>
void for_each_line(std::string_view text, Use use) {
  const auto outside = [](char c) { return c == ' ' || c == '\n' || c == '\r'; };
  for (size_t begin = 0; begin < text.size();) {
    const void* const found = memchr(text.data() + begin, '\n', text.size() - begin);
    const size_t end = found ? static_cast<const char*>(found) - text.data() + 1 : text.size();
    size_t first = begin, last = end;
    while (first < end && outside(text[first])) ++first;
    while (last > first && outside(text[last - 1])) --last;
    use(Line{text.substr(begin, first - begin), text.substr(first, last - first),
             text.substr(last, end - last)});
    begin = end;
  }
}

// Text cut at line ends into about equal shares, one a thread.
class LineShares {
 public:
  LineShares(std::string_view text, int64_t first_line, int shares) : text_(text) {
    cuts_.push_back(0);
    first_lines_.push_back(first_line);
    for (int t = 1; t <= shares && cuts_.back() < text.size(); ++t) {
      size_t end = std::max(cuts_.back(), text.size() / shares * t);
      end = t == shares ? text.size() : std::min(text.find('\n', end), text.size() - 1) + 1;
      const auto lines =
          std::count(text.begin() + cuts_.back(), text.begin() + static_cast<int64_t>(end), '\n');
      first_lines_.push_back(first_lines_.back() + lines);
      cuts_.push_back(end);
    }
  }

  int size() const { return static_cast<int>(cuts_.size()) - 1; }
  std::string_view text(int64_t share) const {
    return text_.substr(cuts_[share], cuts_[share + 1] - cuts_[share]);
  }
  int64_t first_line(int64_t share) const { return first_lines_[share]; }

 private:
  std::string_view text_;
  std::vector<size_t> cuts_;
  std::vector<int64_t> first_lines_;
};

}  // namespace rareword
