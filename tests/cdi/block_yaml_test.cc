#include "cdi/block_yaml.h"

#include <gtest/gtest.h>

#include "base/yaml.h"
#include "cdi/spec.h"

namespace gpuop::cdi {
namespace {

TEST(cdi, the_quick_reader_agrees_with_the_general_one) {
  for (std::string_view text : {
           "a: b\n",
           "---\ncdiVersion: 0.5.0\nkind: v/c\ndevices:\n    - name: \"0\"\n      containerEdits:\n        "
           "deviceNodes:\n            - path: /dev/x\n"
           "              major: 195\n              fileMode: 432\n    - name: all\n      containerEdits: "
           "{}\ncontainerEdits:\n    env:\n"
           "        - A=b\n    hooks:\n        - args:\n            - --folder\n            - a::b\n",
           "# c\na:\n- 1\n- two\nb: 'x y'\n",
           "a:\nb: ~\n",
           "a: true\nb: false\nc: null\n",
           "list:\n  - a: 1\n    b: 2\n  - c:\n      - d\n",
       }) {
    auto quick = parse_block_yaml(text);
    ASSERT_TRUE(quick) << text;
    EXPECT_EQ(to_text(*quick), to_text(parse_yaml_one(text, "t").value().value)) << text;
  }
}

TEST(cdi, the_quick_reader_leaves_the_rest_alone) {
  for (std::string_view text : {"",
                                "a",
                                "a: [1]\n",
                                "a: &x 1\n",
                                "a: |\n  b\n",
                                "a: b\n  c\n",
                                "a: 1.5\n",
                                "a: 0x10\n",
                                "a: 010\n",
                                "a: 1:30\n",
                                "a: 1\na: 2\n",
                                "a:\tb\n",
                                "a: True\n",
                                "a: b # c\n",
                                "a: \"\\n\"\n",
                                "a: 1\n---\nb: 2\n",
                                "- - 1\n",
                                "a: 1\n b: 2\n",
                                "a:\n  b: 1\n c: 2\n",
                                "a: -5\n",
                                "a: b: c\n",
                                "? a\n: b\n",
                                "a: \xc3\xa9\n",
                                "a: .inf\n"}) {
    EXPECT_FALSE(parse_block_yaml(text)) << text;
  }
}

}  // namespace
}  // namespace gpuop::cdi
