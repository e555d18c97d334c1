// Boost.JSON, compiled once from its headers: no shared library to ship, and any target cross-compiles.
#include <boost/json/src.hpp>
