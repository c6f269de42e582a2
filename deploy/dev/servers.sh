# shellcheck shell=bash disable=SC2154  # the script that sources this sets dir, here and option
# Sourced by deploy/dev/fleet: the fleet's own Postgres, Redis, Kafka and stand-in provider. Each has
# NAME_launch, which starts the process, and NAME_answers, which tells whether it can be used.

# ---------------------------------------------------------------- postgres

postgres_bin() {
  local all=(/usr/lib/postgresql/*/bin)
  if [[ -x ${all[-1]}/postgres ]]; then
    echo "${all[-1]}"
  else
    dirname "$(command -v postgres || echo /nowhere/postgres)"
  fi
}

# Postgres refuses to run as root; there it runs as the user that Debian's package made.
as_postgres=()
if ((EUID == 0)); then as_postgres=(setpriv --reuid postgres --regid postgres --init-groups --); fi

# Makes DIR/postgres. Where the user postgres may not enter DIR (below /root, say) it is a link.
postgres_dir_make() {
  local data=$dir/postgres
  if ((EUID == 0)); then
    id -u postgres >/dev/null 2>&1 || die "Postgres does not run as root, and there is no user postgres"
    if ! "${as_postgres[@]}" test -x "$dir"; then
      data=/var/lib/postgresql/holdfast-$(sha256sum <<<"$dir" | cut -c1-12)
      ln -sfn "$data" "$dir/postgres"
    fi
  fi
  mkdir -p "$data"
  chmod 700 "$data"
  if ((EUID == 0)); then chown postgres: "$data"; fi
}

postgres_data() { # the real path: Postgres itself may not be able to enter DIR
  realpath "$dir/postgres"
}

postgres_init() {
  local password_file
  if [[ -e $dir/postgres/PG_VERSION ]]; then return; fi
  postgres_dir_make
  secret_make "$dir/postgres.password"
  rm -f "$dir"/keys/* # of another database
  password_file=$(mktemp) # a copy that the user postgres can read
  cat "$dir/postgres.password" >"$password_file"
  if ((EUID == 0)); then chown postgres: "$password_file"; fi
  (cd / && "${as_postgres[@]}" "$(postgres_bin)/initdb" -D "$(postgres_data)" -U postgres -E UTF8 \
    --locale=C --auth=scram-sha-256 --pwfile="$password_file") >"$dir/log/initdb.log" 2>&1 ||
    { rm -f "$password_file" && die "initdb failed; see $dir/log/initdb.log"; }
  rm -f "$password_file"
}

# Durability is as it comes: Holdfast refuses a server with fsync, full_page_writes or
# synchronous_commit off. A socket's path has to fit in 107 bytes; TCP is always there.
postgres_launch() {
  local data socket_dir
  postgres_init
  postgres_recover
  data=$(postgres_data)
  socket_dir=$data
  if ((${#data} > 85)); then socket_dir=''; fi
  process_start postgres "${as_postgres[@]}" "$(postgres_bin)/postgres" -D "$data" \
    -p "$(port_of postgres)" -c listen_addresses=127.0.0.1 -c unix_socket_directories="$socket_dir" \
    -c shared_buffers=64MB -c max_connections=300 -c timezone=UTC -c log_timezone=UTC -c jit=off
}

postgres_answers() {
  "$(postgres_bin)/pg_isready" -q -h 127.0.0.1 -p "$(port_of postgres)" -d postgres -t 2
}

postgres_has_orphans() {
  local data cwd
  data=$(postgres_data)
  for cwd in /proc/[0-9]*/cwd; do
    if [[ $(readlink "$cwd") == "$data" ]]; then return 0; fi
  done
  return 1
}

# After a kill -9 backends live on for a moment, and the lock files name a pid that may remain as a
# zombie, which Postgres takes for a living server. With the last backend gone the locks mean nothing.
postgres_recover() {
  local deadline=$((SECONDS + 30))
  while postgres_has_orphans; do
    if ((SECONDS >= deadline)); then die "processes of an earlier postgres still use $dir/postgres"; fi
    sleep 0.1
  done
  (cd "$dir/postgres" && rm -f postmaster.pid .s.PGSQL.*.lock)
}

postgres_sql() { # database; SQL on standard input
  PGPASSWORD=$(<"$dir/postgres.password") "$(postgres_bin)/psql" -X -q -At -v ON_ERROR_STOP=1 \
    -h 127.0.0.1 -p "$(port_of postgres)" -U postgres -d "$1"
}

# The login of the services: owner of the database, no superuser, and a member of the role whose rights
# the services take (the migrations leave that role as it is when it is there).
postgres_prepare() {
  local there
  there=$(postgres_sql postgres <<<"select 1 from pg_database where datname = 'holdfast'")
  if [[ $there == 1 ]]; then return; fi
  postgres_sql postgres <<END
create role holdfast_service nologin;
create role holdfast login createrole password '$(<"$dir/postgres.password")' in role holdfast_service;
create database holdfast owner holdfast;
END
}

# ---------------------------------------------------------------- redis

redis_launch() { # loses everything at its end, which Holdfast must bear
  process_start redis redis-server --port "$(port_of redis)" --bind 127.0.0.1 --dir "$dir/redis" \
    --save '' --appendonly no --daemonize no
}

redis_answers() {
  [[ $(redis-cli -h 127.0.0.1 -p "$(port_of redis)" ping 2>/dev/null) == PONG ]]
}

# ---------------------------------------------------------------- kafka

kafka_launch() {
  if [[ ${option[broker]} == kafka ]]; then
    "$here/kafka" fetch >/dev/null
    process_start kafka "$here/kafka" run --dir "$dir/kafka" --port "$(port_of kafka)"
  else
    process_start kafka "${option[bin]}/dev-broker" --port "$(port_of kafka)" \
      "holdfast.effects:$(setting_get HOLDFAST_PARTITIONS 8)" \
      "holdfast.reconcile:$(setting_get HOLDFAST_PARTITIONS 8)" \
      "holdfast.outcomes:$(setting_get HOLDFAST_OUTCOME_PARTITIONS 16)" \
      holdfast.ledger:1 holdfast.dlq:1
  fi
}

# The port first: kcat takes its whole time-out to report a refused connection.
kafka_answers() {
  port_open "$(port_of kafka)" || return 1
  if ! command -v kcat >/dev/null; then return 0; fi
  kcat -b "127.0.0.1:$(port_of kafka)" -L -m 5 2>/dev/null | grep -q 'broker 1 at'
}

# ---------------------------------------------------------------- sandbox

sandbox_launch() {
  process_start sandbox "${option[bin]}/dev-sandbox" --listen "127.0.0.1:$(port_of sandbox)"
}

sandbox_answers() {
  port_open "$(port_of sandbox)"
}
