// JSON values in memory of their own: what a text becomes lies in a few blocks, not in hundreds of pieces all
// over the heap, and goes with the last value that came from it. For what is looked at and dropped, as an
// event of a watch, or kept as it is, as a stored object.
#pragma once

#include <boost/json/storage_ptr.hpp>
#include <cstddef>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace gpuop {

// The blocks. Copies of a value keep its memory (Boost.JSON's rule), and a part that is kept keeps all of it;
// so once it is sealed, whatever values from it ask for anew comes from the heap, and a value that changes
// for years does not grow.
class JsonArena {
 public:
  // `text`: how long the text is that will be read into it, in bytes.
  explicit JsonArena(std::size_t text);
  const boost::json::storage_ptr& storage() const { return storage_; }
  void seal();
  class Blocks;

 private:
  Blocks* blocks_ = nullptr;
  boost::json::storage_ptr storage_;
};

// As parse_json(), into `where`.
Result<Json> parse_json_into(const boost::json::storage_ptr& where, std::string_view text,
                             std::size_t max_depth = 64);
// As parse_json(), into a sealed arena of the value's own.
Result<Json> parse_json_packed(std::string_view text, std::size_t max_depth = 64);

}  // namespace gpuop
