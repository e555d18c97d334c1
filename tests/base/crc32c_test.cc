#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuop {
namespace {

// RFC 3720, B.4.
TEST(base, crc32c_of_known_texts) {
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending.push_back(c);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(ascending), 0x46dd794eu);
  for (std::size_t cut = 0; cut <= ascending.size(); ++cut)
    EXPECT_EQ(crc32c(ascending.substr(cut), crc32c(ascending.substr(0, cut))), 0x46dd794eu) << cut;
}

}  // namespace
}  // namespace gpuop
