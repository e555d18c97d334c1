// What a hollow node's kubelet says of its machine.
#pragma once

#include "cluster/hollow/machine.h"
#include "cluster/kubelet/kubelet.h"

namespace gpuop::cluster {

// No files, no servers; the address follows from `index`.
KubeletOptions hollow_kubelet_options(const HollowMachine& machine, int index);

}  // namespace gpuop::cluster
