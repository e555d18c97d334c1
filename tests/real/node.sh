# Sourced by cluster: nodes with a real kubelet.
#
# A node is a process tree of its own in its own PID, mount, network, UTS and IPC namespaces, on the root that
# simulated nodes have: the machine's /dev, /etc, /run, modules and /var/lib/kubelet never show, and its end leaves
# nothing but empty cgroups, which `end_node` removes.

cgroup_of() { echo "gpuop-real-$(printf %s "$1" | sha256sum | cut -c1-10)"; } # cgroup_of NODE-FOLDER

# The machine's hierarchies: one of version 2, or one a controller (and one of version 2 without any).
hierarchies() {
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    echo /sys/fs/cgroup
  else
    awk '$3 ~ /^cgroup2?$/ { print $2 }' /proc/mounts
  fi
}

# A kubelet needs these; a group of its own shows whether they are to be had.
try_cgroups() {
  local base group name missing=
  group=gpuop-real-try-$$
  for base in $(hierarchies); do
    mkdir "$base/$group" 2>/dev/null || die "a kubelet needs cgroups, and '$base' cannot be written"
    rmdir "$base/$group"
  done
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    for name in cpu cpuset memory pids; do
      grep -qw $name /sys/fs/cgroup/cgroup.subtree_control || echo "+$name" >/sys/fs/cgroup/cgroup.subtree_control || missing+=" $name"
    done 2>/dev/null
  else
    for name in cpu cpuacct cpuset memory; do
      awk -v name=$name '$3 == "cgroup" && ("," $4 ",") ~ "," name "," {found = 1} END {exit !found}' /proc/mounts || missing+=" $name"
    done
  fi
  [ -z "$missing" ] || die "a kubelet needs cgroup controllers that are not to be had here:$missing"
}

# Where a cluster with nodes can keep its data: the first that is no overlay, beneath which another cannot lie.
work_folder() { # work_folder NAME
  local base
  for base in /var/tmp /run; do
    [ "$(stat -f -c %T $base)" = overlayfs ] || { echo "$base/$1"; return; }
  done
}

remove_cgroups() { # whatever still runs there is ended with it
  local name=$1 base group i
  for base in $(hierarchies); do
    [ -d "$base/$name" ] || continue
    for i in $(seq 100); do
      find "$base/$name" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | while read -r group; do
        kill -KILL "$group" 2>/dev/null || true
      done
      find "$base/$name" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [ -d "$base/$name" ] || break
      sleep 0.05
    done
  done
}

end_node() { # end_node DIR FOLDER
  end "$1" "$2/pid"
  remove_cgroups "$(cgroup_of "$2")"
  rm -rf "$2"
}

built_programs() { # where the repository's programs are
  local repository=$here/../.. build
  for build in "${GPUOP_REAL_BUILD:-}" "$repository/build/release" "$repository/build/debug"; do
    [ -n "$build" ] && [ -x "$build/tests/real_node" ] && (cd "$build" && pwd -P) && return
  done
  die "real_node is not built: ./run build"
}

# The layer of a node's root with what a machine's packages would bring.
stage_tools() { # stage_tools BUILD
  local programs=$cache/tools/programs name path lock
  mkdir -p "$programs"
  exec {lock}>"$cache/.lock"
  flock "$lock"
  for name in kubelet containerd containerd-shim-runc-v2 ctr; do ln -sf "$cache/$name" "$programs/$name"; done
  for name in runc mount umount; do
    path=$(command -v $name) || die "$name is missing (Debian package $([ $name = runc ] && echo runc || echo mount))"
    ln -sf "$(readlink -f "$path")" "$programs/$name"
  done
  "$1/bin/gpuop-image" --programs "$programs" --stage "$cache/tools"
  if [ ! -e "$cache/tools/pause.tar" ]; then
    mkdir -p "$cache/tools/pause/bin"
    cp /bin/busybox "$cache/tools/pause/bin/"
    "$1/bin/gpuop-image" --layer "$cache/tools/pause" --entrypoint /bin/busybox --entrypoint sleep --entrypoint infinity \
      --reference localhost/gpuop/pause:1 "$cache/tools/pause.tar" >/dev/null
  fi
  exec {lock}>&-
}

