// What the driver DaemonSets of a ClusterPolicy and of an NVIDIADriver are put together from.
// `view.spec.driver` holds the driver's fields in both cases. Private to this room.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "operator/shape.h"

namespace gpuop::op {

inline constexpr std::string_view kDriver = "nvidia-driver-ctr";
inline constexpr std::string_view kManager = "k8s-driver-manager";
inline constexpr std::string_view kPeermem = "nvidia-peermem-ctr";
inline constexpr std::string_view kGds = "nvidia-fs-ctr";
inline constexpr std::string_view kGdrcopy = "nvidia-gdrcopy-ctr";
inline constexpr std::string_view kToolkit = "openshift-driver-toolkit-ctr";

void set_probe(Json& container, std::string_view kind, const std::optional<policy::Probe>& probe);
void add_licensing(const View& view, Json& pod, Json& driver);
void add_topology(const View& view, Json& pod, Json& driver);
// Entitlements of the host, which package installation needs.
void add_subscription(const View& view, Json& pod, Json& driver, const std::string& os);
// Package sources and certificates from a ConfigMap ("": none), where the operating system looks for them.
Result<> add_repo_config(const View& view, Json& pod, const std::string& name, const std::string& os,
                         std::string_view field);
Result<> add_cert_config(const View& view, Json& pod, const std::string& name, const std::string& os,
                         std::string_view field);
// The host's modules, for precompiled drivers on SUSE.
void add_suse_modules(Json& pod, Json& driver, const std::string& os);
// OpenShift's cluster-wide proxy and certificates; upstream's two ways have the variables in different order.
void add_proxy(const View& view, Json& pod, bool http_first);
// The ConfigMap that OpenShift fills with the cluster's own certificates; none where there are none.
std::optional<Json> trusted_ca(const ClusterFacts& facts);
// RHCOS version and, where its image is missing, that it is.
void label_driver_toolkit(const View& view, Json& daemonset, const std::string& rhcos);
Result<> shape_sidecar(const View& view, Json& pod, std::string_view name, const policy::Sidecar& spec,
                       std::string_view what, std::string_view variable, const DriverLayout& layout);
void add_secret_env(const View& view, Json& pod);
void shape_peermem(const View& view, Json& pod, const std::string& image);

}  // namespace gpuop::op
