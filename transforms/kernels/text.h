// UTF-8 and words: the one place that knows how text becomes code points and words.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace rareword {

// Decodes the code point at text[at] and moves `at` past it. Returns -1 and leaves `at` where the
// bytes are not well-formed UTF-8 (truncated, overlong, surrogate or above U+10FFFF).
inline int32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) {
    ++at;
    return lead;
  }
  const int length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || at + length > text.size()) return -1;
  int32_t code = lead & (0x7F >> length);
  for (int k = 1; k < length; ++k) {
    const uint8_t next = byte(at + k);
    if ((next & 0xC0) != 0x80) return -1;
    code = code << 6 | (next & 0x3F);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || (code >= 0xD800 && code <= 0xDFFF) || code > 0x10FFFF) return -1;
  at += length;
  return code;
}

inline void append_utf8(std::string& out, int32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// The first 8 bytes as a number that sorts as they do.
inline uint64_t sort_head(std::string_view text) {
  uint64_t number = 0;
  for (size_t i = 0; i < 8; ++i)
    number = number << 8 | (i < text.size() ? static_cast<uint8_t>(text[i]) : 0);
  return number;
}

[[noreturn]] inline void throw_not_utf8(int64_t row, size_t byte) {
  throw std::invalid_argument("row " + std::to_string(row) + ", byte " + std::to_string(byte) +
                              ": not UTF-8");
}

inline bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();)
    if (next_code_point(text, at) < 0) return false;
  return true;
}

// Throws, naming row and byte, if `word` (which begins at byte `begin` of the row) is not UTF-8.
inline void check_utf8(std::string_view word, int64_t row, size_t begin) {
  for (size_t at = 0; at < word.size();)
    if (next_code_point(word, at) < 0) throw_not_utf8(row, begin + at);
}

// Which of 64 bytes are spaces, byte i at bit i.
inline uint64_t spaces_of(const char* at) {
#ifdef __SSE2__
  const __m128i space = _mm_set1_epi8(' ');
  uint64_t found = 0;
  for (int k = 0; k < 4; ++k) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at) + k);
    found |= static_cast<uint64_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(block, space))) << (16 * k);
  }
  return found;
#else
  uint64_t found = 0;
  for (int i = 0; i < 64; ++i) found |= static_cast<uint64_t>(at[i] == ' ') << i;
  return found;
#endif
}

// Calls use(word, first byte) for each word of a line. Words are split at U+0020 only, as in
// subword-nmt; empty words do not exist.
template <class Use>
void for_each_word(std::string_view line, Use use) {
  const char* const data = line.data();
  const size_t size = line.size();
  size_t begin = 0;
  const auto words_until = [&](uint64_t spaces, size_t at) {
    for (; spaces != 0; spaces &= spaces - 1) {
      const size_t end = at + __builtin_ctzll(spaces);
      if (end > begin) use(std::string_view(data + begin, end - begin), begin);
      begin = end + 1;
    }
  };
  size_t at = 0;
  for (; at + 64 <= size; at += 64) words_until(spaces_of(data + at), at);
  char rest[64] = {};
  memcpy(rest, data + at, size - at);
  words_until(spaces_of(rest), at);
  if (size > begin) use(std::string_view(data + begin, size - begin), begin);
}

}  // namespace rareword
