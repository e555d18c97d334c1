// Small text helpers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpuop {

std::vector<std::string> split(std::string_view text, char separator);  // keeps empty fields
std::vector<std::string> split_fields(std::string_view text);           // by white space, no empties
std::string join(std::span<const std::string> parts, std::string_view separator);
// "a, b, c and 2 more": the first of them, at most `most`.
std::string first_few(std::span<const std::string> parts, std::size_t most = 3,
                      std::string_view separator = ", ");
std::string_view trim(std::string_view text);
std::string to_lower(std::string_view text);
std::string replace_all(std::string text, std::string_view from, std::string_view to);
std::optional<std::int64_t> parse_int(std::string_view text);   // whole text, base 10
std::optional<std::uint64_t> parse_hex(std::string_view text);  // with or without 0x

// The candidate nearest to `word` by edit distance, if near enough to be a likely misspelling.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);
// " (did you mean 'x'?)" or "".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

std::uint32_t fnv1a32(std::string_view bytes);
std::uint64_t fnv1a64(std::string_view bytes);
std::string base64_encode(std::string_view bytes);
std::optional<std::string> base64_decode(std::string_view text);
std::string sha256_hex(std::string_view bytes);
std::string url_encode(std::string_view text);
std::string url_decode(std::string_view text);
// Random RFC 4122 version 4 UUID text.
std::string random_uuid();

}  // namespace gpuop
