#include "sim/node_tree.h"
