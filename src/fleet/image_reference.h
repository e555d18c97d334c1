// References to container images, as policies and values files name them. Pure.
#pragma once

#include <string_view>

namespace gpuop::fleet {

// registry/path:tag or @sha256:digest, loosely: what no registry takes is none (operator.md §1.6).
bool is_image_reference(std::string_view text);

}  // namespace gpuop::fleet
