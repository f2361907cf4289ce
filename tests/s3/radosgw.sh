#!/usr/bin/env bash
# A real S3 service for tests: Ceph's radosgw on the loopback, over one monitor and one object store in memory.
#
#   radosgw.sh start FOLDER   starts one in FOLDER, which is made anew, and prints the environment with which clients
#                             reach it; the same lines are in FOLDER/environment. 77: what it needs is not installed
#   radosgw.sh stop FOLDER    ends it, and removes FOLDER
#
# It has one user, and the bucket $VARVE_S3_TEST_BUCKET. Nothing in it survives. It ends by itself after an hour.
set -euo pipefail

readonly seconds_max=3600 wait_seconds=90
readonly access_key=VARVETESTACCESSKEY00 secret_key=varve/test+secret/key/of/no/value0000000 bucket=varve-test

fail() { printf 'radosgw.sh: %s\n' "$*" >&2; exit 1; }

# Ends what runs in the folder: of the numbers that were noted, those that still are its processes.
stop() {
  local pid_file pid
  for pid_file in radosgw osd mon; do
    [ -f "$folder/$pid_file.pid" ] || continue
    pid=$(cat "$folder/$pid_file.pid")
    if tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- "$folder/ceph.conf"; then
      kill -KILL -- "-$pid" 2>/dev/null || true
      while kill -0 "$pid" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; do sleep 0.05; done
    fi
  done
  rm -rf "$folder"
}

# run NAME command...: in the background, in a process group of its own, whose number is noted.
run() {
  local name=$1
  shift
  setsid timeout --signal=KILL "$seconds_max" "$@" --conf "$folder/ceph.conf" \
    </dev/null >"$folder/$name.out" 2>&1 &
  echo $! >"$folder/$name.pid"
}

# wait_for WHAT command...: until the command succeeds.
wait_for() {
  local what=$1 end=$((SECONDS + wait_seconds))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || fail "$what: not within $wait_seconds s"
    sleep 0.2
  done
}

free_ports() {
  python3 - "$1" <<'PYTHON'
import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for one in sockets:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))
PYTHON
}

write_configuration() {
  cat >"$folder/ceph.conf" <<CONF
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon host = v2:127.0.0.1:$mon_port
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind ipv6 = false
run dir = $folder
admin socket = $folder/\$name.asok
log file = $folder/\$name.log
crash dir = $folder
keyring = $folder/keyring
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
[mon.a]
mon data = $folder/mon
mon initial members = a
[osd.0]
osd data = $folder/osd
osd objectstore = memstore
memstore device bytes = 2147483648
memstore page size = 65536
[client.rgw]
rgw data = $folder/rgw
rgw frontends = beast endpoint=127.0.0.1:$rgw_port
rgw dns name = localhost
rgw enable usage log = false
rgw gc obj min wait = 1
CONF
}

# One file holds the keys of all: the monitor takes them from there, and so does everybody else.
make_keys() {
  {
    ceph-authtool --create-keyring "$folder/keyring" --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool "$folder/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
    ceph-authtool "$folder/keyring" --gen-key -n client.rgw --cap mon 'allow *' --cap osd 'allow *'
    ceph-authtool "$folder/keyring" --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *'
  } >/dev/null
}

ceph_command() { timeout 20 ceph --conf "$folder/ceph.conf" --name client.admin "$@"; }
answers() { curl --silent --noproxy '*' --max-time 5 "http://127.0.0.1:$rgw_port/"; }

make_bucket() {
  local status
  status=$(curl --silent --noproxy '*' --max-time 30 --aws-sigv4 aws:amz:us-east-1:s3 --user "$access_key:$secret_key" \
    --header "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" \
    --request PUT --output "$folder/bucket.out" --write-out '%{http_code}' "http://127.0.0.1:$rgw_port/$bucket")
  [ "$status" = 200 ] || fail "the bucket could not be made ($status)"
}

start() {
  for program in ceph-mon ceph-osd ceph radosgw radosgw-admin curl python3; do
    command -v "$program" >/dev/null || { echo "radosgw.sh: $program is not installed" >&2; exit 77; }
  done
  stop
  mkdir -p "$folder"/{mon,osd,rgw}
  trap '[ "$started" = yes ] || stop' EXIT
  read -r mon_port rgw_port <<<"$(free_ports 2)"
  write_configuration
  make_keys
  monmaptool --create --fsid "$(sed -n 's/^fsid = //p' "$folder/ceph.conf")" \
    --addv a "[v2:127.0.0.1:$mon_port]" "$folder/monmap" >/dev/null
  ceph-mon --conf "$folder/ceph.conf" --mkfs -i a --monmap "$folder/monmap" --keyring "$folder/keyring" >/dev/null 2>&1 ||
    fail "the monitor's data could not be made"
  run mon ceph-mon -f -i a
  wait_for "the monitor" ceph_command mon stat
  osd_uuid=$(cat /proc/sys/kernel/random/uuid)
  ceph_command osd new "$osd_uuid" >/dev/null 2>&1 || fail "no object store could be added"
  ceph-osd --conf "$folder/ceph.conf" --mkfs -i 0 --osd-uuid "$osd_uuid" >/dev/null 2>&1 || fail "the object store's data could not be made"
  run osd ceph-osd -f -i 0
  run radosgw radosgw -f --name client.rgw
  wait_for "the gateway" answers
  timeout 60 radosgw-admin --conf "$folder/ceph.conf" --name client.rgw user create --uid varve --display-name varve \
    --access-key "$access_key" --secret-key "$secret_key" >/dev/null 2>&1 || fail "the user could not be made"
  make_bucket
  cat >"$folder/environment" <<ENVIRONMENT
AWS_ACCESS_KEY_ID=$access_key
AWS_SECRET_ACCESS_KEY=$secret_key
AWS_REGION=us-east-1
AWS_ENDPOINT_URL_S3=http://127.0.0.1:$rgw_port
VARVE_S3_TEST_BUCKET=$bucket
ENVIRONMENT
  started=yes
  cat "$folder/environment"
}

[ $# -eq 2 ] || fail "usage: radosgw.sh start|stop FOLDER"
folder=$(realpath -m -- "$2")
started=no
case "$1" in
  start) start ;;
  stop) stop ;;
  *) fail "no verb called $1" ;;
esac
