#!/usr/bin/env bash
# Installs the Debian packages in a system of nothing else, uses what each is for, and removes them again.
#
#   tests/packages/chroot.sh FOLDER_OF_PACKAGES
#
# As root; mmdebstrap makes the system, in a folder that is removed at the end.
set -euo pipefail
packages=$(readlink -f "$1")
root=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(mktemp -d "${TMPDIR:-/var/tmp}/varve-packages-XXXXXX")
system=$work/system
clean() {
  for folder in proc sys dev; do umount -l "$system/$folder" 2>/dev/null || true; done
  rm -rf --one-file-system "$work"
}
trap clean EXIT
say() { printf '== %s\n' "$*"; }
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$system" "$@"; }

say "making a system"
mmdebstrap --quiet --variant=apt --include=ca-certificates "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$system"
for folder in proc sys dev; do mount --rbind --make-rslave "/$folder" "$system/$folder"; done
cp /etc/resolv.conf "$system/etc/"
mkdir "$system/packages"
cp "$packages"/*.deb "$system/packages"
# Of ours, by name.
ours() { for name; do (cd "$packages" && printf '/packages/%s ' "$name"_*.deb); done; }
apt() { inside apt-get -qq -y -o Dpkg::Use-Pty=0 --no-install-recommends "$@" >/dev/null; }

say "the program alone"
inside apt-get -qq update
apt install $(ours varve)
[ ! -e "$system/usr/lib/x86_64-linux-gnu/libopenmpi.so" ]  # it draws in no MPI
cp -r "$root/examples/sample/implosion" "$system/root/"
inside sh -euc '
  cd /root
  export VARVE_STORE=/root/store
  varve init store
  varve save implosion/DD0005
  varve save implosion/DD0006
  varve verify --deep
  varve restore implosion@6 back
  diff -r implosion/DD0006 back
  if varve restore implosion@6 --tar >nothing 2>told; then exit 1; fi  # recommended, and not installed
  grep -q "Debian: libarchive13" told
  varve version
  test -s /usr/share/man/man1/varve-save.1
  test -s /usr/lib/systemd/user/varve-watch@.service
  test -s /usr/share/doc/varve/copyright'

say "programs in C, in Fortran, of VELOC and SCR"
apt install gcc g++ gfortran pkg-config libopenmpi-dev openmpi-bin
apt install $(ours libvarve1 libvarve-mpi1 libvarve-dev varve-mpi varve-peers-dev varve-doc)
inside sh -euc '
  cd /root
  heat=/usr/share/doc/varve/examples/heat
  mpicc -std=c99 -D_POSIX_C_SOURCE=200809L -o heat_c $heat/heat.c $(pkg-config --cflags --libs varve-mpi) -lm
  mpifort -o heat_f $heat/heat.f90 $(pkg-config --cflags --libs varve-mpi-fortran)
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  export VARVE_STORE=/root/store OMPI_MCA_btl=self,vader VARVE_SHARED_MEMORY=/tmp VARVE_EVERY_STEPS=50
  for heat in heat_c heat_f; do
    mpirun -n 2 ./$heat 100 64 64
    mpirun -n 2 ./$heat 150 64 64
  done
  varve list
  mpicc -o rod_veloc /usr/share/doc/varve/examples/peers/rod_veloc.c $(pkg-config --cflags --libs veloc-client)
  mpicc -o rod_scr /usr/share/doc/varve/examples/peers/rod_scr.c $(pkg-config --cflags --libs scr)
  printf "scratch=/root/scratch\npersistent=/root/persistent\n" >veloc.cfg
  env -u VARVE_STORE mpirun -n 2 ./rod_veloc veloc.cfg 200
  env -u VARVE_STORE SCR_PREFIX=/root/persistent SCR_CACHE_BASE=/root/scratch mpirun -n 2 ./rod_scr 20
  varve list --store persistent/varve
  scr_index --list --prefix /root/persistent
  mpirun -n 2 varve-mpi restore implosion@5 together
  diff -r implosion/DD0005 together'

say "Python"
apt install $(ours python3-varve)
inside python3 -c '
import numpy, varve
a = numpy.arange(10.0)
with varve.Session(store="/root/store", job="python", shared_memory="/tmp") as session:
    session.protect("a", a)
    session.checkpoint(1)
assert (varve.Store("/root/store")["python"]["a"][2:4] == [2, 3]).all()
import importlib.metadata
assert importlib.metadata.version("varve") == varve.__version__
try:
    import mpi4py
except ImportError:
    print("without mpi4py")
'

say "removing them"
apt purge varve varve-doc varve-mpi varve-peers-dev libvarve1 libvarve-mpi1 libvarve-dev python3-varve
left=$(inside sh -c 'find / -xdev -ipath "*varve*" ! -path "/proc/*" ! -path "/root/*" ! -path "/packages/*" ! -path "/var/l*" ! -path "/tmp/*"')
[ -z "$left" ] || { echo "left behind: $left" >&2; exit 1; }
say "all is well"
