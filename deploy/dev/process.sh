# shellcheck shell=bash disable=SC2154  # the script that sources this sets dir
# Sourced by deploy/dev/fleet: starts, finds and ends processes that outlive the script. Expects $dir.
#
# A process is known by DIR/run/NAME.pid and, because pids are used again, by the moment at which the
# kernel says that it started (DIR/run/NAME.born): a pid that was born at another moment is not ours.

# Prints the fields of /proc/PID/stat after the command name: the state, then field 4 and on.
process_stat() { # pid
  local stat
  read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
  echo "${stat##*) }"
}

process_born() { # pid
  local fields
  read -ra fields < <(process_stat "$1") || return 1
  echo "${fields[19]}"
}

# True once nothing of the process is left. A dying JVM loses its main thread first, but its ports and
# files only with its last thread; where pid 1 does not reap, a zombie without threads remains for ever.
process_gone() { # pid
  local state tasks
  state=$(process_stat "$1") || return 0
  tasks=("/proc/$1/task"/*)
  [[ $state == [ZX]* && ${#tasks[@]} -le 1 ]]
}

# Prints the pid of a process that this fleet started and that lives.
process_pid() { # name
  local pid born
  read -r pid 2>/dev/null <"$dir/run/$1.pid" || return 1
  read -r born 2>/dev/null <"$dir/run/$1.born" || return 1
  [[ -n $pid && $(process_born "$pid") == "$born" ]] || return 1
  if process_gone "$pid"; then return 1; fi
  echo "$pid"
}

process_runs() { # name
  process_pid "$1" >/dev/null
}

# Starts a command in a session of its own, with none of the caller's descriptors: a pipe that it kept
# would make `$(fleet up)` wait for as long as the fleet runs.
process_start() { # name command...
  local name=$1 pid fd
  shift
  (
    for fd in /proc/self/fd/*; do
      fd=${fd##*/}
      if ((fd > 2 && fd != 255)); then exec {fd}>&-; fi
    done
    cd /
    exec setsid "$@"
  ) </dev/null >>"$dir/log/$name.log" 2>&1 &
  pid=$!
  process_born "$pid" >"$dir/run/$name.born" || true # it may have ended already
  echo "$pid" >"$dir/run/$name.pid"
}

# Waits until the check succeeds. Returns 1 when the process ends first, 2 when time is up.
process_await() { # name seconds check...
  local name=$1 deadline=$((SECONDS + $2))
  shift 2
  until "$@"; do
    if ! process_runs "$name"; then return 1; fi
    if ((SECONDS >= deadline)); then return 2; fi
    sleep 0.1
  done
}

process_signal() { # name signal
  local pid
  if pid=$(process_pid "$1"); then kill -s "$2" "$pid" 2>/dev/null || true; fi
}

# Waits for the end of a process that was told to end; when the seconds are over it is killed.
process_await_end() { # name seconds
  local pid deadline=$((SECONDS + $2))
  if pid=$(process_pid "$1"); then
    until process_gone "$pid"; do
      if ((SECONDS >= deadline)); then
        echo "fleet: $1 (pid $pid) did not end within $2 s and is killed" >&2
        kill -s KILL "$pid" 2>/dev/null || true
        deadline=$((SECONDS + 10))
      fi
      sleep 0.05
    done
  fi
  rm -f "$dir/run/$1.pid" "$dir/run/$1.born"
}

port_open() { # port
  (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}
