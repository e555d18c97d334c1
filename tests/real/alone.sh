# Sourced by scripts that start clusters for one run: one at a time, and nothing left however the script ends. The script
# defines `remove`, which ends all that it started and can be repeated.

die() { echo "$(basename "$0"): $*" >&2; exit 1; }

program=
# step COMMAND…: beside this shell, which so hears signals at once. It ends with this shell.
step() {
  local status=0
  setpriv --pdeathsig KILL "$@" 8>&- &
  program=$!
  wait $program || status=$?
  program=
  return $status
}

clean() {
  trap '' INT TERM HUP
  [ -z "$program" ] || { kill -KILL "$program" && wait "$program"; } 2>/dev/null || true
  remove 8>&-
}

# alone NAME: takes the machine's lock, and removes what an earlier run left.
alone() {
  local lock=/run/$1.lock
  [ "$(id -u)" = 0 ] || die "real Kubernetes in namespaces of its own needs root"
  exec 8>"$lock"
  # A run that was killed is still being cleaned up for some seconds.
  flock -w "${GPUOP_REAL_PATIENCE:-15}" 8 || die "another run on this machine has its cluster in $work; it ends with that run"
  trap clean EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  remove 8>&-
  # Waits for this script's end. One that was killed could not clean up: then this does.
  export -f remove
  work=$work build=$build here=$here setsid bash -c 'exec 9>"$1"; flock 9; remove 9>&-' - "$lock" 8>&- >/dev/null 2>&1 </dev/null &
  disown
}

# free_ports FROM: the first of five ports in a row on which nobody listens. FROM is below those that the kernel gives to
# outgoing connections (32768 and more), which would come in between.
free_ports() {
  local port=$1 offset
  while [ "$port" -lt 32760 ]; do
    for offset in 0 1 2 3 4; do
      ! (exec 3<>"/dev/tcp/127.0.0.1/$((port + offset))") 2>/dev/null || break
      [ "$offset" -lt 4 ] || { echo "$port"; return; }
    done
    port=$((port + 5))
  done
  die "no five free ports in a row from $1 on"
}
