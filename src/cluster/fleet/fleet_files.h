// The files by which the supervisor and those who started it speak. Private to this room.
#pragma once

#include "base/json.h"
#include "cluster/fleet/supervisor.h"

namespace gpuop::cluster {

Json to_json(const FleetOptions& options);
Result<FleetOptions> fleet_options_from_json(const Json& json);
Json to_json(const FleetStatus& status);
FleetStatus fleet_status_from_json(const Json& json);

// Replaced as a whole, not flushed: none of it outlives the fleet.
Result<> put_file(const fs::path& path, std::string_view text, mode_t mode = 0644);

}  // namespace gpuop::cluster