kubelet_configuration() { # kubelet_configuration CGROUP
  cat <<TEXT
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: 10250
healthzBindAddress: 127.0.0.1
readOnlyPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /etc/kubernetes/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: /etc/kubernetes/kubelet.crt
tlsPrivateKeyFile: /etc/kubernetes/kubelet.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$1
enforceNodeAllocatable: []
failSwapOn: false
failCgroupV1: false
localStorageCapacityIsolation: false
evictionHard: {nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
clusterDomain: cluster.local
clusterDNS: [127.96.0.10]
resolvConf: ""
TEXT
}

# The part of a cloud provider: it gives a node its address, on which the API server finds the kubelet. A kubelet takes
# a loopback address from nobody else.
give_address() { # give_address DIR NODE ADDRESS
  local request=(-fsS --max-time 10 -o /dev/null --cacert "$1/pki/ca.crt" --cert "$1/pki/admin.crt" --key "$1/pki/admin.key"
    -X PATCH -H 'Content-Type: application/merge-patch+json') url
  url=https://127.0.0.1:$(cat "$1/port")/api/v1/nodes/$2
  curl "${request[@]}" "$url/status" -d '{"status":{"addresses":[{"type":"InternalIP","address":"'"$3"'"},{"type":"Hostname","address":"'"$2"'"}]}}'
  curl "${request[@]}" "$url" -d '{"spec":{"taints":null}}'
}

put_policy() { # put_policy DIR: by server-side apply
  local policy kind
  while IFS= read -r -d '' policy; do
    kind=mutatingadmissionpolicies
    ! grep -q '^kind: .*Binding$' <<<"$policy" || kind=mutatingadmissionpolicybindings
    curl -fsS --max-time 10 -o /dev/null --cacert "$1/pki/ca.crt" --cert "$1/pki/admin.crt" --key "$1/pki/admin.key" -X PATCH \
      -H 'Content-Type: application/apply-patch+yaml' --data-binary @- <<<"$policy" \
      "https://127.0.0.1:$(cat "$1/port")/apis/admissionregistration.k8s.io/v1beta1/$kind/host-network?fieldManager=tests&force=true"
  done < <(awk -v RS='---\n' -v ORS='\0' 1 "$here/host-network.yaml")
}

give_up() { # give_up DIR FOLDER MESSAGE
  tail -n 5 "$1/log/$(basename "$2").log" >&2
  end_node "$1" "$2"
  die "$3; its logs are in $1/log"
}

is_ready() { api "$1" "/api/v1/nodes/$2" | tr -d ' \n' | grep -q '"type":"Ready","status":"True"\|"status":"True"[^}]*"type":"Ready"'; }

node() {
  local dir name=$2 folder build address group base port
  dir=$(cd "$1" 2>/dev/null && pwd -P) || die "no cluster in $1"
  alive "$dir" "$dir/control-plane.pid" || die "no control plane runs for $dir: tests/real/cluster up $1"
  folder=$dir/nodes/$name
  ! alive "$dir" "$folder/pid" || die "node $name runs already"
  build=$(built_programs)
  stage_tools "$build"
  "$here/../../deploy/image" --preset "$(basename "$build")" >"$dir/log/image.log"
  end_node "$dir" "$folder"
  mkdir -p "$folder/etc" "$folder/images"
  port=$(cat "$dir/port")
  address=127.97.0.$(find "$dir/nodes" -mindepth 1 -maxdepth 1 | wc -l)
  group=$(cgroup_of "$folder")
  key_pair "$dir" "$name" "/O=system:nodes/CN=system:node:$name" "IP:$address,IP:127.0.0.1,DNS:$name"
  kubeconfig "$dir" "$name" 6443 >"$folder/etc/kubelet.conf"
  cp "$dir/pki/ca.crt" "$folder/etc/ca.crt"
  mv "$dir/pki/$name.crt" "$folder/etc/kubelet.crt"
  mv "$dir/pki/$name.key" "$folder/etc/kubelet.key"
  kubelet_configuration "$group" >"$folder/etc/kubelet.yaml"
  ln -f "$cache/tools/pause.tar" "$folder/images/0-pause.tar" 2>/dev/null || cp "$cache/tools/pause.tar" "$folder/images/0-pause.tar"
  cp "$build/image/gpu-operator.tar" "$folder/images/gpu-operator.tar"
  for base in $(hierarchies); do
    mkdir -p "$base/$group"
    # On the machine of its own that it stands for nothing else would run.
    [ ! -e "$base/$group/cpu.shares" ] || echo 10240 >"$base/$group/cpu.shares"
    [ ! -e "$base/$group/cpu.weight" ] || echo 1000 >"$base/$group/cpu.weight"
  done
  put_policy "$dir"
  launch "$folder/pid" "$build/tests/real_node" --cluster "$dir" --name "$name" --fleet "${GPUOP_REAL_HARDWARE:-$here/node.yaml}" \
    --stage "$build/image" --tools "$cache/tools/image" --folder "$folder" --address "$address" --api-port "$port" \
    >"$dir/log/$name.log" 2>&1 </dev/null
  until_true 5 alive "$dir" "$folder/pid" || true
  node_is() { ! alive "$dir" "$folder/pid" || "$@"; }
  until_true 60 node_is api "$dir" "/api/v1/nodes/$name" || give_up "$dir" "$folder" "node $name did not register within 60 s"
  alive "$dir" "$folder/pid" || give_up "$dir" "$folder" "node $name ended"
  give_address "$dir" "$name" "$address"
  until_true 60 node_is is_ready "$dir" "$name" || give_up "$dir" "$folder" "node $name is not Ready after 60 s"
  say "node $name is Ready"
}
